package ansible

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"gpustack/host/hosttest"

	"github.com/google/go-cmp/cmp"
)

// An option is one of a module, as ansible-doc shows it and as AnsibleModule gets it.
type option struct {
	Type     string
	Elements string
	Required bool
	Default  any
	Choices  []string
}

// A documentation is what ansible-doc shows of a module.
type documentation struct {
	Doc struct {
		Options map[string]struct {
			option
			Description []string
		}
		ShortDescription string `json:"short_description"`
		Attributes       map[string]struct{ Support string }
	}
	Examples string
	Return   map[string]any
}

// moduleNames returns the modules of the collection.
func moduleNames(t testing.TB) (names []string) {
	t.Helper()
	files, err := filepath.Glob(collection + "/plugins/modules/*.py")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d modules, %v", len(files), err)
	}
	for _, file := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(file), ".py"))
	}
	return names
}

// askDoc runs ansible-doc once.
var askDoc = sync.OnceValues(func() (map[string]documentation, error) {
	files, err := filepath.Glob(collection + "/plugins/modules/*.py")
	if err != nil {
		return nil, err
	}
	args := []string{"--type", "module", "--json"}
	for _, file := range files {
		args = append(args, "gpustack.nova."+strings.TrimSuffix(filepath.Base(file), ".py"))
	}
	home, err := os.MkdirTemp("", "gpustack-doc-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(home)
	cmd := exec.Command("ansible-doc", args...)
	cmd.Env = append(os.Environ(), "HOME="+home, "ANSIBLE_LOCAL_TEMP="+home, "ANSIBLE_COLLECTIONS_PATH="+collections, "PYTHONDONTWRITEBYTECODE=1")
	var talk strings.Builder
	cmd.Stderr = &talk
	out, err := cmd.Output()
	if err != nil || talk.String() != "" {
		return nil, fmt.Errorf("ansible-doc: %w: %s", err, talk.String())
	}
	all, short := map[string]documentation{}, map[string]documentation{}
	if err := json.Unmarshal(out, &all); err != nil {
		return nil, err
	}
	for name, module := range all {
		short[strings.TrimPrefix(name, "gpustack.nova.")] = module
	}
	return short, nil
})

// documented returns what ansible-doc shows of each module.
func documented(t *testing.T) map[string]documentation {
	t.Helper()
	all, err := askDoc()
	hosttest.NoError(t, err)
	return all
}

// A specification is what a module passes to AnsibleModule, and its table of flags.
type specification struct {
	Command  []string
	Flags    map[string][2]string // flag and type
	Argument *string
	Options  map[string]option `json:"argument_spec"`
	Check    bool              `json:"supports_check_mode"`
	Examples []map[string]any
}

// specified returns what each module says to Ansible and to gpustack.
func specified(t *testing.T) (all map[string]specification) {
	t.Helper()
	cmd := exec.Command("/usr/bin/python3", "testdata/spec.py", collections)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	var talk strings.Builder
	cmd.Stderr = &talk
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, talk.String())
	}
	hosttest.NoError(t, json.Unmarshal(out, &all))
	return all
}

// helpFlag is a line of OPTIONS of --help: an option, and the word for its value.
var helpFlag = regexp.MustCompile(`(?m)^  (?:-\w, )?(--[a-z-]+)((?: \S+)?)  +(\S.*)$`)

// notPassed are the flags of commands that no option of a module passes, because the modules pass
// them by themselves, or because they are for people.
var notPassed = map[string][]string{
	"":                  {"--output", "--dry-run", "--yes", "--diff", "--quiet", "--verbose", "--help"},
	"scan_info":         {"--device", "--vendor", "--class", "--pci-ids"},                          // a filtered document is not complete
	"check_info":        {"--all", "--metrics"},                                                    // JSON always has all; monitoring has units for metrics
	"prepare":           {"--none"},                                                                // state: absent
	"drain":             {"--list"},                                                                // fleet_status_info
	"undo":              {"--all", "--database"},                                                   // a play undoes what it names; a URL has a password
	"fleet_status_info": {"--list", "--reason", "--step", "--take-over", "--wait", "--wait-empty"}, // of drain
	// URLs have passwords; a playbook keeps no server, and consoles have secrets; --clean is for the
	// time after killed tests.
	"flavor_test": {"--database", "--keep-server", "--console", "--clean"},
}

// TestDocs: ansible-doc shows of each module the options that it has, and they pass the flags that
// gpustack has. Every other flag is one of notPassed.
func TestDocs(t *testing.T) {
	docs, specs := documented(t), specified(t)
	names := moduleNames(t)
	for _, name := range names {
		doc, spec := docs[name], specs[name]
		shown := map[string]option{}
		for n, o := range doc.Doc.Options {
			shown[n] = o.option
			if len(o.Description) == 0 {
				t.Errorf("%s: %s has no description", name, n)
			}
		}
		hosttest.EqualIn(t, name+": options of ansible-doc and of argument_spec", shown, spec.Options)
		if !spec.Check || doc.Doc.Attributes["check_mode"].Support != "full" || doc.Doc.ShortDescription == "" || len(doc.Return) < 3 {
			t.Errorf("%s: %+v", name, doc)
		}
		shows := 0
		for _, example := range spec.Examples {
			options, ok := example["gpustack.nova."+name]
			if !ok {
				continue
			}
			shows++
			for n := range asMap(options) {
				if _, ok := spec.Options[n]; !ok {
					t.Errorf("%s: an example has the option %s", name, n)
				}
			}
		}
		if shows == 0 {
			t.Errorf("%s: no example", name)
		}
		checkFlags(t, name, spec)
	}
	text := hosttest.Read(t, collection+"/meta/runtime.yml")
	hosttest.ContainsIn(t, "meta/runtime.yml", "action_groups:\n  gpustack:\n    - "+strings.Join(names, "\n    - ")+"\n", text)
	readme := hosttest.Read(t, collection+"/README.md")
	for _, name := range names {
		hosttest.ContainsIn(t, "README.md", "\n| "+name+" | `"+strings.Join(specs[name].Command, " "), readme)
	}
}

// asMap returns a mapping, which may be empty.
func asMap(value any) map[string]any {
	m, _ := value.(map[string]any)
	return m
}

// checkFlags compares the flags of a module with those that the command's help lists.
func checkFlags(t *testing.T, name string, spec specification) {
	t.Helper()
	help, err := exec.Command(gpustack, append([]string{"help"}, spec.Command...)...).Output()
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	lines := helpFlag.FindAllStringSubmatch(string(help), -1)
	if len(lines) < 4 {
		t.Fatalf("%s: %d flags in\n%s", name, len(lines), help)
	}
	known := map[string]string{}
	for _, m := range lines {
		switch {
		case m[2] == "":
			known[m[1]] = "bool"
		case strings.Contains(m[3], "(repeatable"):
			known[m[1]] = "list"
		default:
			known[m[1]] = "one"
		}
	}
	passed := map[string]string{}
	for _, f := range spec.Flags {
		passed[f[0]] = map[string]string{"bool": "bool", "unless": "bool", "list": "list"}[f[1]]
		if passed[f[0]] == "" {
			passed[f[0]] = "one"
		}
	}
	for _, flag := range slices.Concat(notPassed[""], notPassed[name]) {
		if _, ok := known[flag]; !ok && slices.Contains(notPassed[name], flag) {
			t.Errorf("%s: the command has no flag %s", name, flag)
		}
		delete(known, flag)
	}
	if diff := cmp.Diff(known, passed); diff != "" {
		t.Errorf("%s: flags (-help +module):\n%s", name, diff)
	}
	if usage := "gpustack " + strings.Join(spec.Command, " ") + " [options]"; !strings.Contains(string(help), usage) ||
		spec.Argument != nil && !regexp.MustCompile(regexp.QuoteMeta(usage)+` \[?`+strings.ToUpper(*spec.Argument)).Match(help) {
		t.Errorf("%s: arguments in\n%s", name, help[:200])
	}
	for n := range maps.Keys(spec.Flags) {
		if _, ok := spec.Options[n]; !ok {
			t.Errorf("%s: no option %s", name, n)
		}
	}
}

// TestPage: the playbook of docs/fleet.md prepares a node, and says that it must be rebooted. The
// program and the root are given to all modules at once.
func TestPage(t *testing.T) {
	r := newRun(t, 0)
	page := hosttest.Read(t, "../../docs/fleet.md")
	_, section, _ := strings.Cut(page, "\n## Modules of Ansible\n")
	_, rest, found := strings.Cut(section, "\n```yaml\n- hosts: gpu_nodes\n")
	text, _, ended := strings.Cut(rest, "```\n")
	if !found || !ended {
		t.Fatal("no playbook")
	}
	playbook := fmt.Sprintf("- hosts: gpu_nodes\n  module_defaults: {group/gpustack.nova.gpustack: {binary: %s, root: %s}}\n%s", gpustack,
		r.newNode(t, "node"), text)
	inventory := r.write(t, "inventory.yml", "gpu_nodes: {hosts: {gpu1: {ansible_connection: local, ansible_python_interpreter: /usr/bin/python3}}}\n", 0o644)
	out, talk, status := r.command(t, "ansible-playbook", "-e", "ansible_become=false", "-i", inventory, r.write(t, "playbook.yml", playbook, 0o644))
	if status != 0 || !strings.Contains(out, `"msg": "gpu1 must be rebooted; 'gpustack undo 1' undoes the change"`) || !strings.Contains(out, "changed=1 ") {
		t.Errorf("exit status %d\n%s%s", status, out, talk)
	}
}

// TestInstall: ansible-galaxy builds and installs the collection without a network, and ansible-doc shows each
// module and role of it in text form, which --json does not prove: a colon in a description makes a mapping.
func TestInstall(t *testing.T) {
	r := newRun(t, 0)
	if out, talk, status := r.command(t, "ansible-galaxy", "collection", "build", collections+"/ansible_collections/gpustack/nova",
		"--output-path", r.dir); status != 0 {
		t.Fatalf("%d\n%s%s", status, out, talk)
	}
	archives, err := filepath.Glob(r.dir + "/gpustack-nova-*.tar.gz")
	if err != nil || len(archives) != 1 {
		t.Fatalf("%q, %v", archives, err)
	}
	installed := r.dir + "/installed"
	r.env = append(r.env, "ANSIBLE_COLLECTIONS_PATH="+installed)
	if out, talk, status := r.command(t, "unshare", "--net", "ansible-galaxy", "collection", "install", archives[0], "--collections-path",
		installed); status != 0 || !strings.Contains(out, "was installed successfully") {
		t.Fatalf("%d\n%s%s", status, out, talk)
	}
	for kind, names := range map[string][]string{"module": moduleNames(t), "role": {"node", "controller"}} {
		args := []string{"--type", kind}
		for _, name := range names {
			args = append(args, "gpustack.nova."+name)
		}
		out, talk, status := r.command(t, "ansible-doc", args...)
		if status != 0 || talk != "" {
			t.Errorf("%s: %d\n%s", kind, status, talk)
		}
		for _, name := range args[2:] {
			hosttest.ContainsIn(t, kind, name, strings.ToLower(out))
		}
	}
}
