package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"gpustack/host/hosttest"
)

// TestScanOpens counts the files that a scan opens: of each function its folder, its modalias and
// four others, of a GPU its memory regions, of a network card the number of its VFs, and of a
// function that is not listed its modalias alone.
func TestScanOpens(t *testing.T) {
	const functions, gpus, nics, elsewhere = 180, 80, 80, 150
	root := filepath.Join(t.TempDir(), "server")
	layServer(t, root, functions)
	for _, test := range []struct {
		args []string
		most int
	}{
		{[]string{"--all"}, 6*functions + gpus + nics + elsewhere},
		{nil, functions + 6*gpus + elsewhere},
	} {
		trace := filepath.Join(t.TempDir(), "trace")
		args := append([]string{"-f", "-e", "trace=openat", "-o", trace, gpustack, "host", "scan", "-o", "json", "--root", root}, test.args...)
		list := run(t, "strace", args...)
		opens := strings.Count(hosttest.Read(t, trace), "openat(")
		if listed := strings.Count(list, "\n{\"address\""); opens > test.most || opens < listed {
			t.Errorf("%q: %d files were opened for %d of %d functions, want at most %d", test.args, opens, listed, functions, test.most)
		}
	}
}

// TestObservesOnce: a command reads the functions of the machine once, for its plan and for
// reboot_required, and host check searches for no more than host prepare, whose plan it names.
func TestObservesOnce(t *testing.T) {
	opens := func(root string, args ...string) func(file string) int {
		trace := filepath.Join(t.TempDir(), "trace")
		strace := []string{"-f", "-e", "trace=openat", "-o", trace, gpustack}
		try(t, exec.Command("strace", append(append(strace, args...), "--root", root)...))
		return func(file string) int { return strings.Count(hosttest.Read(t, trace), file+`", O_`) }
	}
	talk, twins := unpack(t, examples(t)["talk-2xk4200.txtar"]), unpack(t, examples(t)["workstation-twins.txtar"])
	whole := opens(talk, "host", "scan", "--all", "-o", "json")("driver_override")
	if whole == 0 {
		t.Fatal("no function was read")
	}
	for _, state := range []string{"bare", "prepared"} {
		for _, command := range []string{"host check", "host prepare --dry-run", "host bind --live --dry-run", "host release --dry-run"} {
			hosttest.EqualIn(t, state+", "+command+": functions read", whole, opens(talk, strings.Fields(command)...)("driver_override"))
		}
		run(t, gpustack, "host", "prepare", "--root", talk, "--yes")
	}
	hosttest.EqualIn(t, "undo: functions read", whole, opens(talk, "undo", "--dry-run")("driver_override"))
	checked, suggested := opens(twins, "host", "check")("/sys/class/block"), opens(twins, "host", "prepare")("/sys/class/block")
	if checked == 0 || checked > suggested {
		t.Errorf("the disks were listed %d times by host check, %d times by host prepare, whose suggestion it names", checked, suggested)
	}
}

// TestLinear counts how often each statement is run, of gpustack and of package slices, on machines
// with 115 and with 460 candidates: none may be run more than eight times as often, apart from what
// is run less than once for each function. Sorting takes up to seven times, and comparing each
// function with each other one sixteen times. It counts statements because no test may depend on
// time.
func TestLinear(t *testing.T) {
	const small, large, most = 256, 1024, 8
	dir := t.TempDir()
	counting := filepath.Join(dir, "gpustack")
	build := exec.Command("go", "build", "-cover", "-covermode=atomic", "-coverpkg=gpustack/host/...,gpustack/cmd/...,slices",
		"-tags", "urfave_cli_no_docs", "-o", counting, "gpustack/cmd/gpustack")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	statements := 0
	for _, state := range []string{"bare", "refused", "prepared"} {
		roots := map[int]string{}
		for _, functions := range []int{small, large} {
			roots[functions] = layCandidates(t, functions, state)
		}
		for _, command := range []string{"scan --all", "scan", "check", "prepare --dry-run"} {
			t.Run(state+" "+command, func(t *testing.T) {
				few, many := countStatements(t, counting, command, roots[small]), countStatements(t, counting, command, roots[large])
				statements += len(many)
				for place, count := range many {
					if count > most*(few[place]+small) {
						t.Errorf("%s is run %d times for %d functions and %d times for %d", place, few[place], small, count, large)
					}
				}
			})
		}
	}
	if statements < 10_000 {
		t.Errorf("only %d statements were counted", statements)
	}
}

// layCandidates lays out an example node with a server's functions beside its own, of which four in
// nine are candidates. In state refused, a network card shares the IOMMU group of a GPU; in state
// prepared, host prepare has recorded all candidates.
func layCandidates(t *testing.T, functions int, state string) (root string) {
	root = unpack(t, examples(t)["talk-2xk4200.txtar"])
	server := filepath.Join(t.TempDir(), "server")
	layServer(t, server, functions)
	// The example has domain 0.
	domains := strings.NewReplacer("pci0000:", "pci0010:", "/0000:", "/0010:", "iommu_groups/", "iommu_groups/1")
	err := filepath.WalkDir(server, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		place := filepath.Join(root, domains.Replace(strings.TrimPrefix(path, server)))
		switch {
		case entry.IsDir():
			return os.MkdirAll(place, 0o755)
		case entry.Type()&os.ModeSymlink != 0:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			if err := os.MkdirAll(filepath.Dir(place), 0o755); err != nil {
				return err
			}
			return os.Symlink(domains.Replace(target), place)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(place, data, 0o644)
	})
	hosttest.NoError(t, err)
	switch state {
	case "refused":
		// The first GPU of each bus gets the group of a network card.
		cards, err := filepath.Glob(filepath.Join(root, "sys/devices/pci0010:00/*[13579bdf]:00.0/*:01.0/iommu_group"))
		if err != nil || len(cards) < functions/20 {
			t.Fatalf("%d network cards, %v", len(cards), err)
		}
		for _, card := range cards {
			target, err := os.Readlink(card)
			hosttest.NoError(t, err)
			bus, err := strconv.ParseUint(filepath.Base(filepath.Dir(filepath.Dir(card)))[5:7], 16, 8)
			hosttest.NoError(t, err)
			gpu := filepath.Join(root, fmt.Sprintf("sys/devices/pci0010:00/0010:%02x:00.0/0010:%02x:01.0/iommu_group", bus-1, bus-1))
			hosttest.NoError(t, os.Remove(gpu))
			hosttest.NoError(t, os.Symlink(target, gpu))
		}
	case "prepared":
		run(t, gpustack, "host", "prepare", "--root", root, "--yes")
	}
	return root
}

// countStatements returns how often each statement is run.
func countStatements(t *testing.T, counting, command, root string) map[string]int {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command(counting, append(append([]string{"host"}, strings.Fields(command)...), "--root", root)...)
	cmd.Env = append(os.Environ(), "GOCOVERDIR="+dir)
	if stdout, stderr, _ := try(t, cmd); stdout == "" && stderr == "" {
		t.Fatalf("%s prints nothing", command)
	}
	counts := map[string]int{}
	for line := range strings.Lines(run(t, "go", "tool", "covdata", "textfmt", "-i", dir, "-o", "/dev/stdout")) {
		fields := strings.Fields(line) // FILE:FROM,TO STATEMENTS COUNT
		if len(fields) != 3 {
			continue
		}
		count, err := strconv.Atoi(fields[2])
		hosttest.NoError(t, err)
		counts[fields[0]] += count
	}
	return counts
}
