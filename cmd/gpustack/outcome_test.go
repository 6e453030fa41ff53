package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/nova/cloud/cloudtest"
)

// outcome is what a document says of a change that was made, or not.
type outcome struct {
	printed
	Applied bool
	Entry   *int
	Reboot  *bool `json:"reboot_required"`
}

// ends runs a command with -o json: TestMain's program compares the document with its schema.
func ends(t *testing.T, env []string, want int, args ...string) (o outcome) {
	t.Helper()
	ran := runProgram(t, "/", env, append(args, "-o", "json")...)
	if ran.status != want {
		t.Fatalf("%q: exit status %d, want %d: %s%s", args, ran.status, want, ran.stdout, ran.stderr)
	}
	if err := json.Unmarshal([]byte(ran.stdout), &o); err != nil {
		t.Fatalf("%q: %v: %s", args, err, ran.stdout)
	}
	if failed := len(o.Refusals)+len(o.Errors) > 0; failed != (want == 1) {
		t.Errorf("%q: exit status %d: %s", args, want, ran.stdout)
	}
	return o
}

// reopen makes the last change of a journal an interrupted one.
func reopen(t *testing.T, journal, status string) {
	t.Helper()
	entries, err := filepath.Glob(filepath.Join(journal, "*.json"))
	if err != nil || len(entries) == 0 {
		t.Fatal(entries, err)
	}
	last := entries[len(entries)-1]
	text := hosttest.Read(t, last)
	hosttest.NoError(t, os.WriteFile(last, []byte(strings.Replace(text, `"status": "done"`, `"status": "`+status+`"`, 1)), 0o600))
}

// TestDocumentOfFailure: a change that is not as planned when it is read back ends with its plan
// and its errors in one document.
func TestDocumentOfFailure(t *testing.T) {
	c := cloudtest.Start(t, 96)
	c.Fault = func(w http.ResponseWriter, r *http.Request) bool { // accepts keys and does not store them
		if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/os-extra_specs") {
			return false
		}
		w.Write([]byte(`{"extra_specs": {}}`))
		return true
	}
	env := unprivilegedEnv(t)
	for name, value := range c.Env() {
		env = append(env, name+"="+value)
	}
	o := ends(t, env, 1, "flavor", "create", "K4200:2", "--yes")
	if o.Changed == nil || !*o.Changed || o.Applied || o.Entry != nil || o.Refusals != nil {
		t.Errorf("%+v", o)
	}
	if want := "nothing was changed: flavor gpu.k4200.2: is not as requested: the cloud has stored no extra specs"; len(o.Errors) != 1 || o.Errors[0].Message != want {
		t.Errorf("%+v, want %q", o, want)
	}
	if len(c.Flavors) > 0 {
		t.Errorf("the flavor was not rolled back: %+v", c.Flavors)
	}
}

// TestDocumentOfUndo: undo of an interrupted change of each kind prints one document, whether it
// only shows what is left, is not confirmed, or rolls the change back.
func TestDocumentOfUndo(t *testing.T) {
	t.Run("files", func(t *testing.T) {
		t.Parallel()
		node := layTalk(t)
		gpustack(t, "host", "prepare", "--root", node, "--yes")
		reopen(t, filepath.Join(node, "var/lib/gpustack/journal"), "applying")
		undo := []string{"undo", "--root", node}
		ends(t, nil, 2, append(undo, "--dry-run")...)
		if o := ends(t, nil, 1, undo...); o.Refusals == nil || o.Refusals[0].Code != "unconfirmed" || o.Applied || o.Entry == nil {
			t.Errorf("%+v", o)
		}
		if o := ends(t, nil, 0, append(undo, "--yes")...); !o.Applied || o.Reboot == nil || *o.Reboot {
			t.Errorf("%+v", o)
		}
	})
	t.Run("drivers", func(t *testing.T) {
		t.Parallel()
		node := layTalk(t)
		for name, text := range map[string]string{
			"proc/sys/kernel/random/boot_id": "this-boot\n",
			"var/lib/gpustack/journal/0001.json": `{"schema":1,"id":1,"kind":"journal entry", "changes":"drivers","command":"host bind","status":"applying","origin":{"user":"","host":"","version":"","argv":null},"started":"2026-11-21T20:00:00Z",` +
				`"ended":null,"files":[],"programs":null,"left":null,"restart":null,"rows":null,"drivers":{"boot_id":"this-boot","release":false,"services":{"stop":null,"persistence_off":null,"start":null,"persistence_on":null,"persistent":null},"functions":[]}}`,
		} {
			write(t, filepath.Join(node, name), text)
		}
		undo := []string{"undo", "--root", node}
		ends(t, nil, 2, append(undo, "--dry-run")...)
		for _, answer := range [][]string{nil, {"--yes"}} {
			if o := ends(t, nil, 1, append(undo, answer...)...); o.Applied {
				t.Errorf("%+v", o)
			}
		}
	})
	t.Run("flavor", func(t *testing.T) {
		t.Parallel()
		c := cloudtest.Start(t, 96)
		dir := t.TempDir()
		env, err := stateHome(dir)
		hosttest.NoError(t, err)
		for name, value := range c.Env() {
			env = append(env, name+"="+value)
		}
		journal := filepath.Join(dir, "state/gpustack/journal")
		if o := ends(t, env, 0, "flavor", "create", "K4200:2", "--yes"); !o.Applied || o.Entry == nil {
			t.Errorf("%+v", o)
		}
		reopen(t, journal, "applying")
		ends(t, env, 2, "undo", "--dry-run")
		if o := ends(t, env, 1, "undo"); o.Refusals == nil || o.Refusals[0].Code != "unconfirmed" || o.Applied || o.Entry == nil {
			t.Errorf("%+v", o)
		}
		if o := ends(t, env, 0, "undo", "--yes"); !o.Applied || len(c.Flavors) > 0 {
			t.Errorf("%+v, %d flavors", o, len(c.Flavors))
		}
	})
}

// write writes a file and makes its folders.
func write(t *testing.T, name, text string) {
	t.Helper()
	hosttest.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
	hosttest.NoError(t, os.WriteFile(name, []byte(text), 0o600))
}
