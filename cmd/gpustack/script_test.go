package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"gpustack/host/hosttest"
	"gpustack/nova/cloud/cloudtest"
)

var update = flag.Bool("update", false, "write what the commands print into the scripts")

// unprivileged makes the program run as nobody: root records changes of flavors in the journal of
// the machine, which tests do not touch.
func unprivileged() {
	for _, set := range []func(int) error{syscall.Setgid, syscall.Setuid} {
		if err := set(nobody); err != nil {
			panic(err)
		}
	}
}

// nobody is the id of the user and of the group nobody.
const nobody = 65534

// stateHome makes a folder in which an unprivileged program records changes, and returns the
// environment that names it.
func stateHome(dir string) ([]string, error) {
	state := filepath.Join(dir, "state")
	err := os.Mkdir(state, 0o777)
	if err == nil {
		err = os.Chmod(state, 0o777)
	}
	// Folders of tests are private to their user.
	for dir != filepath.Dir(dir) && dir != filepath.Clean(os.TempDir()) && err == nil {
		err = os.Chmod(dir, 0o755)
		dir = filepath.Dir(dir)
	}
	return []string{"UNPRIVILEGED=1", "XDG_STATE_HOME=" + state}, err
}

// TestScripts runs the program as its users do: each script of testdata/script
// is one behaviour. "gpustack ..." is run by a worker, "exec gpustack ..." is a process of its own,
// which can read standard input.
func TestScripts(t *testing.T) {
	t.Parallel()
	examples, err := filepath.Abs("../../examples")
	hosttest.NoError(t, err)
	scripts, err := filepath.Glob("testdata/script/*.txtar")
	hosttest.NoError(t, err)
	for _, script := range scripts {
		text := hosttest.Read(t, script)
		for _, set := range regexp.MustCompile(`(?m)^(?:\[[^]]*\] )?env (.*)$`).FindAllStringSubmatch(text, -1) {
			for word := range strings.FieldsSeq(set[1]) {
				if name, _, _ := strings.Cut(word, "="); !slices.Contains(scriptVariables(), name) {
					t.Errorf("%s sets %s, which scriptVariables does not have", script, name)
				}
			}
		}
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"cloud": startCloud, "gpustack": programInScript, "page": runShown, "refused": refuseFormats, "undated": writeUndated,
		},
		Setup: func(env *testscript.Env) error {
			env.Setenv("EXAMPLES", examples)
			env.Setenv("LANG", "C.UTF-8")
			// Their commands have no --root: they would read the journal of the machine.
			if !slices.Contains([]string{"script-flavor", "script-image", "script-drain", "script-fleet", "script-nova_explain", "script-nova_devices",
				"script-page_nova"}, filepath.Base(env.WorkDir)) {
				return nil
			}
			state, err := stateHome(env.WorkDir)
			env.Vars = append(env.Vars, state...)
			return errors.Join(err, os.Chmod(env.WorkDir, 0o777))
		},
	})
}

// scriptVariables are the environment of the program in scripts.
func scriptVariables() []string {
	return slices.AppendSeq([]string{"COLUMNS", "EXAMPLES", "HOME", "LANG", "PATH", "SUDO_USER", "TMPDIR", "UNPRIVILEGED", "XDG_STATE_HOME"},
		maps.Keys(new(cloudtest.Cloud).Env()))
}

// programInScript is the command "gpustack ...".
func programInScript(ts *testscript.TestScript, neg bool, args []string) {
	if o := runInScript(ts, args); neg == (o.status == 0) {
		ts.Fatalf("exit status %d", o.status)
	}
}

// runInScript runs a command line of the program where a script is.
func runInScript(ts *testscript.TestScript, args []string) output {
	line := commandLine{Dir: ts.MkAbs("."), Args: args}
	for _, name := range scriptVariables() {
		if value := ts.Getenv(name); value != "" {
			line.Env = append(line.Env, name+"="+value)
		}
	}
	o, err := runLine(line)
	if o.status == unlikeSchema {
		ts.Fatalf("%s", o.stderr)
	}
	_, outErr := io.WriteString(ts.Stdout(), o.stdout)
	_, errErr := io.WriteString(ts.Stderr(), o.stderr)
	ts.Check(errors.Join(err, outErr, errErr))
	return o
}

// TestBesideMachine: in the overlay of .ci/apart, as in make test, the unit tests run beside the files
// of a machine (.ci/beside), and what reads one of them fails.
func TestBesideMachine(t *testing.T) {
	if os.Getenv("GPUSTACK_APART") != "overlay" {
		return // the files would be those of the user's machine
	}
	for file, command := range map[string]string{
		"/var/lib/gpustack/journal/0001.json": "history",
		"/var/lib/gpustack/contract.json":     "host check",
		"/run/gpustack/boot.json":             "host check",
		"/etc/nova/nova.conf":                 "nova check --release zed",
		"/etc/openstack/clouds.yaml":          "flavor list --os-cloud none",
	} {
		if o := runProgram(t, ".", nil, strings.Fields(command)...); o.status == 0 || !strings.Contains(o.stdout+o.stderr, file) {
			t.Errorf("gpustack %s is not as beside %s: %+v", command, file, o)
		}
	}
}

// writeUndated is the command "undated FILE": it writes the document that was printed last to a
// file, without its time and without the version of gpustack.
func writeUndated(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: undated FILE")
	}
	dated := regexp.MustCompile(`(?m)^(?:"(?:version|time)":"[^"]*",|(?:version|time): .*)\n`)
	text := ts.ReadFile("stdout")
	if n := len(dated.FindAllString(text, -1)); n != 2 {
		ts.Fatalf("%d lines with the time or the version, not 2", n)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(dated.ReplaceAllString(text, "")), 0o644))
}

// refuseFormats is the command "refused ROOT FILE COMMAND...": each command is refused for the file
// of gpustack if its format has another number or none, and if it is malformed.
func refuseFormats(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("refused has no negation")
	}
	const reads, hint = "this version of gpustack reads schema 1", "undo it with the version of gpustack that wrote it"
	file := "/var/lib/gpustack/" + args[1]
	place := ts.MkAbs(args[0] + file)
	text := ts.ReadFile(place)
	faults := map[string]string{
		"[]\n": "malformed JSON: json: cannot unmarshal array", "{\n": "the JSON document ends early",
		strings.ReplaceAll(text, `"schema": 1,`, ""): "no schema: " + reads,
	}
	for _, schema := range []string{"0", "2", `"1"`, "null"} {
		faults[strings.ReplaceAll(text, `"schema": 1`, `"schema": `+schema)] = "schema " + schema + ": " + reads
	}
	for written, fault := range faults {
		ts.Check(os.WriteFile(place, []byte(written), 0o600))
		for _, command := range args[2:] {
			o := runInScript(ts, append(strings.Fields(command), "--root", args[0], "-o", "json"))
			printed := strings.ReplaceAll(o.stdout+o.stderr, `\`, "")
			if o.status == 0 || !strings.Contains(printed, file+": "+fault) || strings.Contains(fault, reads) && !strings.Contains(printed, hint) {
				ts.Fatalf("%s: exit status %d, expected %s: %s", command, o.status, file, fault)
			}
		}
	}
	ts.Check(os.WriteFile(place, []byte(text), 0o600))
}

// startCloud is the command "cloud NEWEST [hosts|forbidden|night|enabled|drain]": a small OpenStack
// whose newest microversion is 2.NEWEST, with a few flavors, and the variables that sign in to it.
// clouds.yaml has it as lab.
func startCloud(ts *testscript.TestScript, _ bool, args []string) {
	newest, err := strconv.Atoi(strings.Join(args[:min(1, len(args))], " "))
	ts.Check(err)
	c := cloudtest.New(newest)
	ts.Defer(c.Close)
	if len(args) > 1 {
		addHosts(c, args[1])
	}
	c.Add("1", "m1.small", 1, 2048, 20, true, map[string]string{})
	c.Add("2", "gpu.old", 4, 8192, 10, true, map[string]string{"pci_passthrough:alias": "A100:8", "hw:cpu_policy": "dedicated"})
	c.Add("3", "gpu.secret", 4, 8192, 40, false, map[string]string{"pci_passthrough:alias": "K4200:2"}).Access = []string{"id-of-lab"}
	c.Add("4", "gpu.broken", 4, 8192, 40, true, map[string]string{"pci_passthrough:alias": "K4200"})
	c.Servers["0c1d"] = "2"
	c.Images = []map[string]any{
		{"id": "9", "name": "windows", "status": "active", "min_disk": 100, "min_ram": 512, "size": 1},
		{"id": "10", "name": "debian", "status": "active", "visibility": "public", "owner": "id-of-admin", "protected": true, "os_hidden": true,
			"min_disk": 0, "min_ram": 0, "size": 1 << 29, "virtual_size": 3 << 30, "os_type": "linux"},
		{"id": "11", "name": "twice", "owner": "ours"}, {"id": "12", "name": "twice", "owner": "theirs"},
		{"id": "13", "name": "theirs", "status": "active", "visibility": "shared", "owner": "theirs", "min_disk": 0, "min_ram": 0, "size": 1, "virtual_size": 1 << 30},
	}
	c.Traits = map[string]int{"COMPUTE_ADDRESS_SPACE_PASSTHROUGH": 2, "COMPUTE_SECURITY_UEFI_SECURE_BOOT": 0}
	for name, value := range c.Env() {
		ts.Setenv(name, value)
	}
	ts.Check(os.WriteFile(ts.MkAbs("clouds.yaml"),
		fmt.Appendf(nil, "clouds: {lab: {auth: {auth_url: %q, username: admin, password: %s, project_name: admin}}}\n", c.URL, c.Password), 0o644))
}
