package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/cmd/gpustack/args"
	"gpustack/host"
	"gpustack/host/hosttest"
	"gpustack/nova/cloud/cloudtest"
)

// mistakesFile is the page that TestMistakes writes and compares.
const mistakesFile = "testdata/mistakes.md"

// A mistake is a command line as a user may type it, in a folder with the trees node and hgx (two
// examples), empty, and files.
type mistake struct {
	command string
	env     []string // beside an empty home
	cloud   bool     // a cloud is there, with credentials
	user    bool     // the user is not root
}

// mistakes are the rows of the page, by heading.
var mistakes = []struct {
	heading string
	rows    []mistake
}{
	{"Names of commands", []mistake{
		{command: "version"}, {command: "--json"}, {command: "-n"}, {command: "host list --root node"}, {command: "scan --root node"}, {command: "check --root node"},
		{command: "ls"}, {command: "hosts scan --root node"}, {command: "host scans --root node"}, {command: "flavors list", cloud: true},
		{command: "host undo --root node"}, {command: "rollback --root node"}, {command: "host"}, {command: "host status --root node"},
		{command: "host unbind --root node"}, {command: "image list"}, {command: "repair --root node"}, {command: "prepare host --root node"},
		{command: "HOST SCAN --root node"}, {command: "flavor DELETE GPU.Old"}, {command: "HOST UNPACK Node.txtar Tree"},
	}},
	{"Names of flags", []mistake{
		{command: "host scan --json --root node"}, {command: "host scan -f json --root node"}, {command: "host scan --format yaml --root node"},
		{command: "host scan -o csv --root node"}, {command: "host prepare --gpus 84:00.0 --plan --root node"}, {command: "host prepare --dryrun --root node"},
		{command: "host prepare --rooot node"}, {command: "host prepare --no --yes --root node"}, {command: "host scan —root node"},
		{command: "host scan --ROOT node"}, {command: "host prepare --force --root node"}, {command: "host prepare --all --root node"},
		{command: "nova configure --place --root node"},
		{command: "flavor test gpu.old --image debian --one-time"}, {command: "image set debian --for gpu"},
		{command: "flavor test gpu.old --image debian --driver"}, {command: "flavor test gpu.old --image debian --nvidia-smi"},
		{command: "flavor test gpu.old --image debian --run-wait 1m"}, {command: "flavor test gpu.old --image debian --keep"},
		{command: "container check --root node --image node"}, {command: "rdma test --count 5"},
		{command: "rdma test --timeout 1m --listen"}, {command: "rdma test --peer"}, {command: "host bind --root node --timeout 5"},
		{command: "flavor create K4200:1 --vcpus many"},
		{command: "flavor create K4200:1 --ram 16Q"}, {command: "host prepare --root node --yes=maybe"},
	}},
	{"Order and number of arguments", []mistake{
		{command: "host scan node"}, {command: "host check hgx"}, {command: "host prepare 84:00.0 --root node"}, {command: "host scan 10de:11b4 --root node"},
		{command: "nova configure gpu1.json --root node"}, {command: "nova check nova.conf"}, {command: "image check debian"}, {command: "host unpack node.txtar"},
		{command: "host snapshot --root node"}, {command: "flavor create K4200"}, {command: "undo last --root node"},
		{command: "completion tcsh"},
	}},
	{"Devices", []mistake{
		{command: "host prepare --root node --device 84:00"}, {command: "host prepare --root node --device 84:00.0,88:00.0"},
		{command: "host prepare --root node --device K4200"},
		{command: "host scan --root hgx --device A100"}, {command: "host prepare --root node --device 11de:11b4"},
		{command: "host prepare --root node --device 84:00.7"},
		{command: "host prepare --root node --device 99:00.0"}, {command: "host prepare --root node --device nvidia0"},
		{command: "host prepare --root node --remove 88:00.0"},
		{command: "host scan --root node --vendor nvidia"}, {command: "host scan --root node --class VGA"},
		{command: "container prepare --root hgx --device 10de:20b2"},
		{command: "rdma prepare --root hgx --device c3:00 --vfs 2"}, {command: "host prepare --root node --allow 10de:11b4"},
		{command: "host prepare --root hgx --allow A100"},
		{command: "rdma prepare --root node --device 84:00.0 --vfs 2"},
	}},
	{"Files and roots", []mistake{
		{command: "host scan --root nowhere"}, {command: "host prepare --root node.txtar --yes"}, {command: "host scan --root empty"},
		{command: "nova configure --root node --inventory gpu1"},
		{command: "nova configure --root node --inventory empty"}, {command: "nova configure --root node --inventory nova.conf"},
		{command: "nova check --conf gpu2.conf"},
		{command: "nova check --conf empty"}, {command: "nova configure --root node --conf nova.conf --alias K4200=10de:11b4"},
		{command: "repair-migration --root node --guests gpu1.json"},
		{command: "host unpack gpu9.txtar tree"}, {command: "host unpack node.txtar node"}, {command: "host unpack gpu1.json tree"},
		{command: "host snapshot --root node node.txtar"}, {command: "host snapshot --root node gpu1.zip"},
		{command: "container check --root node --image-dir nginx"},
		{command: "host scan --root node --pci-ids names"}, {command: "repair-migration --root empty"},
	}},
	{"Nova's releases, roles and aliases", []mistake{
		{command: "nova check --root node --release essex"}, {command: "nova check --root node --release 2019.2"},
		{command: "nova configure --root node --release queens"}, {command: "nova configure --root node --alias K4200"},
		{command: "nova configure --root node --role gpu --alias K4200=10de:11b4"},
		{command: "nova configure --root node --alias K4200=84:00.0"},
	}},
	{"The journal", []mistake{
		{command: "undo 7 --root node"}, {command: "history 7 --root node"}, {command: "host prepare --root node"}, {command: "host bind --root node"},
		{command: "rdma prepare --root node"}, {command: "rdma check --root node"},
	}},
	{"Clouds", []mistake{
		{command: "flavor list"}, {command: "flavor list --os-cloud lab"}, {command: "flavor list --os-cloud lab --os-region-name RegionOne"},
		{command: "flavor list", env: []string{"OS_CLOUD=lab", "OS_CLIENT_CONFIG_FILE=cloud.yml"}},
		{command: "flavor list --os-cloud prod", env: []string{"OS_CLIENT_CONFIG_FILE=clouds.yaml"}},
		{command: "flavor list", cloud: true, env: []string{"OS_PASSWORD=wrong"}},
		{command: "flavor list", cloud: true, env: []string{"OS_PASSWORD="}}, {command: "flavor delete gpu.none", cloud: true},
		{command: "flavor delete m1.small", cloud: true},
		{command: "flavor test gpu.old", cloud: true}, {command: "nova explain", cloud: true}, {command: "nova explain --flavor gpu.none", cloud: true},
		{command: "image set none --profile gpu", cloud: true}, {command: "image set debian --profile tv", cloud: true},
		{command: "image check debian --flavor gpu.none", cloud: true},
		{command: "repair-migration --root node --yes"}, {command: "repair-migration --root node --max 5 --dry-run"},
		{command: "repair-migration --root node --database postgresql://nova@db/nova"},
	}},
	{"Permissions, as a user who is not root", []mistake{
		{command: "host check --root closed", user: true}, {command: "host prepare --root closed --dry-run", user: true},
		{command: "history --root closed", user: true},
		{command: "undo --root closed", user: true}, {command: "nova check --root closed", user: true}, {command: "host prepare --root fixed --yes", user: true},
		{command: "host snapshot --root closed closed.txtar", user: true},
	}},
}

// TestMistakes: each mistake is an error with a hint. Hints that are commands are command lines
// without errors, and lead further: to success, or to another error. testdata/mistakes.md has what
// is printed; -update writes it.
func TestMistakes(t *testing.T) {
	t.Parallel()
	dir := mistakesDir(t)
	var page strings.Builder
	page.WriteString(mistakesHead)
	rows := 0
	for _, group := range mistakes {
		fmt.Fprintf(&page, "\n## %s\n\n| command | error | hint | exit |\n|---|---|---|---|\n", group.heading)
		for _, m := range group.rows {
			rows++
			said, status, hide := m.run(t, dir, strings.Fields(m.command))
			faults, hints := parts(said, "error"), parts(said, "hint")
			switch {
			case status != 1 || faults == nil:
				t.Errorf("gpustack %s: exit status %d, expected an error:\n%s", m.command, status, said)
			case hints == nil:
				t.Errorf("gpustack %s: no hint:\n%s", m.command, said)
			}
			for _, hint := range hints {
				for _, word := range strings.Fields(hint) {
					if strings.Contains(hint, "did you mean") && never[word] && !slices.Contains(strings.Fields(m.command), word) {
						t.Errorf("gpustack %s: the hint does more than was asked for: %s", m.command, hint)
					}
				}
				for _, command := range commandsOf(hint) {
					m.lead(t, dir, command, faults)
				}
			}
			env := ""
			if m.env != nil {
				env = strings.Join(m.env, " ") + " "
			}
			cell := func(lines []string) string {
				return strings.ReplaceAll(hide(strings.Join(lines, "<br>")), "|", `\|`)
			}
			fmt.Fprintf(&page, "| `%sgpustack %s` | %s | %s | %d |\n", env, m.command, cell(faults), cell(hints), status)
		}
	}
	if rows < 60 {
		t.Errorf("only %d mistakes", rows)
	}
	if *update {
		hosttest.NoError(t, os.WriteFile(mistakesFile, []byte(page.String()), 0o644))
	}
	text := hosttest.Read(t, mistakesFile)
	hosttest.EqualIn(t, "testdata/mistakes.md (-file +printed), -update writes it", text, page.String())
}

const mistakesHead = `# Mistakes, and what gpustack answers

Each row is a command line as it is typed, what is printed after ` + "`gpustack: error:`" + ` and ` + "`gpustack: hint:`" + `, and the exit
status. The folder has node and hgx, which are examples that were unpacked, an empty folder, a snapshot node.txtar, an
inventory gpu1.json, clouds.yaml with a cloud lab that does not answer, and nova.conf; for users who are not root also
closed, which they may not read, and fixed, which they may not write. TestMistakes runs every row, and the commands in the
hints that have --root.
`

// mistakesDir makes the folder in which the mistakes are made.
func mistakesDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, from := range map[string]string{"node": "talk-2xk4200", "hgx": "hgx-8xa100"} {
		at := filepath.Join(dir, name)
		hosttest.NoError(t, os.Mkdir(at, 0o755))
		unpack(t, at, example(t, from), "")
	}
	if _, err := stateHome(dir); err != nil { // users other than root may look into the folder
		t.Fatal(err)
	}
	// What is closed may not be read by a user, and what is fixed may not be written.
	for name, closed := range map[string][]string{"closed": {"var/lib/gpustack", "etc/nova", "boot"}, "fixed": {"etc", "var/lib"}} {
		at := filepath.Join(dir, name)
		mode := map[string]os.FileMode{"closed": 0, "fixed": 0o555}[name]
		unpack(t, at, example(t, "talk-2xk4200"), "")
		for _, folder := range closed {
			folder = filepath.Join(at, folder)
			hosttest.NoError(t, errors.Join(os.MkdirAll(folder, 0o755), os.Chmod(folder, mode)))
			t.Cleanup(func() { _ = os.Chmod(folder, 0o755) }) // the removal of the folder says so
		}
	}
	inventory := runProgram(t, dir, nil, "host", "scan", "--root", "node", "-o", "json").stdout
	hosttest.NoError(t, errors.Join(
		os.Mkdir(filepath.Join(dir, "empty"), 0o755),
		os.Mkdir(filepath.Join(dir, "home"), 0o755),
		os.WriteFile(filepath.Join(dir, "gpu1.json"), []byte(inventory), 0o644),
		os.WriteFile(filepath.Join(dir, "node.txtar"), []byte(example(t, "talk-2xk4200")), 0o644),
		os.WriteFile(filepath.Join(dir, "clouds.yaml"), []byte("clouds: {lab: {auth: {auth_url: http://127.0.0.1:1/v3, username: admin, password: "+
			"secret, project_name: admin}}}\n"), 0o644),
		os.WriteFile(filepath.Join(dir, "nova.conf"), []byte("[DEFAULT]\n"), 0o644),
	))
	return dir
}

// run runs a command line. hide returns a text without what differs between runs.
func (m mistake) run(t *testing.T, dir string, argv []string) (stderr string, status int, hide func(string) string) {
	t.Helper()
	env := []string{"HOME=" + filepath.Join(dir, "home"), "XDG_CONFIG_HOME=" + filepath.Join(dir, "home"), "LANG=C.UTF-8"}
	hidden := []string{dir, "DIR"}
	if m.cloud {
		cloud := cloudtest.New(96)
		defer cloud.Close()
		cloud.Add("1", "m1.small", 1, 2048, 20, true, map[string]string{})
		cloud.Add("2", "gpu.old", 4, 8192, 10, true, map[string]string{"pci_passthrough:alias": "A100:8"})
		cloud.Images = []map[string]any{{"id": "10", "name": "debian", "status": "active", "visibility": "public", "min_disk": 0, "min_ram": 0, "size": 1 << 29}}
		for name, value := range cloud.Env() {
			env = append(env, name+"="+value)
		}
		env = append(env, unprivilegedEnv(t)...) // root would use the journal of the machine
		hidden = append(hidden, cloud.URL, "http://cloud")
	}
	if m.user {
		env = append(env, "UNPRIVILEGED=1")
	}
	o := runProgram(t, dir, append(env, m.env...), argv...)
	return o.stderr, o.status, strings.NewReplacer(hidden...).Replace
}

// parts returns the lines of a kind that were printed.
func parts(said, kind string) (lines []string) {
	for line := range strings.Lines(said) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "gpustack: "+kind+": "); ok {
			lines = append(lines, text)
		}
	}
	return lines
}

// inHint matches a command in a hint: what an operator copies.
var inHint = host.LazyRegexp(`\bgpustack ((?:[^;'()\s]|'[^']*')+(?: (?:[^;'()\s]|'[^']*')+)*)`)

// quoted matches a command in quotes, as in a question.
var quoted = host.LazyRegexp(`'gpustack ([a-z -]*)'`)

// shellWord matches a word of a command, which may be quoted.
var shellWord = host.LazyRegexp(`(?:[^'\s]|'[^']*')+`)

// prose are words that end a command in a hint, after it.
var prose = []string{"as", "lists", "shows", "with", "makes", "on", "and", "or", "reads", "prints", "for", "writes"}

// commandsOf returns the command lines in a hint, without the program's name.
func commandsOf(hint string) (commands [][]string) {
	for _, m := range quoted().FindAllStringSubmatch(hint, -1) {
		commands = append(commands, strings.Fields(m[1]))
	}
	hint = quoted().ReplaceAllString(hint, "")
	for _, m := range inHint().FindAllStringSubmatch(hint, -1) {
		var words []string
		for _, word := range shellWord().FindAllString(m[1], -1) {
			if slices.Contains(prose, word) {
				break
			}
			ends := strings.HasSuffix(word, ",") || strings.HasSuffix(word, ":")
			words = append(words, strings.ReplaceAll(strings.Trim(word, ",:"), "'", ""))
			if ends {
				break
			}
		}
		if words != nil {
			commands = append(commands, words)
		}
	}
	return commands
}

// placeholder matches a word that the operator has to replace.
var placeholder = host.LazyRegexp(`^[A-Z]+(=.*)?$|^>$|\||^\[`)

// never are flags that no correction of a command line adds.
var never = map[string]bool{"--apply": true, "--yes": true, "--none": true, "--live": true, "--allow": true, "--placement": true,
	"--computes-report": true, "--one-time-use-ok": true, "--take-over": true, "--claim": true, "--stop-services": true, "--insecure": true, "--host-is-off": true}

// badLine matches an error of a command line alone.
var badLine = host.LazyRegexp(`^unknown (command|flag)|cannot be combined|requires --|missing value|unexpected argument`)

// lead checks a command of a hint: its words have no error, and, run where the mistake was made, it
// does not have the same errors.
func (m mistake) lead(t *testing.T, dir string, command, faults []string) {
	t.Helper()
	line := "gpustack " + strings.Join(command, " ")
	a := newApp(testUI(t), append([]string{"gpustack"}, command...))
	if a.line.Unknown || a.line.Command == nil && !slices.Contains(command, "--help") && !slices.Contains(command, "--version") {
		t.Errorf("gpustack %s: the hint names no command: %s", m.command, line)
		return
	}
	for word := range slices.Values(command) {
		name, _, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
		if strings.HasPrefix(word, "-") && name != "help" && name != "version" && (a.line.Command == nil || args.FindFlag(a.line.Command.Flags, name) == nil) {
			t.Errorf("gpustack %s: the hint has an unknown flag: %s", m.command, line)
		}
	}
	rooted := slices.Contains(command, "--root") && !slices.Contains(command, "--yes")
	if slices.ContainsFunc(command, placeholder().MatchString) || !rooted && !slices.Contains(command, "--help") && !slices.Contains(command, "--version") {
		return
	}
	said, status, _ := m.run(t, dir, command)
	again := parts(said, "error")
	if status == 1 && cmp.Equal(again, faults) {
		t.Errorf("gpustack %s: the hint leads to the same error: %s:\n%s", m.command, line, said)
	}
	for _, fault := range again {
		if badLine().MatchString(fault) {
			t.Errorf("gpustack %s: the hint is no command line: %s: %s", m.command, line, fault)
		}
	}
}
