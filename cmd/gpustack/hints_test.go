package main

import (
	"bytes"
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gpustack/cmd/gpustack/args"
	"gpustack/host/snapshot"
)

// runHere runs the program in a folder as its users do, in an empty environment.
func runHere(t *testing.T, dir string, args ...string) (stderr string, status int) {
	t.Helper()
	c := exec.Command("gpustack", args...)
	c.Dir = dir
	var talk bytes.Buffer
	c.Stderr = &talk
	if err := c.Run(); err != nil && c.ProcessState == nil {
		t.Fatal(err)
	}
	return talk.String(), c.ProcessState.ExitCode()
}

// unpack lays out an example in dir, and what a test adds: an archive in txtar's form.
func unpack(t *testing.T, dir, example, more string) {
	t.Helper()
	for _, text := range []string{example, more} {
		if text == "" {
			continue
		}
		tree, err := snapshot.Read(strings.NewReader(text), snapshot.Txtar)
		if err != nil {
			t.Fatal(err)
		}
		// A tree is laid out in an empty folder alone.
		part := filepath.Join(t.TempDir(), "part")
		if err := tree.Unpack(part); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("cp", "-a", part+"/.", dir).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
}

func example(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../examples/" + name + ".txtar")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var hintLine = regexp.MustCompile(`(?m)^gpustack: hint: to ([^:]+(?::[^ ][^:]*)*): (gpustack host (?:prepare|bind|scan) .*)$`)

func errorLines(stderr string) (lines []string) {
	for line := range strings.Lines(stderr) {
		if strings.HasPrefix(line, "gpustack: error: ") {
			lines = append(lines, line)
		}
	}
	return lines
}

// TestHintsLeadSomewhere runs the hints of each kind of refusal: each leads to success, or to
// a refusal that was not there before, whose hints are run in turn.
func TestHintsLeadSomewhere(t *testing.T) {
	talk, hgx, twins := example(t, "talk-2xk4200"), example(t, "hgx-8xa100"), example(t, "workstation-twins")
	const first, second = "sys/devices/pci0000:80/0000:80:02.0/0000:84:00.0", "sys/devices/pci0000:80/0000:80:03.0/0000:88:00.0"
	file := func(name, text string) string { return "-- " + name + " --\n" + text + "\n" }
	other := func(function string) string {
		return file(function+"/modalias", "pci:v000010DEd00001BB1sv0000103Csd00001096bc03sc00i00")
	}
	inUse := "mkdir proc/7/fd\nmkdir sys/" + strings.TrimPrefix(first, "sys/") + "/drm/card3\n" +
		"symlink proc/7/fd/3 -> /dev/dri/card3\nsymlink sys/class/drm/card3 -> ../../" + strings.TrimPrefix(first, "sys/") + "/drm/card3\n" +
		file("proc/7/comm", "nvidia-persiste") + file("proc/7/stat", "7 (x) S 0 1 1 0 -1 4194560 1 1 1 1 1 1 1 1 20 0 1 0 1 1 1 1")
	b200 := func(vpd string) string {
		text, links := "", "base64 sys/bus/pci/devices/0000:41:00.0/vpd\n"
		for address, ids := range map[string][3]string{"0000:31:00.0": {"0x030200", "0x10de", "0x2901"}, "0000:41:00.0": {"0x020700", "0x15b3", "0x1021"}} {
			at := "sys/bus/pci/devices/" + address
			links += "symlink " + at + "/iommu_group -> ../../../../kernel/iommu_groups/9" + address[5:6] + "\n"
			text += file(at+"/class", ids[0]) + file(at+"/vendor", ids[1]) + file(at+"/device", ids[2])
		}
		return links + text + file("sys/bus/pci/devices/0000:41:00.0/vpd", base64.StdEncoding.EncodeToString([]byte(vpd)))
	}
	const switched = "sys/devices/pci0000:c0/0000:c0:01.1/0000:c1:00.0/0000:c2:0"
	sm := file(switched+"0.0/0000:c3:00.0/infiniband/mlx5_8/ports/1/cap_mask", "0x2") +
		file(switched+"4.0/0000:c4:00.0/infiniband/mlx5_9/ports/1/cap_mask", "0x2")
	const board = "host prepare --nvswitch guest --allow 0000:c3:00.0 --allow 0000:c4:00.0"
	for _, test := range []struct {
		name, tree, more string
		before           string // run first, to success
		bend             string // written after that
		command          string
		refusal          string // expected at first
		hints            int    // at first
	}{
		{"the console", twins, "", "", "", "host prepare", "0000:17:00.0: the host needs it: is the console", 2},
		{"a named console", twins, "", "", "", "host prepare --device 0000:17:00.0", "is the console", 1},
		{"the root disk beside a GPU", talk, "", "", "", "host prepare --device 0000:00:1f.2 --device 0000:84:00.0", "carries /dev/sda1, mounted at /", 1},
		{"the root disk alone", talk, "", "", "", "host prepare --device 0000:00:1f.2", "carries /dev/sda1, mounted at /", 1},
		{"the network card", talk, "", "", "", "host prepare --device 0000:01:00.0 --device 10de:11b4", "default route", 2},
		{"several at once", talk, "", "", "", "host prepare --device 0000:00:1f.2 --device 0000:01:00.0 --device 0000:09:00.0 --device 10de:11b4",
			"default route", 2},
		{"recorded, and added to", talk, "", "host prepare --device 0000:84:00.0", "", "host prepare --device 0000:01:00.0", "default route", 2},
		{"NVSwitches and adapters in use", hgx, sm, "", "", "host prepare", "GPUs and NVSwitches of one board would be separated", 3},
		{"NVSwitches and idle adapters", hgx, "", "", "", "host prepare", "GPUs and NVSwitches of one board would be separated", 2},
		{"NVSwitches", hgx, "", "", "", "host prepare --device 0000:07:00.0 --device 0000:0f:00.0", "GPUs and NVSwitches of one board would be separated", 2},
		{"NVSwitches alone", hgx, "", "", "", "host prepare --device 10de:1af1", "GPUs and NVSwitches of one board would be separated", 1},
		{"NVSwitches, bound now", hgx, "", "", "", "host bind --live --dry-run --device 0000:07:00.0", "GPUs and NVSwitches of one board would be separated", 2},
		{"an NVSwitch that is to remain", hgx, "", "", "", "host prepare --nvswitch host --device 0000:07:00.0 --device 10de:1af1",
			"--nvswitch host keeps it with the host", 2},
		{"no NVSwitch", talk, "", "", "", "host prepare --nvswitch guest", "NVSwitches: no such function", 1},
		{"in use", talk, inUse, "", "", "host prepare", "0000:84:00.0: is in use: nvidia-persiste (pid 7) has /dev/dri/card3 open", 2},
		{"virtual functions", talk, file(second+"/sriov_totalvfs", "16") + file(second+"/sriov_numvfs", "4"), "", "",
			"host prepare", "0000:88:00.0: has virtual functions enabled (4): vGPU hosts are not prepared this way", 1},
		{"virtual functions that cannot be read", talk, file(second+"/sriov_totalvfs", "16") + file(second+"/sriov_numvfs", "?"),
			"", "", "host prepare", "0000:88:00.0: cannot determine whether it has virtual functions", 1},
		{"a manager of NVSwitches", talk, b200("\x90\x0f\x00V0\x0cSMDL=SW_MNG\x78"), "", "", "host prepare --device 10de:2901",
			"0000:31:00.0 selected, 0000:41:00.0 not: choose which side gets the NVSwitches", 2},
		{"what may be a manager of NVSwitches", talk, b200("\x90"), "", "", "host prepare --device 10de:2901",
			"NVSwitches of the selected GPUs may be managed by 0000:41:00.0", 1},
		{"what may be a manager of NVSwitches, named", talk, b200("\x90"), "", "", "host prepare --device 0000:41:00.0",
			"0000:41:00.0: may manage the NVSwitches of this machine", 1},
		{"virtual functions, and --allow", talk, file(second+"/sriov_totalvfs", "16") + file(second+"/sriov_numvfs", "4"), "", "",
			"host prepare --allow 0000:88:00.0", "0000:88:00.0: has virtual functions enabled (4)", 1},
		{"mediated devices", talk, "symlink sys/bus/mdev/devices/c0ffee -> ../../../devices/pci0000:80/0000:80:02.0/0000:84:00.0/c0ffee\n",
			"", "", "host prepare", "0000:84:00.0: has mediated devices (1): vGPU hosts are not prepared this way", 1},
		{"a virtual function", talk, "symlink " + second + "/physfn -> ../../0000:80:02.0/0000:84:00.0\n", "", "",
			"host prepare --device 0000:88:00.0 --device 0000:84:00.0", "0000:88:00.0: is a virtual function of a GPU: vGPU hosts are not prepared this way", 1},
		{"a bridge", talk, "", "", "", "host prepare --device 0000:80:02.0", "0000:80:02.0: is a bridge", 1},
		{"a bridge without a GPU behind", talk, "", "", "", "host prepare --device 0000:00:1c.0", "0000:00:1c.0: is a bridge", 1},
		{"NVSwitches removed", hgx, "", board, "", "host prepare --remove 10de:1af1", "GPUs and NVSwitches of one board would be separated", 1},
		{"GPUs removed, not their NVSwitches", hgx, "", board, "", "host prepare --remove 10de:20b2", "GPUs and NVSwitches of one board would be separated", 1},
		{"NVSwitches alone, recorded with them", hgx, "", board, "", "host prepare --only 10de:1af1", "GPUs and NVSwitches of one board would be separated", 1},
		{"one of a board's GPUs, recorded with all", hgx, "", board, "", "host prepare --only 0000:07:00.0",
			"GPUs and NVSwitches of one board would be separated", 2},
		{"no such device", talk, "", "", "", "host prepare --device 0000:99:00.0", "0000:99:00.0: no such function", 1},
		{"one is changed", talk, "", "host prepare", other(second), "host prepare", "0000:88:00.0: is not the function that was recorded", 1},
		{"all are changed", talk, "", "host prepare", other(second) + other(first),
			"host prepare", "0000:84:00.0: is not the function that was recorded", 1},
		{"one is changed, bound now", talk, "", "host prepare", other(second), "host bind --live --dry-run",
			"0000:88:00.0: is not the function that was recorded", 1},
		{"all are changed, bound now", talk, "", "host prepare",
			other(second) + other(first), "host bind --live --dry-run", "0000:84:00.0: is not the function that was recorded", 1},
		{"one is the console by now, bound now", talk, "", "host prepare", file(first+"/boot_vga", "1"),
			"host bind --live --dry-run", "0000:84:00.0: the host needs it: is the console", 2},
		{"removed by its other function", talk, "", "host prepare", "", "host prepare --remove 0000:84:00.1", "0000:84:00.1: is not selected", 1},
		{"removed, and not selected", talk, "", "host prepare", "", "host prepare --remove 0000:01:00.0", "0000:01:00.0: is not selected", 1},
		{"identical devices and pci-stub", talk, "", "", "", "host prepare --device 0000:84:00.0 --driver pci-stub",
			"pci-stub cannot bind one of several identical devices", 1},
		{"no id", talk, file(first+"/modalias", "x") + file(first+"/device", "x"), "", "", "host prepare", "0000:84:00.0: vendor and product id cannot be read", 1},
		{"no IOMMU group", twins, "", "", "", "host bind --live --dry-run --device 0000:65:00.0", "has no IOMMU group", 1},
		{"may hang", talk, "", "", "", "host bind --dry-run", "nouveau", 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			node := filepath.Join(dir, "a node")
			if err := os.Mkdir(node, 0o755); err != nil {
				t.Fatal(err)
			}
			unpack(t, node, test.tree, test.more)
			if test.before != "" {
				if talk, status := runHere(t, dir, append(strings.Fields(test.before), "--yes", "--root", "a node")...); status != 0 {
					t.Fatalf("%s: %s", test.before, talk)
				}
			}
			unpack(t, node, test.bend, "")
			stderr, status := runHere(t, dir, append(strings.Fields(test.command), "--dry-run", "--root", "a node")...)
			if status != 1 || !strings.Contains(stderr, test.refusal) {
				t.Fatalf("exit status %d: %s", status, stderr)
			}
			found := hintLine.FindAllStringSubmatch(stderr, -1)
			if len(found) != test.hints {
				t.Errorf("%d hints, want %d: %s", len(found), test.hints, stderr)
			}
			for _, h := range found {
				follow(t, dir, h[2], errorLines(stderr), 4)
			}
		})
	}
}

// follow runs a hint, and the first hint of a new refusal, to success. Each run has --dry-run,
// whose exit status 2 says that the plan is accepted.
func follow(t *testing.T, dir string, command string, before []string, steps int) {
	t.Helper()
	words := strings.Fields(strings.ReplaceAll(command, "'a node'", "a_node"))
	for i, w := range words {
		words[i] = strings.ReplaceAll(w, "a_node", "a node")
	}
	if words[2] != "scan" {
		words = append(words, "--dry-run")
	}
	stderr, status := runHere(t, dir, words[1:]...)
	if status == 0 || status == 2 {
		return
	}
	for _, line := range errorLines(stderr) {
		for _, old := range before {
			if line == old {
				t.Errorf("%s: refused as before: %s", command, line)
				return
			}
		}
	}
	next := hintLine.FindStringSubmatch(stderr)
	if next == nil || steps == 0 {
		t.Errorf("%s: %s", command, stderr)
		return
	}
	follow(t, dir, next[2], append(before, errorLines(stderr)...), steps-1)
}

// TestNextLeadsSomewhere: the plan that host scan and host check name next is accepted, or refused
// for a reason that these have not shown.
func TestNextLeadsSomewhere(t *testing.T) {
	plan := regexp.MustCompile(`gpustack host prepare --root node [^'\n]*`)
	for _, name := range []string{"talk-2xk4200", "hgx-8xa100", "ubuntu-8xa100", "workstation-twins"} {
		for _, command := range []string{"scan", "check"} {
			t.Run(name+" "+command, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				if err := os.Mkdir(filepath.Join(dir, "node"), 0o755); err != nil {
					t.Fatal(err)
				}
				unpack(t, filepath.Join(dir, "node"), example(t, name), "")
				out, err := hereOutput(dir, "host", command, "--root", "node")
				next := ""
				for line := range strings.Lines(out) {
					if found := plan.FindString(line); found != "" && next == "" && strings.Contains(found, "--dry-run") {
						next = found
					}
				}
				if next == "" {
					t.Fatalf("no plan is named (%v): %s", err, out)
				}
				if stderr, status := runHere(t, dir, strings.Fields(next)[1:]...); status != 2 {
					t.Errorf("%s: exit status %d: %s", next, status, stderr)
				}
			})
		}
	}
}

// hereOutput returns what the program prints in a folder.
func hereOutput(dir string, args ...string) (string, error) {
	c := exec.Command("gpustack", args...)
	c.Dir = dir
	out, err := c.Output()
	return string(out), err
}

// TestHintShowsWhatLeaves: the plan of a hint with --allow says what leaves the host.
func TestHintShowsWhatLeaves(t *testing.T) {
	dir := t.TempDir()
	unpack(t, dir, example(t, "talk-2xk4200"), "")
	stderr, status := runHere(t, dir, "host", "prepare", "--root", ".", "--dry-run", "--device", "0000:01:00.0", "--allow", "0000:01:00.0")
	const want = "gpustack: warning: 0000:01:00.0: the NIC eth0 (igb) leaves the host at the next boot (allowed; otherwise refused: the host needs it: carries the default route, through eth0)"
	if status != 2 || !strings.Contains(stderr, want) {
		t.Errorf("exit status %d: %s", status, stderr)
	}
}

// TestHintForVirtualFunctions: where no other selection is accepted, the hint says how to lift
// the refusal.
func TestHintForVirtualFunctions(t *testing.T) {
	dir := t.TempDir()
	const at = "-- sys/devices/pci0000:80/0000:80:03.0/0000:88:00.0/"
	unpack(t, dir, example(t, "talk-2xk4200"), at+"sriov_totalvfs --\n16\n"+at+"sriov_numvfs --\n4\n")
	stderr, status := runHere(t, dir, "host", "prepare", "--root", ".", "--dry-run", "--device", "0000:88:00.0")
	if status != 1 || !strings.Contains(stderr, "gpustack: hint: once no guest has one, write 0 to the function's sriov_numvfs\n") {
		t.Errorf("exit status %d: %s", status, stderr)
	}
}

// TestAtRoot: commands in hints get the --root of the command line, exactly those that have it and
// are about a machine.
func TestAtRoot(t *testing.T) {
	const root = "/mnt/my node"
	for path, c := range args.Visible(newApp(testUI(t), []string{"gpustack"}).Commands) {
		want := "run 'gpustack " + path + " --some 3', not gpustackd"
		if aboutCloud := []string{"flavor list", "flavor test", "nova explain"}; args.FindFlag(c.Flags, "root") != nil && !slices.Contains(aboutCloud, path) {
			want = strings.Replace(want, path, path+" --root '/mnt/my node'", 1)
		}
		if got := args.AtRoot("run 'gpustack "+path+" --some 3', not gpustackd", root); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
