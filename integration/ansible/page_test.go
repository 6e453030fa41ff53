package ansible

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gpustack/host/hosttest"

	"gopkg.in/yaml.v3"
)

// optionsOf returns the variables of a role.
func optionsOf(t *testing.T, role string) map[string]any {
	t.Helper()
	text := hosttest.Read(t, filepath.Join(collection, "roles", role, "meta/argument_specs.yml"))
	var specs struct {
		Specs struct {
			Main struct{ Options map[string]any }
		} `yaml:"argument_specs"`
	}
	if err := yaml.Unmarshal([]byte(text), &specs); err != nil || len(specs.Specs.Main.Options) == 0 {
		t.Fatalf("%s: %v", role, err)
	}
	return specs.Specs.Main.Options
}

// TestRoleOptions: the variables of a role that an operator may set are those with defaults, with
// the same defaults, and no playbook overrides what the inventory sets, but undo its state.
func TestRoleOptions(t *testing.T) {
	for _, name := range []string{"rollout", "undo"} {
		text := hosttest.Read(t, filepath.Join(collection, "playbooks", name+".yml"))
		var plays []struct {
			Vars  map[string]any
			Roles []struct{ Vars map[string]any }
		}
		if err := yaml.Unmarshal([]byte(text), &plays); err != nil || len(plays) != 1 || len(plays[0].Roles) != 1 {
			t.Fatalf("%s: %v", name, err)
		}
		vars := plays[0].Roles[0].Vars
		delete(vars, "gpustack_node_state")
		if len(vars) > 0 || len(plays[0].Vars) > 0 {
			t.Errorf("%s sets %v %v", name, vars, plays[0].Vars)
		}
	}
	for _, role := range []string{"node", "controller"} {
		text := hosttest.Read(t, filepath.Join(collection, "roles", role, "defaults/main.yml"))
		var defaults map[string]any
		hosttest.NoError(t, yaml.Unmarshal([]byte(text), &defaults))
		options := optionsOf(t, role)
		for name, value := range defaults {
			option, _ := options[name].(map[string]any)
			is, _ := yaml.Marshal(option["default"])
			if want, _ := yaml.Marshal(value); string(is) != string(want) {
				t.Errorf("%s: the default of %s is %s, but %s in argument_specs.yml", role, name, want, is)
			}
		}
		if len(defaults) != len(options) {
			t.Errorf("%s: %d defaults, %d options", role, len(defaults), len(options))
		}
	}
}

// rolloutPage returns the section of docs/fleet.md on rollouts, and its blocks of a language.
func rolloutPage(t *testing.T) (blocks func(language string) []string) {
	t.Helper()
	text := hosttest.Read(t, "../../docs/fleet.md")
	_, section, found := strings.Cut(text, "\n## Roll out with Ansible\n")
	if !found {
		t.Fatal("no section on rollouts")
	}
	return func(language string) (all []string) {
		for _, m := range regexp.MustCompile("(?ms)^ *```"+language+"\n(.*?)^ *```").FindAllStringSubmatch(section, -1) {
			all = append(all, m[1])
		}
		return all
	}
}

// TestRolloutPage: the playbooks that docs/fleet.md runs are those of the collection, with
// variables that they have, and Ansible reads the inventory and the play of the page.
func TestRolloutPage(t *testing.T) {
	blocks := rolloutPage(t)
	plays := blocks("yaml")
	if len(plays) != 3 {
		t.Fatalf("%d blocks of YAML", len(plays))
	}
	node, controller := optionsOf(t, "node"), optionsOf(t, "controller")
	for _, name := range regexp.MustCompile(`gpustack_(node|controller)_\w+`).FindAllString(strings.Join(plays, ""), -1) {
		if node[name] == nil && controller[name] == nil {
			t.Errorf("no role has the variable %s", name)
		}
	}
	commands := 0
	for _, block := range blocks("sh") {
		if n := strings.Count(block, "\n"); n > 5 {
			t.Errorf("a wave takes %d commands:\n%s", n, block)
		}
		for line := range strings.Lines(block) {
			words := strings.Fields(line)
			if words[0] != "ansible-playbook" {
				continue
			}
			commands++
			playbook := ""
			for i, word := range words {
				if name, ok := strings.CutPrefix(word, "gpustack.nova."); ok {
					text, err := os.ReadFile(filepath.Join(collection, "playbooks", name+".yml"))
					if err != nil {
						t.Error(err)
					}
					playbook = string(text)
				}
				if words[max(i-1, 0)] == "-e" {
					name, _, _ := strings.Cut(word, "=")
					if node[name] == nil && !regexp.MustCompile(`\b`+name+` \|`).MatchString(playbook) {
						t.Errorf("%s: has no variable %s", strings.TrimSpace(line), name)
					}
				}
			}
		}
	}
	hosttest.EqualIn(t, "commands", 5, commands)
	r := newRun(t, 0)
	r.write(t, "inventory.yml", plays[0], 0o644)
	r.write(t, "waves.yml", "all: {children: {wave_00: {hosts: {gpu02: {}}}}}\n", 0o644)
	r.write(t, "boot.yml", plays[1], 0o644)
	r.write(t, "prepare.yml", plays[2], 0o644)
	out, talk, status := r.command(t, "ansible-playbook", "-i", r.dir+"/inventory.yml", "-i", r.dir+"/waves.yml", "gpustack.nova.rollout",
		"gpustack.nova.undo", r.dir+"/boot.yml", r.dir+"/prepare.yml", "--list-hosts")
	if status != 0 || strings.Count(out, "hosts (1):\n      gpu02\n") != 4 || strings.Count(out, "hosts (2):\n") != 2 {
		t.Errorf("%d: %s%s", status, out, talk)
	}
	if out, talk, status := r.command(t, "ansible-playbook", "--syntax-check", r.dir+"/boot.yml", r.dir+"/prepare.yml"); status != 0 {
		t.Errorf("%d: %s%s", status, out, talk)
	}
}

// TestSudoers: the line of docs/fleet.md lets the user run the commands that collect documents, and
// no other one, by sudo itself.
func TestSudoers(t *testing.T) {
	lines := rolloutPage(t)("sudoers")
	if len(lines) != 1 {
		t.Fatalf("%d blocks", len(lines))
	}
	file := filepath.Join(t.TempDir(), "gpustack")
	// sudo's own files are the tree's: a mount of this process alone has the line, and the user.
	line := strings.ReplaceAll(strings.Replace(strings.TrimSpace(lines[0]), "gpustack ", "nobody ", 1), "/usr/sbin/gpustack", gpustack) + "\n"
	hosttest.NoError(t, os.WriteFile(file, []byte(line), 0o440))
	if out, err := exec.Command("/usr/sbin/visudo", "-cf", file).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s%s", err, out, line)
	}
	for _, test := range []struct {
		command string
		allowed bool
	}{
		{"host scan --machine -o json", true}, {"host check -o json", true}, {"host guests -o json", true},
		{"host check", false}, {"host prepare --yes", false}, {"host scan --machine -o json --root /", false},
		{"host guests -o json --conf /etc/shadow", false},
	} {
		cmd := exec.Command("unshare", "--mount", "sh", "-euc", `mount -t tmpfs -o mode=755 tmpfs /etc/sudoers.d
cp "$1" /etc/sudoers.d/gpustack
shift
exec setpriv --reuid=65534 --regid=65534 --clear-groups sudo -n -l "$@"`, "sh", file, gpustack)
		cmd.Args = append(cmd.Args, strings.Fields(test.command)...)
		out, err := cmd.CombinedOutput()
		if (err == nil) != test.allowed {
			t.Errorf("%s: %v: %s", test.command, err, out)
		}
	}
}
