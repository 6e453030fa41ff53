package vm

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gpustack/host/hosttest"
	"gpustack/nova/probe"
)

// TestProbe runs the script of flavor test in a machine, as a guest's cloud-init does, and reads
// its report from the serial console, as Nova does. The guest has two GPUs, and a third whose
// memory has no address, and runs a command. Linux 6.1 shows that region in resource like one that
// does not exist: the BAR's register tells it, and the kernel log. A guest may lack the program to
// read either.
func TestProbe(t *testing.T) {
	t.Parallel()
	m := small(t, Topology{Name: "probe", CPU: intel, Devices: []Device{
		{Options: "bus=pcie.0,addr=0x4", Plays: &k4200}, {Options: "bus=pcie.0,addr=0x5", Plays: &k4200},
		{Options: "bus=pcie.0,addr=0x6", Plays: &huge}, {Options: "VGA,bus=pcie.0,addr=0x10"},
	}})
	lost := hosttest.Address(t, "0000:00:06.0")
	command, err := probe.NewCommand("echo 'the guest'\\''s \"output\"'; echo 1 2 3 | wc -w; kill -TERM $$", time.Minute)
	hosttest.NoError(t, err)
	// The boot does not wait for a report: it goes on before the last lines come. A machine that does
	// not get a processor may show the end of the scripts late: it is asked again, by other scripts,
	// and no more often than tries.
	const (
		patience = 5 * time.Minute
		tries    = 4
	)
	without := map[string]string{} // by nonce, the program that the guest lacks
	for try := 1; ; try++ {
		clear(without)
		var scripts strings.Builder
		for i, program := range []string{"", "od", "dmesg"} {
			nonce := fmt.Sprintf("7f3a%02x%02x", try, i)
			without[nonce] = program
			script := probe.Script(nonce, probe.Options{Command: command})
			if program != "" {
				script = strings.ReplaceAll(script, "$("+program+" ", "$(missing-"+program+" ")
			}
			scripts.WriteString("sh -eu >/dev/null <<'_'\n" + script + "_\n")
		}
		begin := time.Now()
		m.run("sh", "-euc", scripts.String())
		took := time.Since(begin)
		all := func() bool { return strings.Count(m.Console(), " gap=none END\r\n") == 3*len(without)*try }
		waited := all()
		for !all() && time.Since(begin) < patience {
			time.Sleep(beat)
		}
		t.Logf("the boot waited for %s; all lines after %.1f s", took, time.Since(begin).Seconds())
		if !waited {
			break
		}
		if try == tries {
			t.Fatalf("the boot waited for all lines, %d times", tries)
		}
	}
	functions := strings.Count(m.run("sh", "-c", `for f in /sys/bus/pci/devices/*; do case $(cat $f/class) in 0x0604*) ;; *) echo; esac; done`), "\n")
	for nonce, program := range without {
		for record, want := range map[string]int{"GPUSTACK-PROBE v1 nonce=" + nonce + " ": 3, "GPUSTACK-RUN v1 nonce=" + nonce + " ": 12} {
			if lines := strings.Count(m.Console(), record); lines != want {
				t.Errorf("without %q: %d lines %s, want %d", program, lines, record, want)
			}
		}
		r, whole := probe.Parse(m.Console(), nonce)
		if !whole {
			t.Fatalf("without %q: no report in:\n%s", program, end(m.Console()))
		}
		ran := probe.ParseRun(m.Console(), nonce)
		if ran == nil || ran.ExitStatus == nil || *ran.ExitStatus != 143 || strings.Join(ran.Output, "|") != `the guest's "output"|3` || ran.Seconds == nil {
			t.Errorf("without %q: the command: %+v", program, ran)
		}
		hosttest.EqualIn(t, "without "+program+": functions", functions, len(r.Devices))
		for _, d := range r.Devices {
			if d.Assigned == (d.Address == lost) {
				t.Errorf("without %q: %+v", program, d)
			}
		}
		if got := probe.GPUs(probe.Wanted{{Vendor: 0x10de, Product: 0x11b4}: 2}, r); got != 2 {
			t.Errorf("without %q: %d GPUs", program, got)
		}
		gpu, large := probe.ID{Vendor: 0x10de, Product: 0x11b4}, probe.ID{Vendor: 0x10de, Product: 0x20b5}
		if got := probe.Compare(probe.Wanted{gpu: 2}, r); got.Verdict != probe.Pass {
			t.Errorf("without %q: %+v", program, got)
		}
		if got := probe.Compare(probe.Wanted{large: 1}, r); got.Verdict != probe.Fail || got.Seen[large] != 1 || len(got.Unassigned) != 1 {
			t.Errorf("without %q: %+v", program, got)
		}
	}
}
