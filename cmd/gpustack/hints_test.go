package main

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpustack/cmd/gpustack/args"
	"gpustack/host"
	"gpustack/host/hosttest"
	"gpustack/host/snapshot"
)

// unpack lays out an example in dir, and what a test adds: an archive in txtar's form.
func unpack(t *testing.T, dir, example, more string) {
	t.Helper()
	for _, text := range []string{example, more} {
		if text == "" {
			continue
		}
		tree, err := snapshot.Read(strings.NewReader(text), snapshot.Txtar)
		hosttest.NoError(t, err)
		part := dir
		if there, err := os.ReadDir(dir); err == nil && len(there) > 0 { // a tree is laid out in an empty folder alone
			part = filepath.Join(t.TempDir(), "part")
		}
		hosttest.NoError(t, tree.Unpack(part))
		if part == dir {
			continue
		}
		if out, err := exec.Command("cp", "-a", part+"/.", dir).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
}

func example(t *testing.T, name string) string {
	t.Helper()
	return hosttest.Read(t, "../../examples/"+name+".txtar")
}

// TestHintsLeadSomewhere plays the hints of each kind of refusal: each command is accepted.
func TestHintsLeadSomewhere(t *testing.T) {
	talk, hgx, twins := example(t, "talk-2xk4200"), example(t, "hgx-8xa100"), example(t, "workstation-twins")
	off := example(t, "talk-iommu-off")
	const first, second = "sys/devices/pci0000:80/0000:80:02.0/0000:84:00.0", "sys/devices/pci0000:80/0000:80:03.0/0000:88:00.0"
	file := func(name, text string) string { return "-- " + name + " --\n" + text + "\n" }
	other := func(function string) string {
		return file(function+"/modalias", "pci:v000010DEd00001BB1sv0000103Csd00001096bc03sc00i00")
	}
	inUse := "mkdir proc/7/fd\nmkdir sys/" + strings.TrimPrefix(first, "sys/") + "/drm/card3\n" +
		"symlink proc/7/fd/3 -> /dev/dri/card3\nsymlink sys/class/drm/card3 -> ../../" + strings.TrimPrefix(first, "sys/") + "/drm/card3\n" +
		file("proc/7/comm", "python3") + file("proc/7/stat", "7 (x) S 0 1 1 0 -1 4194560 1 1 1 1 1 1 1 1 20 0 1 0 1 1 1 1")
	b200 := func(vpd string) string {
		text, links := "", "base64 sys/bus/pci/devices/0000:41:00.0/vpd\n"
		for address, ids := range map[string][3]string{"0000:31:00.0": {"0x030200", "0x10de", "0x2901"}, "0000:41:00.0": {"0x020700", "0x15b3", "0x1021"}} {
			at := "sys/bus/pci/devices/" + address
			links += "symlink " + at + "/iommu_group -> ../../../../kernel/iommu_groups/9" + address[5:6] + "\n"
			text += file(at+"/class", ids[0]) + file(at+"/vendor", ids[1]) + file(at+"/device", ids[2])
		}
		return links + text + file("sys/bus/pci/devices/0000:41:00.0/vpd", base64.StdEncoding.EncodeToString([]byte(vpd)))
	}
	const board = "host prepare --nvswitch guest --allow 0000:c3:00.0 --allow 0000:c4:00.0"
	for _, test := range []struct {
		name, tree, more string
		before           string // run first, to success
		bend             string // written after that
		command          string
		refusal          string // expected at first
		hints            int    // at first
	}{
		{name: "the console", tree: twins, command: "host prepare", refusal: "0000:17:00.0: is the console", hints: 2},
		{name: "a named console", tree: twins, command: "host prepare --device 0000:17:00.0", refusal: "is the console", hints: 1},
		{name: "the root disk beside a GPU", tree: talk, command: "host prepare --device 0000:00:1f.2 --device 0000:84:00.0", refusal: "carries /dev/sda1, mounted at /", hints: 1},
		{name: "the root disk alone", tree: talk, command: "host prepare --device 0000:00:1f.2", refusal: "carries /dev/sda1, mounted at /", hints: 1},
		{name: "the network card", tree: talk, command: "host prepare --device 0000:01:00.0 --device 10de:11b4", refusal: "is no GPU", hints: 2},
		{name: "several at once", tree: talk, command: "host prepare --device 0000:00:1f.2 --device 0000:01:00.0 --device 0000:09:00.0 --device 10de:11b4",
			refusal: "is no GPU", hints: 2},
		{name: "recorded, and added to", tree: talk, before: "host prepare --device 0000:84:00.0",
			command: "host prepare --device 0000:01:00.0", refusal: "is no GPU", hints: 2},
		{name: "NVSwitches and adapters in their group", tree: hgx, command: "host prepare", refusal: "GPUs and NVSwitches of one board would be separated", hints: 2},
		{name: "NVSwitches", tree: hgx, command: "host prepare --device 0000:07:00.0 --device 0000:0f:00.0", refusal: "GPUs and NVSwitches of one board would be separated", hints: 2},
		{name: "NVSwitches alone", tree: hgx, command: "host prepare --device 10de:1af1", refusal: "GPUs and NVSwitches of one board would be separated", hints: 1},
		{name: "NVSwitches, bound now", tree: hgx, command: "host bind --live --dry-run --device 0000:07:00.0", refusal: "GPUs and NVSwitches of one board would be separated", hints: 2},
		{name: "an NVSwitch that is to remain", tree: hgx, command: "host prepare --nvswitch host --device 0000:07:00.0 --device 10de:1af1",
			refusal: "--nvswitch host keeps it with the host", hints: 1},
		{name: "no NVSwitch", tree: talk, command: "host prepare --nvswitch guest", refusal: "this machine has no NVSwitch", hints: 1},
		{name: "in use", tree: talk, more: inUse, command: "host prepare", refusal: "0000:84:00.0: is in use: python3 (pid 7) has /dev/dri/card3 open", hints: 2},
		{name: "virtual functions", tree: talk, more: file(second+"/sriov_totalvfs", "16") + file(second+"/sriov_numvfs", "4"),
			command: "host prepare", refusal: "0000:88:00.0: has virtual functions enabled (4): vGPU hosts are not prepared this way", hints: 1},
		{name: "virtual functions that cannot be read", tree: talk, more: file(second+"/sriov_totalvfs", "16") + file(second+"/sriov_numvfs", "?"),
			command: "host prepare", refusal: "0000:88:00.0: cannot determine whether it has virtual functions", hints: 1},
		{name: "a manager of NVSwitches", tree: talk, more: b200("\x90\x0f\x00V0\x0cSMDL=SW_MNG\x78"), command: "host prepare --device 10de:2901",
			refusal: "0000:31:00.0 selected, 0000:41:00.0 not: choose which side gets the NVSwitches", hints: 2},
		{name: "what may be a manager of NVSwitches", tree: talk, more: b200("\x90"), command: "host prepare --device 10de:2901",
			refusal: "NVSwitches of the selected GPUs may be managed by 0000:41:00.0", hints: 1},
		{name: "what may be a manager of NVSwitches, named", tree: talk, more: b200("\x90"), command: "host prepare --device 0000:41:00.0",
			refusal: "0000:41:00.0: may manage the NVSwitches of this machine", hints: 1},
		{name: "virtual functions, and --allow", tree: talk, more: file(second+"/sriov_totalvfs", "16") + file(second+"/sriov_numvfs", "4"),
			command: "host prepare --allow 0000:88:00.0", refusal: "0000:88:00.0: has virtual functions enabled (4)", hints: 1},
		{name: "mediated devices", tree: talk, more: "symlink sys/bus/mdev/devices/c0ffee -> ../../../devices/pci0000:80/0000:80:02.0/0000:84:00.0/c0ffee\n",
			command: "host prepare", refusal: "0000:84:00.0: has mediated devices (1): vGPU hosts are not prepared this way", hints: 1},
		{name: "a virtual function", tree: talk, more: "symlink " + second + "/physfn -> ../../0000:80:02.0/0000:84:00.0\n",
			command: "host prepare --device 0000:88:00.0 --device 0000:84:00.0", refusal: "0000:88:00.0: is a virtual function of a GPU: vGPU hosts are not prepared this way", hints: 1},
		{name: "a bridge", tree: talk, command: "host prepare --device 0000:80:02.0", refusal: "0000:80:02.0: is a bridge", hints: 1},
		{name: "a bridge without a GPU behind", tree: talk, command: "host prepare --device 0000:00:1c.0", refusal: "0000:00:1c.0: is a bridge", hints: 1},
		{name: "NVSwitches removed", tree: hgx, before: board, command: "host prepare --remove 10de:1af1", refusal: "GPUs and NVSwitches of one board would be separated", hints: 2},
		{name: "GPUs removed, not their NVSwitches", tree: hgx, before: board, command: "host prepare --remove 10de:20b2", refusal: "GPUs and NVSwitches of one board would be separated", hints: 1},
		{name: "NVSwitches alone, recorded with them", tree: hgx, before: board, command: "host prepare --only 10de:1af1", refusal: "GPUs and NVSwitches of one board would be separated", hints: 1},
		{name: "one of a board's GPUs, recorded with all", tree: hgx, before: board, command: "host prepare --only 0000:07:00.0",
			refusal: "GPUs and NVSwitches of one board would be separated", hints: 2},
		{name: "no such device", tree: talk, command: "host prepare --device 0000:99:00.0", refusal: "0000:99:00.0: no such function", hints: 1},
		{name: "one is changed", tree: talk, before: "host prepare", bend: other(second), command: "host prepare", refusal: "0000:88:00.0: is not the function that was recorded", hints: 1},
		{name: "all are changed", tree: talk, before: "host prepare", bend: other(second) + other(first),
			command: "host prepare", refusal: "0000:84:00.0: is not the function that was recorded", hints: 1},
		{name: "one is changed, bound now", tree: talk, before: "host prepare", bend: other(second), command: "host bind --live --dry-run",
			refusal: "0000:88:00.0: is not the function that was recorded", hints: 1},
		{name: "all are changed, bound now", tree: talk, before: "host prepare",
			bend: other(second) + other(first), command: "host bind --live --dry-run", refusal: "0000:84:00.0: is not the function that was recorded", hints: 1},
		{name: "one is the console by now, bound now", tree: talk, before: "host prepare", bend: file(first+"/boot_vga", "1"),
			command: "host bind --live --dry-run", refusal: "0000:84:00.0: is the console", hints: 2},
		{name: "removed by its other function", tree: talk, before: "host prepare", command: "host prepare --remove 0000:84:00.1", refusal: "0000:84:00.1: is not selected", hints: 1},
		{name: "removed, and not selected", tree: talk, before: "host prepare", command: "host prepare --remove 0000:01:00.0", refusal: "0000:01:00.0: is not selected", hints: 1},
		{name: "identical devices and pci-stub", tree: talk, command: "host prepare --device 0000:84:00.0 --driver pci-stub",
			refusal: "pci-stub cannot bind one function by its address"},
		{name: "no id", tree: talk, more: file(first+"/modalias", "x") + file(first+"/device", "x"), command: "host prepare", refusal: "0000:84:00.0: vendor and product id cannot be read", hints: 1},
		{name: "no IOMMU group", tree: twins, command: "host bind --live --dry-run --device 0000:65:00.0", refusal: "has no IOMMU group", hints: 1},
		{name: "no IOMMU group, and may hang", tree: off, command: "host bind --device 0000:84:00.0", refusal: "0000:84:00.0: has no IOMMU group", hints: 1},
		{name: "may hang", tree: talk, command: "host bind --dry-run", refusal: "nouveau", hints: 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := laid(t, test.tree, test.more)
			s.complete(t)
			if test.before != "" {
				if o := s.run(t, test.before+" --yes"); o.status != 0 {
					t.Fatalf("%s: %s", test.before, o.stderr)
				}
			}
			unpack(t, s.root.Path("/"), test.bend, "")
			o, commands := s.play(t, test.command+" --dry-run")
			if o.status != 1 || !strings.Contains(o.stderr, test.refusal) {
				t.Fatalf("exit status %d: %s", o.status, o.stderr)
			}
			if len(commands) != test.hints {
				t.Errorf("%d commands, want %d: %s", len(commands), test.hints, o.stderr)
			}
		})
	}
}

// laid returns a machine: an example, and what a test adds.
func laid(t *testing.T, tree, more string) shape {
	t.Helper()
	dir := t.TempDir()
	unpack(t, dir, tree, more)
	root := hosttest.Root(t, dir)
	return shape{root: root}
}

// TestNextLeadsSomewhere: the plan that host scan and host check name next, in documents and to
// people, is accepted. Where host check has shown that it is refused, the plan prints the commands
// that are accepted.
func TestNextLeadsSomewhere(t *testing.T) {
	for _, name := range []string{"talk-2xk4200", "talk-iommu-off", "hgx-8xa100", "ubuntu-8xa100", "workstation-twins"} {
		for _, command := range []string{"scan", "check"} {
			t.Run(name+" "+command, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				hosttest.NoError(t, os.Mkdir(filepath.Join(dir, "node"), 0o755))
				unpack(t, filepath.Join(dir, "node"), example(t, name), "")
				var document struct {
					Next struct {
						Command string
						RunOn   string `json:"run_on"`
					}
				}
				o := runProgram(t, dir, nil, "host", command, "--root", "node", "-o", "json")
				hosttest.NoError(t, json.Unmarshal([]byte(o.stdout), &document))
				next := document.Next
				text := runProgram(t, dir, nil, "host", command, "--root", "node").stdout
				if !strings.Contains(text, next.Command) || next.RunOn != "here" {
					t.Errorf("next %+v: %s", next, text)
				}
				o = runProgram(t, dir, nil, strings.Fields(next.Command)[1:]...)
				details := strings.Contains(text, "'"+next.Command+"' for details") && strings.Contains(o.stderr, ": gpustack host prepare ")
				if o.status != 2 && !details {
					t.Errorf("%+v: exit status %d: %s", next, o.status, o.stderr)
				}
			})
		}
	}
}

// TestHintShowsWhatLeaves: the plan of a hint with --allow says what leaves the host.
func TestHintShowsWhatLeaves(t *testing.T) {
	dir := t.TempDir()
	unpack(t, dir, example(t, "talk-2xk4200"), "-- usr/lib/systemd/systemd --\n-- usr/sbin/gpustack --\n")
	o := runProgram(t, dir, nil, "host", "prepare", "--root", ".", "--dry-run", "--device", "0000:01:00.0", "--allow", "0000:01:00.0")
	const want = "gpustack: warning: 0000:01:00.0: the NIC eth0 (igb) leaves the host at the next boot (allowed; otherwise refused: is no GPU: NIC eth0 (igb); the host keeps 0000:01:00.1 "
	if o.status != 2 || !strings.Contains(o.stderr, want) {
		t.Errorf("exit status %d: %s", o.status, o.stderr)
	}
}

// TestHintForVirtualFunctions: where no other selection is accepted, the hint says how to lift
// the refusal.
func TestHintForVirtualFunctions(t *testing.T) {
	dir := t.TempDir()
	const at = "-- sys/devices/pci0000:80/0000:80:03.0/0000:88:00.0/"
	unpack(t, dir, example(t, "talk-2xk4200"), at+"sriov_totalvfs --\n16\n"+at+"sriov_numvfs --\n4\n")
	o := runProgram(t, dir, nil, "host", "prepare", "--root", ".", "--dry-run", "--device", "0000:88:00.0")
	if o.status != 1 || !strings.Contains(o.stderr, "gpustack: hint: once no guest has one, write 0 to the function's sriov_numvfs\n") {
		t.Errorf("exit status %d: %s", o.status, o.stderr)
	}
}

// TestBelow: commands in hints get the --root of the command line, exactly those that have it and
// are about a machine.
func TestBelow(t *testing.T) {
	for path, c := range args.Visible(newApp(testUI(t), []string{"gpustack"}).Commands) {
		want := "gpustack " + path + " --some 3"
		if aboutCloud := []string{"flavor list", "flavor test", "nova explain", "nova devices"}; args.FindFlag(c.Flags, "root") != nil &&
			!slices.Contains(aboutCloud, path) {
			want = "gpustack " + path + " --root '/mnt/my node' --some 3"
		}
		if got := args.Below(host.NewCommand(path).Flag("some", "3"), "/mnt/my node").String(); got != want {
			t.Errorf("got  %s\nwant %s: args/help.go, rooted, lists the commands about a machine", got, want)
		}
	}
}

// TestRepeats: commands in hints are about the cloud, the databases and the release of the command
// line. The entry that undo names has its cloud, and URLs may have passwords.
func TestRepeats(t *testing.T) {
	enable, undo := host.NewCommand("nova enable").Arg("gpu1"), host.NewCommand("undo").Arg("1")
	for _, test := range []struct {
		line    string
		command host.Command
		want    string
	}{
		{"nova drain gpu1 --os-cloud lab --os-region-name=r1 --insecure", enable, "nova enable gpu1 --os-cloud lab --os-region-name r1 --insecure"},
		{"nova drain gpu1 --os-cloud lab", host.NewCommand("repair-migration").Flag("instance", "u1"), "repair-migration --instance u1 --os-cloud lab"},
		{"nova drain gpu1 --os-cloud lab", host.NewCommand("host check").Elsewhere(), "host check"},
		{"nova drain gpu1 --os-cloud lab", enable.Flag("os-cloud", "other"), "nova enable gpu1 --os-cloud other"},
		{"flavor create K4200:1 --os-cloud lab", undo, "undo 1"},
		{"repair-migration --database=mysql://nova:secret@db/nova --apply", undo, "undo 1 --database URL"},
		{"repair-migration --conf /etc/kolla/nova.conf --apply", undo, "undo 1 --conf /etc/kolla/nova.conf"},
		{"nova explain --flavor f --conf compute=/c --conf controller=/etc/kolla/nova.conf", host.NewCommand("repair-migration"),
			"repair-migration --conf /etc/kolla/nova.conf"},
		{"nova devices --conf all=copy.conf --conf /a,/b", host.NewCommand("repair-migration"), "repair-migration"},
		{"nova check --conf compute=/etc/nova.conf", host.NewCommand("nova configure"), "nova configure"},
	} {
		a := newApp(testUI(t), append([]string{"gpustack"}, strings.Fields(test.line)...))
		hosttest.EqualIn(t, test.line, "gpustack "+test.want, strings.ReplaceAll(a.ui.Command(test.command), "\u2800", " "))
	}
}

// TestHelpFits: the page of --help fits a screen of 50 lines and 80 columns, that of the program 60.
func TestHelpFits(t *testing.T) {
	a := newApp(testUI(t), []string{"gpustack"})
	paths := []string{""}
	for path := range args.Visible(a.Commands) {
		if path != "help" {
			paths = append(paths, path)
		}
	}
	for _, path := range paths {
		o := runProgram(t, "/", []string{"COLUMNS=80"}, append(strings.Fields(path), "--help")...)
		most := 50
		if path == "" {
			most = 60
		}
		if n := strings.Count(o.stdout, "\n"); o.status != 0 || n > most || n < 10 {
			t.Errorf("gpustack %s --help: %d lines, exit status %d", path, n, o.status)
		}
	}
}
