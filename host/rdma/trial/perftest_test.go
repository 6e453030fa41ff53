package trial_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gpustack/host"
	"gpustack/host/engine"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/host/rdma"
	"gpustack/host/rdma/trial"
)

// playedPerf is a program of perftest: without an address it is the server. A connection is a file for
// each program. $serves and $measures may replace what a side does.
const playedPerf = `#!/bin/sh
name=${0##*/} at=$0.$$
echo "$name $*" >>${0%/*}/asked
case " $* " in *" --help "*) cat ${0%/*}/help; exit 1 ;; esac
prev=
for a; do
	case $prev in -s) size=$a ;; -n) count=$a ;; esac
	case $a in *.*) [ "$prev" = --bind_source_ip ] || [ "$prev" = --source_ip ] || peer=$a ;; esac
	prev=$a
done
report() {
	echo " WARNING: BW peak won't be measured in this run."
	echo "---------------------------------------------------------------------------------------"
	case $name in
	*_bw)
		echo " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]"
		echo "Conflicting CPU frequency values detected: 2000.000000 != 2998.216000. CPU Frequency is not max."
		echo " $size      $count             12000.00            11920.93		   0.190735" ;;
	*)
		echo " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec] " \
			" 99% percentile[usec]   99.9% percentile[usec] "
		echo " $size       $count          0.88           6.84         0.98   	       1.03     	0.20		1.21 		5.42" ;;
	esac
	echo "---------------------------------------------------------------------------------------"
}
serves() {
	: >$0.up
	while [ ! -e $0.done ]; do sleep 0.01; done
	rm $0.up $0.done
	[ $name = ib_read_lat ] || report
}
measures() {
	[ -e $0.up ] || { echo "Unexpected CM event bl blka 8" >&2; echo " Unable to perform rdma_client function" >&2; exit 1; }
	report
	: >$0.done
}
`

const (
	newHelp = "  -R, --rdma_cm  Connect QPs\n      --ipv6-addr=<IPv6>  Use\n      --bind_source_ip  Source IP\n"
	oldHelp = "  -R, --rdma_cm  Connect QPs\n      --source_ip  Source IP\n"
)

// runner returns a runner with playedPerf programs. changes is shell code before a side begins.
func runner(t *testing.T, help, changes string) host.Runner {
	t.Helper()
	root := hosttest.Root(t, "/")
	dir := t.TempDir()
	hosttest.NoError(t, os.WriteFile(filepath.Join(dir, "help"), []byte(help), 0o644))
	for _, name := range trial.Perftest(host.UnknownFamily).Names {
		hosttest.Program(t, dir, name, playedPerf+changes+"\nif [ \"$peer\" ]; then measures; else serves; fi\n")
	}
	return host.Runner{Root: root, Dirs: []string{dir}}
}

// newPerfTest returns a test of a device that this machine does not have.
func newPerfTest(r host.Runner, ip string) trial.Test {
	address := trial.Address{IP: netip.MustParseAddr(ip), Netdev: "eth9"}
	return trial.Test{
		Options: trial.Options{Perf: true, Port: 7174, Count: 5000, Size: trial.PerfSize, Timeout: 20 * time.Second}, Programs: trial.Perftest(host.DebianFamily), Runner: r,
		Root:   r.Root,
		Target: trial.Target{Adapter: rdma.Adapter{Name: "gpustack-none"}, Port: rdma.Port{Number: 1}, Addresses: []trial.Address{address}}, Source: address,
	}
}

func asked(t *testing.T, r host.Runner) []string {
	t.Helper()
	text := hosttest.Read(t, filepath.Join(r.Dirs[0], "asked"))
	return strings.Split(strings.TrimSpace(text), "\n")
}

// measured returns the measurements of a result in one line each.
func measured(r trial.Result) (lines []string) {
	for _, m := range r.Measurements {
		line := m.Program + ": none"
		if m.Report != nil {
			line = m.Program + ": " + shown(*m.Report, nil)
		}
		if m.Contained {
			line += " in a container"
		}
		lines = append(lines, line)
	}
	return lines
}

const (
	rates   = "5000 x 65536: 12500001096 B/s, peak 12582912000, 190735 messages/s"
	latency = "5000 x 2: 0.88 < 0.98 (1.03) < 1.21 < 6.84 us"
)

var complete = []string{"ib_write_bw: " + rates, "ib_read_bw: " + rates, "ib_send_bw: " + rates,
	"ib_write_lat: " + latency, "ib_read_lat: " + latency, "ib_send_lat: " + latency}

// TestPerfLoopback: the programs run one after the other, each server before its client.
func TestPerfLoopback(t *testing.T) {
	t.Parallel()
	r := runner(t, newHelp, "")
	got, err := newPerfTest(r, "192.0.2.1").Loopback(t.Context())
	if err != nil || got.Verdict != trial.Pass || !slices.Equal(measured(got), complete) || got.Iterations != 30000 || got.Bytes != 5000*3*(65536+2) ||
		got.Seconds == nil {
		t.Errorf("%+v, %v", got, err)
	}
	const options = " -R -F -d gpustack-none -i 1 -p 7174 -n 5000 --bind_source_ip 192.0.2.1"
	for _, line := range []string{"ib_write_bw --help", "ib_write_bw -s 65536" + options, "ib_write_bw -s 65536" + options + " 192.0.2.1",
		"ib_read_lat -s 2" + options + " 192.0.2.1"} {
		if !slices.Contains(asked(t, r), line) {
			t.Errorf("not asked %q: %q", line, asked(t, r))
		}
	}
}

// TestPerfOptions: options that only some releases of perftest have are given to those alone.
func TestPerfOptions(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ help, ip, want string }{
		"new":          {newHelp, "192.0.2.1", " -n 5000 --bind_source_ip 192.0.2.1 192.0.2.1"},
		"old":          {oldHelp, "192.0.2.1", " -n 5000 --source_ip 192.0.2.1 192.0.2.1"},
		"oldest":       {"-R, --rdma_cm  Connect", "192.0.2.1", " -n 5000 192.0.2.1"},
		"new and IPv6": {newHelp, "2001:db8::1", " -n 5000 --ipv6 --ipv6-addr --bind_source_ip 2001:db8::1"},
		"old and IPv6": {oldHelp, "2001:db8::1", "error: gpustack-none port 1 at 2001:db8::1: this release of perftest connects by IPv4 only: it " +
			"has no option --ipv6-addr"},
		"not perftest": {"usage: x", "192.0.2.1", "error: perftest cannot be used: ib_write_bw --help: exit status 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := runner(t, test.help, "[ \"$peer\" ] || exit 1")
			_, err := newPerfTest(r, test.ip).Peer(t.Context(), netip.MustParseAddr(test.ip))
			if want, refused := strings.CutPrefix(test.want, "error: "); refused {
				hosttest.Equal(t, want, fmt.Sprint(err))
				return
			}
			if lines := asked(t, r); err != nil || !strings.Contains(lines[1], test.want) {
				t.Errorf("%q, %v, want %q", lines, err, test.want)
			}
		})
	}
}

// TestPerfListenAndPeer: the two sides on two machines, which here share a folder.
func TestPerfListenAndPeer(t *testing.T) {
	t.Parallel()
	r := runner(t, newHelp, "[ \"$peer\" ] || sleep 0.2") // the next server is late
	listener := newPerfTest(r, "192.0.2.1")
	hosttest.Equal(t, "gpustack rdma test --perf --peer 192.0.2.1 --port 7174 --iterations 5000", listener.PeerCommand())
	type result struct {
		trial.Result
		err error
	}
	listened := make(chan result, 1)
	go func() {
		r, err := listener.Listen(t.Context())
		listened <- result{r, err}
	}()
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(r.Dirs[0], "ib_write_bw.up")); err == nil {
			break
		}
		if time.Since(begun) > 20*time.Second {
			t.Fatal("nothing listens")
		}
	}
	got, err := newPerfTest(r, "192.0.2.2").Peer(t.Context(), listener.Source.IP)
	if err != nil || got.Verdict != trial.Pass || !slices.Equal(measured(got), complete) {
		t.Errorf("peer: %+v, %v", got, err)
	}
	other := <-listened
	want := slices.Clone(complete)
	want[4] = "ib_read_lat: none"
	if other.err != nil || other.Verdict != trial.Pass || !slices.Equal(measured(other.Result), want) || other.Seconds != nil || other.Iterations != 25000 {
		t.Errorf("listener: %+v, %v", other.Result, other.err)
	}
	if got, err := newPerfTest(r, "192.0.2.2").Peer(t.Context(), listener.Source.IP); err != nil || got.Verdict != trial.Fail ||
		len(got.Causes) != 1 || !strings.Contains(got.Causes[0].Cause, "no program listens") {
		t.Errorf("nobody listens: %+v, %v", got, err)
	}
}

// TestPerfFailures: a program that fails ends the test, with its cause; what was measured before stays.
func TestPerfFailures(t *testing.T) {
	t.Parallel()
	at := func(program, does string) string { return "[ $name = " + program + " ] && { " + does + "; }" }
	for name, test := range map[string]struct {
		changes  string
		measured int
		cause    string
		remedy   string
	}{
		"no server": {`[ "$peer" ] || { echo " rdma_bind_addr failed" >&2; exit 1; }`, 0, "another program listens", "--port"},
		"the server dies": {at("ib_read_bw", `if [ "$peer" ]; then while [ ! -e $0.up ]; do sleep 0.01; done; echo "ethernet_read_keys: `+
			`Couldn't read remote address" >&2; exit 1; fi; : >$0.up; kill -9 $$`), 1, "the other side has ended", "--iterations"},
		"killed": {at("ib_write_lat", `kill -9 $$`), 3, "signal: killed", "gpustack rdma check"},
		"cut": {at("ib_write_bw", `[ "$peer" ] && { while [ ! -e $0.up ]; do sleep 0.01; done; report | head -4; : >$0.done; exit 0; }`), 0,
			"ib_write_bw: the report has no figures", "see what it prints: ib_write_bw -s 65536 -R"},
		"silent": {at("ib_read_lat", `[ "$peer" ] && { while [ ! -e $0.up ]; do sleep 0.01; done; : >$0.done; exit 0; }`), 4,
			"ib_read_lat: printed no report", "ib_read_lat -s 2"},
		"another measurement": {at("ib_read_lat", `count=6`), 4, "ib_read_lat: the report is malformed: it is about 6 iterations of 2 bytes", "ib_read_lat"},
		"retries": {at("ib_write_bw", `[ "$peer" ] && { while [ ! -e $0.up ]; do sleep 0.01; done; report | head -3; echo " Failed `+
			`status 12: wr_id 0 syndrom 0x81" >&2; : >$0.done; exit 1; }`), 0, "does not acknowledge", "4791"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := newPerfTest(runner(t, newHelp, test.changes), "192.0.2.1").Loopback(t.Context())
			if err != nil || got.Verdict != trial.Fail || len(got.Measurements) != test.measured {
				t.Fatalf("%+v, %v", got, err)
			}
			if !slices.ContainsFunc(got.Causes, func(c trial.Cause) bool {
				return strings.Contains(c.Cause, test.cause) && strings.Contains(c.Remedy.String(), test.remedy)
			}) {
				t.Errorf("%+v", got.Causes)
			}
		})
	}
	t.Run("fails after its report", func(t *testing.T) {
		t.Parallel()
		const fails = `measures() { [ -e $0.up ] || { echo "Unexpected CM event bl blka 8" >&2; exit 1; }; report; : >$0.done; echo "Failed to ` +
			`disconnect RDMA CM connection." >&2; exit 1; }`
		got, err := newPerfTest(runner(t, newHelp, at("ib_write_bw", fails)), "192.0.2.1").Loopback(t.Context())
		if err != nil || got.Verdict != trial.Pass || len(got.Warnings) != 1 ||
			!strings.Contains(got.Warnings[0], "gpustack-none port 1: ib_write_bw failed after its report") {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// TestPerfTimeLimit: no program outlives the limit of the whole test, or the end of its context.
func TestPerfTimeLimit(t *testing.T) {
	t.Parallel()
	const hangs = "trap '' INT TERM; echo $$ >>${0%/*}/pids; exec sleep 600"
	peer := netip.MustParseAddr("192.0.2.7")
	for name, test := range map[string]struct {
		run   func(context.Context, trial.Test) (trial.Result, error)
		cause string
	}{
		"listen":   {func(ctx context.Context, x trial.Test) (trial.Result, error) { return x.Listen(ctx) }, "no peer completed a test within 1s"},
		"peer":     {func(ctx context.Context, x trial.Test) (trial.Result, error) { return x.Peer(ctx, peer) }, "did not end within 1s"},
		"loopback": {func(ctx context.Context, x trial.Test) (trial.Result, error) { return x.Loopback(ctx) }, "did not end within 1s"},
		"cancelled": {func(ctx context.Context, x trial.Test) (trial.Result, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			x.Timeout = time.Minute
			return x.Listen(ctx)
		}, "was stopped"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := runner(t, newHelp, hangs)
			x := newPerfTest(r, "192.0.2.1")
			x.Timeout = time.Second
			begun := time.Now()
			got, err := test.run(t.Context(), x)
			if err != nil || got.Verdict != trial.Fail || len(got.Causes) != 1 || !strings.Contains(got.Causes[0].Cause, test.cause) ||
				time.Since(begun) > 30*time.Second {
				t.Errorf("%+v, %v", got, err)
			}
			pids := hosttest.Read(t, filepath.Join(r.Dirs[0], "pids"))
			for _, pid := range strings.Fields(pids) {
				for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
					if _, err := os.Stat("/proc/" + pid); errors.Is(err, os.ErrNotExist) {
						break
					}
					if time.Since(begun) > 20*time.Second {
						t.Fatalf("process %s still runs", pid)
					}
				}
			}
		})
	}
	t.Run("of all programs together", func(t *testing.T) {
		t.Parallel()
		x := newPerfTest(runner(t, newHelp, "[ $name = ib_read_bw ] && exec sleep 600"), "192.0.2.1")
		x.Timeout = 3 * time.Second
		got, err := x.Loopback(t.Context())
		if err != nil || got.Verdict != trial.Fail || len(got.Measurements) != 1 || !strings.Contains(got.Causes[0].Cause, "did not end within 3s") {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// playedPodman runs what begins with --entrypoint as a program of its own folder.
const playedPodman = `#!/bin/sh
case $1 in image) echo id; exit 0 ;; rm) exit 0 ;; esac
[ -e ${0%/*}/bare ] && { echo 'Error: crun: executable file ib_write_bw not found in $PATH: No such file or directory' >&2; exit 127; }
echo "$*" >>$0.asked
while [ "$1" != --entrypoint ]; do shift; done
entry=$2; shift 3
exec ${0%/*}/$entry "$@"
`

// TestPerfContainers: with an image, the programs are run on the machine and then in containers.
func TestPerfContainers(t *testing.T) {
	t.Parallel()
	r := runner(t, newHelp, "")
	hosttest.Program(t, r.Dirs[0], "podman", playedPodman)
	x := newPerfTest(r, "192.0.2.1")
	x.Container = &engine.Container{Image: "localhost/rdma:1", Engine: "podman", Network: "host", Devices: []string{"gpustack.local/hca=rxe0"}}
	got, err := x.Loopback(t.Context())
	want := slices.Clone(complete)
	for _, line := range complete {
		want = append(want, line+" in a container")
	}
	if err != nil || got.Verdict != trial.Pass || !slices.Equal(measured(got), want) {
		t.Errorf("%+v, %v", got, err)
	}
	text, err := os.ReadFile(filepath.Join(r.Dirs[0], "podman.asked"))
	if lines := strings.Split(strings.TrimSpace(string(text)), "\n"); err != nil || len(lines) < 13 || strings.Contains(string(text), "--privileged") {
		t.Errorf("%q, %v", lines, err)
	}
	if command := x.PeerCommand(); !strings.HasSuffix(command, " --container localhost/rdma:1") {
		t.Error(command)
	}
	hosttest.NoError(t, os.WriteFile(filepath.Join(r.Dirs[0], "bare"), nil, 0o644))
	if _, err := x.Loopback(t.Context()); !errors.Is(err, trial.ErrImagePerf) || !strings.HasPrefix(err.Error(), "localhost/rdma:1: ") {
		t.Error(err)
	}
}

// TestPerfMissing: the package of perftest is named as the distribution at hand names it.
func TestPerfMissing(t *testing.T) {
	t.Parallel()
	for family, want := range map[host.Family]string{
		host.DebianFamily: "apt-get install perftest", host.UbuntuFamily: "apt-get install perftest", host.RHELFamily: "dnf install perftest",
		host.SUSEFamily:    "zypper install perftest",
		host.UnknownFamily: "the packages of this distribution: apt-get install perftest, or dnf install perftest, or zypper install perftest",
	} {
		p := trial.Perftest(family)
		err := p.Ready(host.Runner{Root: hosttest.Bare(t)})
		var hint interface{ Hint() string }
		if !errors.Is(err, p.Missing) || !errors.As(err, &hint) || hint.Hint() != want {
			t.Errorf("%q: %v, %v, want %q", family, err, hint, want)
		}
	}
	r := runner(t, newHelp, "")
	p := trial.Perftest(host.DebianFamily)
	if err := p.Ready(r); err != nil {
		t.Error(err)
	}
	hosttest.NoError(t, os.Remove(filepath.Join(r.Dirs[0], "ib_read_lat")))
	if err := p.Ready(r); !errors.Is(err, p.Missing) {
		t.Errorf("one program is missing: %v", err)
	}
}

// TestPerfCheckOptions: all errors of options at once.
func TestPerfCheckOptions(t *testing.T) {
	t.Parallel()
	if err := (trial.Options{Perf: true, Port: 1, Count: trial.MaxCount, Size: trial.PerfSize, Timeout: time.Second}).Check(); err != nil {
		t.Error(err)
	}
	err := trial.Options{Perf: true, Count: 4, Size: trial.PerfSize}.Check()
	if want := "--port 0: must be 1 to 65535\n--iterations 4: must be 5 to 100000\n--wait 0s: must be more than 0"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestPerfMachine: all ports are measured, with what each can carry; virtual functions use the link of
// their physical function, and software devices have none.
func TestPerfMachine(t *testing.T) {
	t.Parallel()
	r := runner(t, newHelp, "")
	root := hosttest.Lay(t, `
-- etc/os-release --
ID=fedora
-- sys/bus/pci/devices/0000:0c:00.0/current_link_width --
16
-- sys/bus/pci/devices/0000:0c:00.0/max_link_width --
16
-- sys/bus/pci/devices/0000:0c:00.0/current_link_speed --
16.0 GT/s PCIe
-- sys/bus/pci/devices/0000:0c:00.0/max_link_speed --
16.0 GT/s PCIe
`)
	m := trial.Machine{Root: root, Runner: r, Programs: trial.Perftest(host.RHELFamily), Request: trial.Request{
		Options: trial.Options{Perf: true, Port: 7174, Count: 5000, Size: trial.PerfSize, Timeout: 20 * time.Second},
	}}
	address, err := pci.ParseAddress("0000:0c:00.0")
	vf, err2 := pci.ParseAddress("0000:0c:00.1")
	hosttest.NoError(t, errors.Join(err, err2))
	product := "MT28908 Family [ConnectX-6]"
	for _, a := range []rdma.Adapter{
		{Name: "gpustack-none", Address: &address, Driver: "mlx5_core", Firmware: "20.31.1014", Product: &product},
		{Name: "gpustack-none", Address: &vf, PF: &address}, {Name: "gpustack-none"},
	} {
		ip := netip.MustParseAddr(fmt.Sprintf("192.0.2.%d", len(m.Targets)+1))
		m.Targets = append(m.Targets, trial.Target{Adapter: a, Port: rdma.Port{Number: 1, Rate: "200 Gb/sec (4X HDR)", LinkLayer: rdma.LinkInfiniBand},
			Addresses: []trial.Address{{IP: ip}}})
	}
	var begun []string
	tests, err := m.Loopback(t.Context(), func(x trial.Test) { begun = append(begun, x.Source.IP.String()) })
	if err != nil || len(tests) != 3 || !slices.Equal(begun, []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"}) {
		t.Fatalf("%+v, %v", tests, err)
	}
	for i, want := range []string{"200 Gb/sec (4X HDR) 200, x16 16.0 GT/s PCIe 252", "200 Gb/sec (4X HDR) 200, x16 16.0 GT/s PCIe 252", "none, none"} {
		h := tests[i].Hardware
		got := []string{"none", "none"}
		for j, c := range []*trial.Capacity{h.Port, h.Link} {
			if c != nil {
				got[j] = fmt.Sprintf("%s %.0f", c.Name, c.Gbps)
			}
		}
		if strings.Join(got, ", ") != want || tests[i].Verdict != trial.Pass {
			t.Errorf("%s: %s, want %s", begun[i], got, want)
		}
	}
	if h := tests[0].Hardware; h.Product != product || h.Driver != "mlx5_core" || h.Firmware != "20.31.1014" {
		t.Errorf("%+v", h)
	}
	bandwidth := tests[0].Measurements[0].Report.Bandwidth.Average
	h := tests[0].Hardware
	if port, link := h.Port.Percent(bandwidth), h.Link.Percent(bandwidth); fmt.Sprintf("%.1f %.1f", *port, *link) != "50.0 39.7" {
		t.Errorf("%v %v", *port, *link)
	}
	if tests[2].Hardware.Port.Percent(bandwidth) != nil {
		t.Error("per cent of an unknown rate")
	}
	if _, err := m.Listen(t.Context(), func(trial.Test) { t.Error("begins at one of several ports") }); err == nil {
		t.Error("listens at several ports")
	}
}
