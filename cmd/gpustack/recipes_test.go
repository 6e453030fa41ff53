package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"gpustack/cmd/gpustack/args"
)

// TestRecipes: the recipes of docs/images.md are commands that a shell accepts, with the scripts
// that they write, and options that gpustack has; the user data is what cloud-init reads.
func TestRecipes(t *testing.T) {
	text, err := os.ReadFile("../../docs/images.md")
	if err != nil {
		t.Fatal(err)
	}
	parse := func(script string) {
		t.Helper()
		cmd := exec.Command("bash", "-n")
		cmd.Stdin = strings.NewReader(script)
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%v: %s\n%s", err, out, script)
		}
	}
	fences := regexp.MustCompile("(?s)```(bash|yaml)\n(.*?)```").FindAllSubmatch(text, -1)
	inner := regexp.MustCompile(`(?s)<<'EOT'\n(#!/bin/bash.*?)\nEOT\n`)
	a := newApp(testUI(t), []string{"gpustack"})
	shells, scripts, commands := 0, 0, 0
	for _, fence := range fences {
		body := string(fence[2])
		if string(fence[1]) == "yaml" {
			if !strings.HasPrefix(body, "#cloud-config\n") {
				t.Errorf("no user data of cloud-init: %s", body)
			}
			var data map[string]any
			d := yaml.NewDecoder(bytes.NewReader(fence[2]))
			if err := d.Decode(&data); err != nil {
				t.Fatal(err)
			}
			for key := range data { // cloud-init 22.4, doc/rtd/reference/modules.rst
				if !slices.Contains([]string{"package_update", "packages", "apt", "power_state"}, key) {
					t.Errorf("not a key of cloud-init: %s", key)
				}
			}
			continue
		}
		shells++
		parse(body)
		if !strings.HasPrefix(body, "set -eu\n") {
			t.Errorf("goes on after an error: %s", body)
		}
		for _, script := range inner.FindAllStringSubmatch(body, -1) {
			scripts++
			parse(script[1])
		}
		for line := range strings.Lines(body) {
			words := strings.Fields(line)
			if len(words) < 4 || words[0] != "gpustack" {
				continue
			}
			commands++
			line := args.Parse(a.App, words)
			if line.Command == nil || line.Unknown {
				t.Errorf("no command of gpustack: %q", words)
				continue
			}
			for _, word := range words {
				if name, ok := strings.CutPrefix(word, "--"); ok && args.FindFlag(line.Command.Flags, name) == nil {
					t.Errorf("%s has no option --%s", line.Command.FullName(), name)
				}
			}
		}
	}
	if shells != 2 || scripts != 1 || commands != 2 {
		t.Errorf("found %d recipes, %d scripts and %d commands of gpustack", shells, scripts, commands)
	}
}

// TestFleetRecipes: the commands of docs/fleet.md are commands of gpustack with options that it
// has, a shell accepts them, and their jq programs read fields of its documents. There are ten
// questions.
func TestFleetRecipes(t *testing.T) {
	text, err := os.ReadFile("../../docs/fleet.md")
	if err != nil {
		t.Fatal(err)
	}
	fields, err := os.ReadFile("../../docs/json.md")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{"name": true, "hosts": true} // of openstack
	for _, name := range regexp.MustCompile("`([a-z_]+)`").FindAllSubmatch(fields, -1) {
		known[string(name[1])] = true
	}
	_, questions, _ := strings.Cut(string(text), "\n## Ten questions\n")
	questions, _, _ = strings.Cut(questions, "\n## ")
	if n := strings.Count(questions, "```sh\n"); n != 10 {
		t.Errorf("%d questions with commands", n)
	}
	a := newApp(testUI(t), []string{"gpustack"})
	commands, filters := 0, 0
	for _, fence := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllSubmatch(text, -1) {
		cmd := exec.Command("bash", "-n")
		cmd.Stdin = bytes.NewReader(fence[1])
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%v: %s\n%s", err, out, fence[1])
		}
		for _, found := range regexp.MustCompile(`gpustack ((?:fleet|host) [^|>\n&;]*)`).FindAllSubmatch(fence[1], -1) {
			words := strings.Fields(strings.NewReplacer("$k", "scan", `"$@"`, "--machine").Replace(string(found[1])))
			line := args.Parse(a.App, append([]string{"gpustack"}, words...))
			commands++
			if line.Command == nil || line.Unknown || len(line.Command.Subcommands) > 0 {
				t.Errorf("no command of gpustack: %q", words)
				continue
			}
			for _, word := range words {
				if name, ok := strings.CutPrefix(word, "--"); ok && args.FindFlag(line.Command.Flags, name) == nil {
					t.Errorf("%s has no option --%s", line.Command.FullName(), name)
				}
			}
		}
		for _, program := range regexp.MustCompile(`jq [^']*'([^']*)'`).FindAllSubmatch(fence[1], -1) {
			filters++
			for _, field := range regexp.MustCompile(`\.([a-z_]+)`).FindAllSubmatch(program[1], -1) {
				if !known[string(field[1])] {
					t.Errorf("no document has the field %s: %s", field[1], program[1])
				}
			}
		}
	}
	if commands < 12 || filters < 6 {
		t.Errorf("found %d commands and %d programs of jq", commands, filters)
	}
}

// TestFleetCronRecipe: the loop of docs/fleet.md for cron keeps each document that gpustack has
// printed, also with exit status 2, and of a command that failed the document of the last time.
func TestFleetCronRecipe(t *testing.T) {
	text, err := os.ReadFile("../../docs/fleet.md")
	if err != nil {
		t.Fatal(err)
	}
	const folder = "/srv/gpustack"
	recipe := ""
	for _, fence := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllSubmatch(text, -1) {
		if bytes.Contains(fence[1], []byte("for k in scan check guests")) {
			recipe = string(fence[1])
		}
	}
	if !strings.Contains(recipe, folder) {
		t.Fatalf("no loop that writes to %s: %q", folder, recipe)
	}
	dir, bin := t.TempDir(), t.TempDir()
	const fake = `#!/bin/sh
echo "new $*"
case $2 in check) exit 2 ;; guests) exit 1 ;; esac
`
	for path, content := range map[string]string{
		filepath.Join(bin, "gpustack"): fake, filepath.Join(bin, "hostname"): "#!/bin/sh\necho gpu1\n",
		filepath.Join(dir, "gpu1.scan.json"): "old\n", filepath.Join(dir, "gpu1.check.json"): "old\n", filepath.Join(dir, "gpu1.guests.json"): "old\n",
	} {
		if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("sh", "-c", strings.ReplaceAll(recipe, folder, dir))
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	_ = cmd.Run() // cron needs no exit status; the files count
	for kind, want := range map[string]string{"scan": "new host scan --machine -o json\n", "check": "new host check -o json\n", "guests": "old\n"} {
		got, err := os.ReadFile(filepath.Join(dir, "gpu1."+kind+".json"))
		if err != nil || string(got) != want {
			t.Errorf("%s: %q, error %v, not %q", kind, got, err, want)
		}
	}
}

// TestFleetAnsibleRecipe: the play of docs/fleet.md copies what a command has printed with exit
// status 0 or 2. An error report leaves the document of the last time, and does not keep those of
// the node's other commands from being copied.
func TestFleetAnsibleRecipe(t *testing.T) {
	text, err := os.ReadFile("../../docs/fleet.md")
	if err != nil {
		t.Fatal(err)
	}
	fence := regexp.MustCompile("(?s)```yaml\n(- hosts: gpu_nodes\n.*?)```").FindSubmatch(text)
	if fence == nil {
		t.Fatal("no play")
	}
	var plays []struct {
		Tasks []struct {
			Register string
			Failed   string `yaml:"failed_when"`
			Ignore   bool   `yaml:"ignore_errors"`
			When     string
			Copy     map[string]string `yaml:"ansible.builtin.copy"`
		}
	}
	if err := yaml.Unmarshal(fence[1], &plays); err != nil {
		t.Fatal(err)
	}
	if len(plays) != 1 || len(plays[0].Tasks) != 2 {
		t.Fatalf("%+v", plays)
	}
	prints, copies := plays[0].Tasks[0], plays[0].Tasks[1]
	if !prints.Ignore || copies.Copy["content"] != "{{ item.stdout }}" || copies.When != "item is succeeded" {
		t.Errorf("copies more or less than the documents of commands that have not failed: %+v, %+v", prints, copies)
	}
	condition := regexp.MustCompile(`^printed\.rc not in \[([0-9, ]+)\] or printed\.stdout is not search\('(.*)'\)$`).FindStringSubmatch(prints.Failed)
	if condition == nil {
		t.Fatalf("failed_when: %s", prints.Failed)
	}
	for _, test := range []struct {
		status, stdout string
		failed         bool
	}{
		{"0", "{\"schema\":1,\n\"host\":\"gpu1\"}", false},
		{"2", "{\"schema\":1,\n\"verdict\":\"drifted\"}", false},
		{"1", "{\"schema\":1,\n\"errors\":[]}", true},
		{"2", "", true}, // of Ansible, if there is no gpustack: ENOENT
	} {
		failed := !slices.Contains(strings.Split(condition[1], ", "), test.status) || !regexp.MustCompile(condition[2]).MatchString(test.stdout)
		if failed != test.failed {
			t.Errorf("status %s and %q: failed %t", test.status, test.stdout, failed)
		}
	}
}
