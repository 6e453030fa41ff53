package integration

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// upgradeKernel is the one kernel of the machines of TestUpgrade.
const upgradeKernel = "6.1.0-28-amd64"

// An upgradeMachine is a machine that earlier commits have changed, with one command. Before that,
// it was testdata/upgrade/TREE.txtar. On Debian and RHEL, two GPUs are bound by their ids, and one
// of two identical network cards is bound by its address.
type upgradeMachine struct {
	name, tree string
	command    []string
	earlier    map[string][]string // the command of commits that had another name for the same
	rebuilds   bool                // its programs are run too

	// Of a machine that host prepare changes:
	arguments string            // of the kernel, before
	image     string            // in which the generator had put the files
	inImage   map[string]string // its files, by those of the machine
}

var upgradeMachines = []upgradeMachine{
	{
		name: "debian", tree: "debian", command: []string{"host", "prepare", "--device", "10de:11b4", "--device", "0000:04:00.0"}, rebuilds: true,
		arguments: "root=UUID=a ro quiet", image: "boot/initrd.img-" + upgradeKernel, inImage: map[string]string{
			"scripts/init-top/gpustack":       "etc/initramfs-tools/scripts/init-top/gpustack",
			"etc/modprobe.d/zz-gpustack.conf": "etc/modprobe.d/zz-gpustack.conf",
		},
	},
	{
		name: "rhel9", tree: "rhel9", command: []string{"host", "prepare", "--device", "10de:11b4", "--device", "0000:04:00.0"},
		arguments: "root=/dev/mapper/rhel-root ro rhgb quiet", image: "boot/initramfs-" + upgradeKernel + ".img", inImage: map[string]string{
			"usr/lib/dracut/hooks/pre-udev/00-gpustack.sh": "usr/lib/dracut/modules.d/99gpustack/gpustack.sh",
			"etc/modprobe.d/zz-gpustack.conf":              "etc/modprobe.d/zz-gpustack.conf",
		},
	},
	{
		name: "nova", tree: "debian",
		command: []string{"nova", "configure", "--role", "all", "--release", "2023.1", "--alias", "K4200=10de:11b4"},
	},
	{
		name: "containers", tree: "containers",
		command: []string{"container", "prepare", "--device", "0000:84:00.0", "--hca", "0000:0c:00.0", "--static"},
		earlier: map[string][]string{"e7ceed0": {"container", "prepare", "--device", "0000:84:00.0", "--hca", "0000:0c:00.0"}},
	},
	{
		name: "rdma", tree: "rdma",
		command: []string{"rdma", "prepare", "--device", "0000:0c:00.0", "--device", "0000:0d:00.0", "--vfs", "2"},
	},
}

// upgradeMoves are the files that the next run of the same command changes where that of an earlier
// commit has come to its end, by commit and machine.
// Commits up to 37dfc5c leave the same as 72aac5b. Containers are known since e7ceed0, whose specs
// are all static and whose nodes nothing makes at boot. After 47ed7fd the boot unit changed. After
// f6c0233 only comments changed.
var upgradeMoves = map[string]map[string][]string{
	"aa95e30": {"debian": bootHookMoves["debian"], "rhel9": bootHookMoves["rhel9"], "nova": {}},
	"eb4dd60": {"debian": bootHookMoves["debian"], "rhel9": bootHookMoves["rhel9"], "nova": {}},
	"72aac5b": {"debian": {}, "rhel9": {}, "nova": {}},
	"47ed7fd": {
		"debian": {}, "rhel9": {}, "nova": {}, "containers": {"/etc/systemd/system/gpustack-boot.service"},
		"rdma": {"/etc/systemd/system/gpustack-boot.service", "/var/lib/gpustack/rdma.json"},
	},
	"f6c0233": {"debian": {}, "rhel9": {}, "nova": {}, "containers": {}, "rdma": {}},
	"e7ceed0": {"containers": {"/etc/systemd/system/gpustack-boot.service", "/etc/systemd/system/multi-user.target.d/gpustack-boot.conf"}},
}

// bootHookMoves is what changed between eb4dd60 and 72aac5b: the blacklist moved from /etc to /run,
// where the boot hook writes it, and the hook does nothing in a crash kernel.
var bootHookMoves = map[string][]string{
	"debian": {
		"/etc/modprobe.d/zz-gpustack.conf", "/etc/initramfs-tools/hooks/gpustack", "/etc/initramfs-tools/scripts/init-top/gpustack",
		"/var/lib/gpustack/contract.json",
	},
	"rhel9": {
		"/etc/modprobe.d/zz-gpustack.conf", "/usr/lib/dracut/modules.d/99gpustack/module-setup.sh", "/usr/lib/dracut/modules.d/99gpustack/gpustack.sh",
		"/var/lib/gpustack/contract.json",
	},
}

func upgradeFile(commit, machine string) string {
	return filepath.Join("testdata/upgrade", commit, machine+".txtar")
}

// TestUpgrade: every state in which an earlier commit left a machine is understood. host check
// returns the verdict of that commit. An entry that is done is undone byte for byte. An entry that
// was interrupted is recovered by the next run, both by undo and by the same command. Where the
// command was complete, running it again changes only upgradeMoves.
//
// A commit that changes the format of the contract, the journal or the files adds the states that
// its predecessor leaves (recordUpgrade).
func TestUpgrade(t *testing.T) {
	if commit, binary, ok := strings.Cut(*record, "="); ok {
		recordUpgrade(t, commit, binary)
	}
	for _, m := range upgradeMachines {
		done := configured(t, m.prepared(gpustack)(t))
		for _, commit := range slices.Sorted(maps.Keys(upgradeMoves)) {
			if upgradeMoves[commit][m.name] == nil {
				continue
			}
			u := upgrade{upgradeMachine: m, commit: commit, states: map[string]state{}, done: done}
			for _, s := range readStates(t, upgradeFile(commit, m.name)) {
				u.states[s.name] = s
				t.Run(commit+" "+m.name+" "+s.name, func(t *testing.T) {
					t.Parallel()
					u.test(t, s)
				})
			}
			t.Run(commit+" "+m.name, func(t *testing.T) {
				t.Parallel()
				u.next(t)
			})
		}
	}
}

// An upgrade is a machine that one earlier commit has changed.
type upgrade struct {
	upgradeMachine
	commit string
	states map[string]state  // that this commit left, by name
	done   map[string]string // the files that the command of this commit leads to
}

// test tests one state.
func (u upgrade) test(t *testing.T, s state) {
	if s.verdict != "" {
		var report struct{ Verdict string }
		out, talk, _ := try(t, exec.Command(gpustack, u.command[0], "check", "--root", u.left(t, s), "-o", "json"))
		if err := json.Unmarshal([]byte(out), &report); err != nil || report.Verdict != s.verdict {
			t.Errorf("check: %q, want %q: %v\n%s", report.Verdict, s.verdict, err, talk)
		}
	}
	first := configured(t, u.lay(t))
	back := func(t *testing.T, root string) {
		t.Helper()
		if diff := cmp.Diff(first, configured(t, root)); diff != "" {
			t.Errorf("undone (-before +after):\n%s", diff)
		}
	}
	var before []string // statuses in the history once the entry is recovered
	switch s.status() {
	case "begun", "applying":
		before = []string{}
	case "rebuilding", "unbuilding":
		u.testPrograms(t, s)
		return
	case "done":
		before = []string{"done"}
	case "undoing", "undone":
		before = []string{"undone"}
	default:
		t.Fatalf("no test for status %s", s.status())
	}

	// The way back.
	root := u.left(t, s)
	_, talk, status := u.run(t, root, "undo")
	if nothing := s.status() == "begun" || s.status() == "undone"; nothing != (status != 0) || nothing && !strings.Contains(talk, "nothing to undo") {
		t.Errorf("undo: exit status %d: %s", status, talk)
	}
	back(t, root)
	undone := before
	if s.status() == "done" {
		undone = []string{"undone"}
	}
	if diff := cmp.Diff(undone, statuses(t, root)); diff != "" {
		t.Errorf("history after undo (-want +got):\n%s", diff)
	}

	// The way on.
	root = u.left(t, s)
	out, talk, status := u.run(t, root, u.command...)
	if strings.Contains(out+talk, "hunter2") {
		t.Errorf("the output has a secret: %s%s", out, talk)
	}
	if status != 0 {
		t.Fatalf("%s: exit status %d: %s", u.command, status, talk)
	}
	if recovers := s.status() == "applying" || s.status() == "undoing"; strings.Contains(talk, "gpustack: entry 1 was ") != recovers {
		t.Errorf("the output says that entry 1 is recovered: %t, want %t: %s", !recovers, recovers, talk)
	}
	want := u.done
	if s.status() == "done" {
		left := configured(t, u.left(t, s))
		want = keepsAliases(keepsWording(want, left), left)
	}
	if diff := cmp.Diff(want, configured(t, root)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", u.command, diff)
	}
	moves := len(upgradeMoves[u.commit][u.name]) > 0
	if s.status() != "done" || moves {
		before = append([]string{"done"}, before...)
	}
	if diff := cmp.Diff(before, statuses(t, root)); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
	undo := func() {
		t.Helper()
		if _, talk, status := u.run(t, root, "undo"); status != 0 {
			t.Errorf("undo: exit status %d: %s", status, talk)
		}
	}
	undo()
	if s.status() == "done" && moves {
		if diff := cmp.Diff(configured(t, u.left(t, s)), configured(t, root)); diff != "" {
			t.Errorf("the next change undone (-before +after):\n%s", diff)
		}
		undo()
	}
	back(t, root)
}

// keepsWording returns the files that a command leads to where left are those of an earlier commit:
// what differs in its comments alone remains, and records have the hashes of what remains.
func keepsWording(done, left map[string]string) map[string]string {
	want := maps.Clone(done)
	var hashes []string
	for name, text := range want {
		mode, content, _ := strings.Cut(text, "\n")
		leftMode, leftContent, _ := strings.Cut(left[name], "\n")
		if mode == leftMode && withoutComments(content) == withoutComments(leftContent) {
			want[name] = left[name]
			hashes = append(hashes, hashOf(content), hashOf(leftContent))
		}
	}
	for _, record := range []string{"/var/lib/gpustack/contract.json", "/var/lib/gpustack/rdma.json"} {
		if want[record] != "" {
			want[record] = strings.NewReplacer(hashes...).Replace(want[record])
		}
	}
	return want
}

// keepsAliases returns the files that a command leads to where left are those of an earlier commit,
// which gave aliases no device_type: one in use that selects the same devices remains.
func keepsAliases(done, left map[string]string) map[string]string {
	const file, typed = "/etc/nova/nova.conf", `, "device_type": "type-PCI"}`
	want := maps.Clone(done)
	if conf, ok := want[file]; ok && !strings.Contains(left[file], typed) {
		want[file] = strings.Replace(conf, typed, "}", 1)
	}
	return want
}

// withoutComments returns a text without the lines that are comments.
func withoutComments(text string) string {
	return regexp.MustCompile(`(?m)^[ \t]*#([^!].*)?$\n?`).ReplaceAllString(text, "")
}

// hashOf returns the hash of a text, in the form of records.
func hashOf(text string) string {
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text)))
}

// testPrograms tests the state of a machine whose programs were being run.
func (u upgrade) testPrograms(t *testing.T, s state) {
	first := configured(t, u.layPrograms(t))
	for _, command := range [][]string{{"undo"}, append(slices.Clone(u.command), "--rebuild")} {
		root := u.layPrograms(t)
		s.lay(t, root)
		run := func(command ...string) (talk string, status int) {
			_, talk, status = try(t, mounted(root, slices.Concat([]string{gpustack}, command, []string{"--root", root, "--yes"})...))
			return talk, status
		}
		talk, status := run(command...)
		if status != 0 || !strings.Contains(talk, "gpustack: entry 1 ") {
			t.Errorf("%s: exit status %d: %s", command, status, talk)
		}
		arguments := " " + strings.TrimPrefix(u.arguments, "root=UUID=a ro ")
		if command[0] != "undo" {
			if got, want := menu(t, root), arguments+" intel_iommu=on iommu=pt"; got != want {
				t.Errorf("%s: menu %q, want %q", command, got, want)
			}
			for slices.Contains(statuses(t, root), "done") {
				if talk, status := run("undo"); status != 0 {
					t.Errorf("undo: exit status %d: %s", status, talk)
				}
			}
		}
		if got := menu(t, root); got != arguments {
			t.Errorf("%s, in the end: menu %q, want %q", command, got, arguments)
		}
		if diff := cmp.Diff(first, configured(t, root)); diff != "" {
			t.Errorf("%s, in the end (-before +after):\n%s", command, diff)
		}
	}
}

// next tests the plan of the next run, on a machine that was prepared and booted, or configured.
func (u upgrade) next(t *testing.T) {
	root := u.left(t, u.states["done"])
	if u.image != "" {
		u.boot(t, root)
		var report struct{ Verdict string }
		out, talk, status := try(t, exec.Command(gpustack, "host", "check", "--root", root, "-o", "json"))
		if err := json.Unmarshal([]byte(out), &report); err != nil || report.Verdict != "ready" || status != 0 {
			t.Errorf("check: exit status %d, %v\n%s%s", status, err, out, talk)
		}
	}
	want := append([]string{}, upgradeMoves[u.commit][u.name]...)
	exit := 2
	if len(want) == 0 {
		exit = 0
	}
	command := u.command
	if command[1] == "prepare" {
		command = command[:2] // what is recorded
	}
	var plan struct {
		Changes []struct{ File string }
	}
	out, talk, status := try(t, exec.Command(gpustack, slices.Concat(command, []string{"--root", root, "--dry-run", "-o", "json"})...))
	if err := json.Unmarshal([]byte(out), &plan); err != nil || status != exit {
		t.Fatalf("exit status %d, want %d, %v\n%s%s", status, exit, err, out, talk)
	}
	moves := []string{}
	for _, c := range plan.Changes {
		moves = append(moves, c.File)
	}
	if diff := cmp.Diff(want, moves); diff != "" {
		t.Errorf("moves (-want +got):\n%s", diff)
	}
}

// TestDowngrade: a machine that a later release has changed is checked and undone, though journal
// and record have fields that this release does not know.
func TestDowngrade(t *testing.T) {
	for _, m := range upgradeMachines {
		t.Run(m.name, func(t *testing.T) {
			root := m.prepared(gpustack)(t)
			contract, journal := filepath.Join(root, "var/lib/gpustack/contract.json"), filepath.Join(root, "var/lib/gpustack/journal/0001.json")
			entry := read(t, journal)
			if m.image != "" {
				was := read(t, contract)
				if err := os.WriteFile(contract, []byte(extended(t, was)), 0o600); err != nil {
					t.Fatal(err)
				}
				entry = strings.ReplaceAll(entry, hashOf(was), hashOf(read(t, contract)))
				m.boot(t, root)
				var report struct{ Verdict string }
				out, talk, status := try(t, exec.Command(gpustack, "host", "check", "--root", root, "-o", "json"))
				if err := json.Unmarshal([]byte(out), &report); err != nil || report.Verdict != "ready" || status != 0 {
					t.Errorf("check: exit status %d, %v\n%s%s", status, err, out, talk)
				}
			}
			if err := os.WriteFile(journal, []byte(extended(t, entry)), 0o600); err != nil {
				t.Fatal(err)
			}
			run(t, gpustack, "undo", "--root", root, "--yes")
			if diff := cmp.Diff(configured(t, m.lay(t)), configured(t, root)); diff != "" {
				t.Errorf("undone (-before +after):\n%s", diff)
			}
		})
	}
}

// extended adds a field to each object of a JSON text.
func extended(t *testing.T, text string) string {
	t.Helper()
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	var extend func(value any)
	extend = func(value any) {
		switch value := value.(type) {
		case map[string]any:
			for _, v := range value {
				extend(v)
			}
			value["of_a_later_release"] = map[string]any{"fields": []int{1, 2}}
		case []any:
			for _, v := range value {
				extend(v)
			}
		}
	}
	extend(value)
	later, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(later)
}

// run runs gpustack on a root.
func (u upgrade) run(t *testing.T, root string, command ...string) (out, talk string, status int) {
	t.Helper()
	return try(t, exec.Command(gpustack, slices.Concat(command, []string{"--root", root, "--yes"})...))
}

// left lays out the machine as a state says.
func (u upgrade) left(t *testing.T, s state) (root string) {
	t.Helper()
	root = u.lay(t)
	s.lay(t, root)
	return root
}

// statuses returns those of all entries of the journal, the oldest first.
func statuses(t *testing.T, root string) []string {
	t.Helper()
	var history struct{ Entries []struct{ Status string } }
	if err := json.Unmarshal([]byte(run(t, gpustack, "history", "--root", root, "-o", "json")), &history); err != nil {
		t.Fatal(err)
	}
	all := []string{}
	for _, e := range history.Entries {
		all = append(all, e.Status)
	}
	slices.Sort(all) // done before undone
	return all
}

// lay lays out the machine as it was before.
func (m upgradeMachine) lay(t testing.TB) (root string) {
	t.Helper()
	root = unpack(t, filepath.Join("testdata/upgrade", m.tree+".txtar"))
	if m.name == "nova" {
		conf := filepath.Join(root, "etc/nova/nova.conf")
		if err := errors.Join(os.MkdirAll(filepath.Dir(conf), 0o755), os.WriteFile(conf, []byte(read(t, "testdata/upgrade/nova.conf")), 0o640), os.Chmod(conf, 0o640)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// layPrograms lays out the machine as it was before, with programs that can be run.
func (m upgradeMachine) layPrograms(t testing.TB) (root string) {
	t.Helper()
	root = m.lay(t)
	addPrograms(t, root, upgradeKernel)
	program := filepath.Join(root, "usr/sbin/update-grub")
	text := strings.Replace(read(t, program), "root=UUID=0e8a5f6c-3d4f-4d5e-9a51-1c2f6b7f9a10", "root=UUID=a", 1)
	if err := os.WriteFile(program, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return root
}

// prepared returns a function that lays out the machine as a binary leaves it that has run the
// command.
func (m upgradeMachine) prepared(binary string) func(testing.TB) (root string) {
	return func(t testing.TB) string {
		t.Helper()
		root := m.lay(t)
		run(t, binary, slices.Concat(m.command, []string{"--root", root, "--yes"})...)
		return root
	}
}

// boot changes the tree to that of the machine after its programs have run and it was booted.
func (m upgradeMachine) boot(t *testing.T, root string) {
	t.Helper()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("proc/cmdline", m.arguments+" intel_iommu=on iommu=pt\n")
	write("proc/stat", "btime 1800000000\n")
	if menu := filepath.Join(root, "boot/grub/grub.cfg"); exists(menu) { // which update-grub made
		write("boot/grub/grub.cfg", strings.Replace(read(t, menu), "quiet", "quiet intel_iommu=on iommu=pt", 1))
	}
	for _, function := range []string{"01:00.0", "01:00.1", "02:00.0", "02:00.1", "04:00.0"} {
		link := filepath.Join(root, "sys/bus/pci/devices/0000:"+function, "driver")
		if err := os.Remove(link); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("../../../../bus/pci/drivers/vfio-pci", link); err != nil {
			t.Fatal(err)
		}
	}
	m.compose(t, root)
}

// compose makes the initramfs that the generator would make, as far as gpustack reads it.
func (m upgradeMachine) compose(t *testing.T, root string) {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{
		"init": "", "usr/lib/systemd/systemd": "", "etc/systemd/system/initrd.target.wants/dracut-pre-udev.service": "",
		"scripts/init-top/ORDER": "/scripts/init-top/gpustack \"$@\"\n/scripts/init-top/udev \"$@\"\n",
	}
	for name, from := range m.inImage {
		files[name] = read(t, filepath.Join(root, from))
	}
	for _, module := range []string{"vfio", "vfio_iommu_type1", "vfio-pci"} {
		files["usr/lib/modules/"+upgradeKernel+"/kernel/"+module+".ko"] = ""
	}
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("sh", "-ec", `find . | cpio --quiet -o -H newc >"$0"`, filepath.Join(root, m.image))
	cmd.Dir = dir
	if _, talk, status := try(t, cmd); status != 0 {
		t.Fatalf("cpio: exit status %d: %s", status, talk)
	}
}
