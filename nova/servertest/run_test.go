package servertest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/hosttest"
	"gpustack/nova/probe"
	"gpustack/nova/servertest"
)

// ran returns the records of a command in a guest.
func ran(nonce, end string, lines ...string) string {
	text := ""
	for i, line := range lines {
		text += fmt.Sprintf("GPUSTACK-RUN v1 nonce=%s %d/%d:%d %s END\n", nonce, i+1, len(lines), len(line), line)
	}
	return text + fmt.Sprintf("GPUSTACK-RUN v1 nonce=%s %s lines=%d gap=none END\n", nonce, end, len(lines))
}

// counted returns the report of a guest with so many GPUs.
func counted(nonce string, gpus int) string {
	text := fmt.Sprintf("GPUSTACK-PROBE v1 nonce=%s devices=%d", nonce, gpus)
	for i := range gpus {
		text += fmt.Sprintf(" 0000:00:%02x.0=10de:11b4:ok:0300", 5+i)
	}
	return text + " END\n"
}

// TestRun: the verdict is the worse one of the devices and of the command, and the server is
// deleted whatever the command does.
func TestRun(t *testing.T) {
	const (
		exit0 = "ended exit=0 from=1.00 to=2.00"
		exit1 = "ended exit=1 from=1.00 to=2.00"
		gpu0  = "GPU 0: Quadro K4200 (UUID: GPU-1)"
		gpu1  = "GPU 1: Quadro K4200 (UUID: GPU-2)"
		noEnd = "the guest has not reported the end of the command"
		xid   = "[  100.1] NVRM: Xid (PCI:0000:00:05): 79, GPU has fallen off the bus.\n"
	)
	failed := func(b *bed) {
		b.Instances[0].More = map[string]any{"status": "ERROR", "fault": map[string]any{"message": "it crashed"}}
	}
	for name, test := range map[string]struct {
		gpus   int
		run    func(nonce string) string // nil: none
		cloud  func(b *bed)              // after the devices were counted
		want   probe.Verdict
		reason string
		reboot bool // it may have been rebooted, which a hint says
	}{
		"pass":   {gpus: 2, run: func(n string) string { return ran(n, exit0, gpu0, gpu1) }, want: probe.Pass},
		"exit 1": {gpus: 2, run: func(n string) string { return ran(n, exit1) }, want: probe.Fail, reason: "the command returned exit status 1"},
		"deadline": {gpus: 2, run: func(n string) string { return ran(n, "deadline exit= from=1.00 to=2.00") }, want: probe.Fail,
			reason: "the command did not end within 1s"},
		"fewer GPUs listed": {gpus: 2, run: func(n string) string { return ran(n, exit0, gpu0) }, want: probe.Fail,
			reason: "nvidia-smi lists 1 GPU, and the flavor has 2"},
		"fewer devices": {gpus: 1, run: func(n string) string { return ran(n, exit0, gpu0, gpu1) }, want: probe.Fail, reason: "10de:11b4: 2 wanted, 1 seen"},
		"both": {gpus: 1, run: func(n string) string { return ran(n, exit1) }, want: probe.Fail,
			reason: "10de:11b4: 2 wanted, 1 seen; the command returned exit status 1"},
		"no END": {gpus: 2, run: func(n string) string { return strings.TrimSuffix(ran(n, exit0, gpu0), "END\n") }, want: probe.Unknown,
			reason: noEnd, reboot: true},
		"no record":              {gpus: 2, want: probe.Unknown, reason: noEnd, reboot: true},
		"no record, few devices": {gpus: 1, want: probe.Fail, reason: "10de:11b4: 2 wanted, 1 seen; " + noEnd, reboot: true},
		"another nonce":          {gpus: 2, run: func(string) string { return ran("0123abcd", exit0) }, want: probe.Unknown, reason: noEnd, reboot: true},
		"a line is broken": {gpus: 2, run: func(n string) string { return strings.Replace(ran(n, exit0, gpu0, gpu1), "Quadro", "Quad", 1) },
			want:   probe.Unknown,
			reason: "1 line of the command's output did not arrive whole"},
		"powered off": {gpus: 2, cloud: func(b *bed) { b.Instances[0].More = map[string]any{"status": "SHUTOFF"} }, want: probe.Unknown,
			reason: "the guest was powered off before it reported; " + noEnd, reboot: true},
		"deleted": {gpus: 2, cloud: func(b *bed) { b.Instances = nil }, want: probe.Unknown,
			reason: "another client has deleted the server; " + noEnd, reboot: true},
		"after messages": {gpus: 2, run: func(n string) string { return strings.Repeat(xid, 3200) + ran(n, exit1) }, want: probe.Fail,
			reason: "the command returned exit status 1"},
		"failed by Nova": {gpus: 2, cloud: failed, want: probe.Fail, reason: "nova: it crashed; " + noEnd},
		"failed by Nova, a line is broken": {gpus: 2, run: func(n string) string { return strings.Replace(ran(n, exit0, gpu0, gpu1), "Quadro", "Quad", 1) },
			cloud: failed, want: probe.Fail, reason: "nova: it crashed; 1 line of the command's output did not arrive whole"},
		"failed by Nova, few devices": {gpus: 1, cloud: failed, want: probe.Fail, reason: "10de:11b4: 2 wanted, 1 seen; nova: it crashed; " + noEnd},
		"no log": {gpus: 2, cloud: func(b *bed) { b.Boot.NoLog = 500 }, want: probe.Unknown,
			reason: "the console log cannot be read: console log of server ID: Unable to get console log, functionality not implemented " +
				"(HTTP 500, REQUEST); " + noEnd},
		"no log any more for the user": {gpus: 2, cloud: func(b *bed) { b.Boot.NoLog = 403 }, want: probe.Unknown,
			reason: "console log of server ID: permission denied: Unable to get console log, functionality not implemented (HTTP 403, REQUEST); " + noEnd},
	} {
		t.Run(name, func(t *testing.T) {
			command, err := probe.NewCommand("nvidia-smi -L; secret", time.Second)
			hosttest.NoError(t, err)
			b := newBed(t, servertest.Options{Timeout: time.Minute, Command: command})
			b.kind.Pace.Look, b.kind.Pace.Report = time.Millisecond, 50*time.Millisecond
			looks := 0
			b.Boot.Console = func(nonce, data string) string {
				text := "[    1.0] booting\n" + counted(nonce, test.gpus)
				if looks++; looks == 1 || !strings.Contains(data, "secret") {
					return text
				}
				if test.cloud != nil {
					test.cloud(b)
				}
				if test.run != nil {
					text += test.run(nonce)
				}
				const most = 100 << 10 // Nova, nova/virt/libvirt/driver.py, MAX_CONSOLE_BYTES
				return text[max(0, len(text)-most):]
			}
			servers, entry, err := b.create(t)
			hosttest.NoError(t, err)
			tested := b.test(servertest.Evidence{})
			outcomes := tested.Watch(t.Context(), servers)
			o := outcomes[0]
			if got := slices.ContainsFunc(o.Hints, func(h host.Text) bool { return strings.Contains(h.String(), "rebooted") }); got != test.reboot {
				t.Errorf("hints %q", o.Hints)
			}
			got := regexp.MustCompile(`req-[0-9]+`).ReplaceAllString(strings.ReplaceAll(strings.Join(o.Reasons, "; "), o.ID, "ID"), "REQUEST")
			if o.Err != nil || o.Verdict != test.want || got != test.reason {
				t.Errorf("%v, %s, %q, want %s, %q", o.Err, o.Verdict, got, test.want, test.reason)
			}
			if text := strings.Join(o.Console, "\n"); strings.Contains(text, "GPUSTACK-RUN") || strings.Contains(text, "K4200 (UUID") {
				t.Errorf("output of the command is shown:\n%s", text)
			}
			if err := tested.End(t.Context(), entry, outcomes); err != nil || len(b.Left()) != 0 || !outcomes[0].Deleted {
				t.Errorf("%v, left %q", err, b.Left())
			}
			hosttest.EqualIn(t, "the entry", change.Undone, b.status(t, entry))
		})
	}
}

// TestRunTime: the time of the command begins when the devices were counted, and the end that the
// server's metadata names includes it.
func TestRunTime(t *testing.T) {
	command, err := probe.NewCommand("true", time.Hour)
	hosttest.NoError(t, err)
	with, without := newBed(t, servertest.Options{Timeout: time.Minute, Command: command}).plan, newBed(t, servertest.Options{Timeout: time.Minute}).plan
	if longer := with.Ends.Sub(without.Ends).Round(10 * time.Second); longer != time.Hour+30*time.Second {
		t.Errorf("%s longer", longer)
	}
	// A guest that does not count its devices is not waited for as long as the command could take.
	b := newBed(t, servertest.Options{Timeout: 100 * time.Millisecond, Command: command})
	servers, _, err := b.create(t)
	hosttest.NoError(t, err)
	begin := time.Now()
	o := b.test(servertest.Evidence{}).Watch(t.Context(), servers)[0]
	if took := time.Since(begin); o.Verdict != probe.Unknown || took > 10*time.Second {
		t.Errorf("%+v after %s", o, took)
	}
}

// TestRunInterrupted: an interruption while the command runs leaves the verdict unknown, and the
// server is deleted.
func TestRunInterrupted(t *testing.T) {
	command, err := probe.NewCommand("sleep 60", time.Hour)
	hosttest.NoError(t, err)
	b := newBed(t, servertest.Options{Timeout: time.Minute, Command: command})
	ctx, cancel := context.WithCancelCause(t.Context())
	looks := 0
	b.Boot.Console = func(nonce, _ string) string {
		if looks++; looks == 3 {
			cancel(errors.New("interrupted"))
		}
		return counted(nonce, 2)
	}
	servers, entry, err := b.create(t)
	hosttest.NoError(t, err)
	tested := b.test(servertest.Evidence{})
	outcomes := tested.Watch(ctx, servers)
	if o := outcomes[0]; o.Verdict != probe.Unknown || o.Err == nil {
		t.Errorf("%+v", o)
	}
	if err := tested.End(ctx, entry, outcomes); err == nil || err.Error() != "interrupted, no server of the test is left" || len(b.Left()) != 0 {
		t.Errorf("%v, left %q", err, b.Left())
	}
}

// TestRunRecord: the journal has the hash of the command, and entries of earlier commits, which
// have none, are read.
func TestRunRecord(t *testing.T) {
	command, err := probe.NewCommand("secret", time.Minute)
	hosttest.NoError(t, err)
	b := newBed(t, servertest.Options{Command: command})
	_, entry, err := b.create(t)
	hosttest.NoError(t, err)
	r, err := servertest.ParseRecord(entry)
	if err != nil || r.Run != command.Hash() || len(r.Run) != len("sha256:")+64 || bytes.Contains(entry.Detail(), []byte("secret")) {
		t.Errorf("%v: %s", err, entry.Detail())
	}
	earlier := bytes.Replace(entry.Detail(), []byte(`"run_hash": "`+r.Run+`",`), nil, 1)
	if bytes.Equal(earlier, entry.Detail()) {
		earlier = bytes.Replace(entry.Detail(), []byte(`"run_hash":"`+r.Run+`",`), nil, 1)
	}
	if bytes.Contains(earlier, []byte("run_hash")) {
		t.Fatalf("%s", earlier)
	}
	old := entry
	hosttest.NoError(t, old.SetDetail(json.RawMessage(earlier)))
	if r, err := servertest.ParseRecord(old); err != nil || r.Run != "" || len(r.Servers) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}
