package integration

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gpustack/host/hosttest"
)

// playedRping is rping as rdma test sees it. A client sees a listener by its file, and asks for as
// many iterations as it prints.
const playedRping = `#!/bin/sh
for a; do [ "$prev" = -C ] && count=$a; prev=$a; done
echo $$ >/pid
if [ "$1" = -s ]; then
	: >/up
	while [ ! -e /done ]; do sleep 0.02; done
	count=10
elif [ -e /alone ]; then
	echo "cma event RDMA_CM_EVENT_UNREACHABLE, error -110" >&2
	exit 255
else
	while [ ! -e /up ] && [ ! -e /remote ]; do sleep 0.02; done
	echo 140 >/sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts
fi
n=0
while [ $n -lt $count ]; do echo "server ping data: rdma-ping-$n: ABC"; n=$((n+1)); done
: >/done
`

// playedPerftest is each program of perftest as rdma test sees it: without an address it is the
// server. A client sees a server by its file, which a program removes at its end.
const playedPerftest = `#!/bin/sh
name=${0##*/}
case " $* " in *" --help "*) echo "  -R, --rdma_cm  Connect QPs"; echo "      --source_ip  Source IP"; exit 1 ;; esac
for a; do
	case $prev in -s) size=$a ;; -n) count=$a ;; esac
	case $a in *.*) [ "$prev" = --source_ip ] || peer=$a ;; esac
	prev=$a
done
if [ ! "$peer" ]; then
	echo $$ >/pid
	: >/up
	while [ ! -e /up.$name ]; do sleep 0.02; done
	rm /up.$name
	[ $name = ib_read_lat ] && exit 0
elif [ -e /alone ]; then
	echo "Unexpected CM event bl blka 7" >&2
	echo " Unable to perform rdma_client function" >&2
	exit 1
else
	echo 140 >/sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts
	[ -e /remote ] || : >/up.$name
fi
case $name in
*_bw)
	echo " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]"
	[ -e /cut ] || echo " $size      $count             0.00            953.67		   0.015259" ;;
*)
	echo " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] "
	echo " $size       $count          0.88           6.84         0.98   	       1.03     	0.20		1.21 		5.42" ;;
esac
`

// playedPodman is podman as rdma test sees it: it has one image, and runs its rping on the machine.
const playedPodman = `#!/bin/sh
case "$1 $*" in
image*" localhost/rdma:1" | image*" localhost/bare") echo id; exit 0 ;;
image*) echo "Error: inspecting object: $5: image not known" >&2; exit 125 ;;
esac
echo "$*" >>/asked
case "$*" in *" localhost/bare "*)
	echo "Error: runc: runc create failed: exec: rping: executable file not found in \$PATH" >&2
	exit 127
esac
while [ "$1" != --entrypoint ]; do shift; done
entry=$2; shift 3
exec $entry "$@"
`

// TestRDMATest: the whole binary with a played rping, in the tree of a real stack that is its root:
// both sides here, a peer, a listener, failures, a machine without rping, and Ctrl-C.
func TestRDMATest(t *testing.T) {
	t.Parallel()
	lay := func(t *testing.T, marks ...string) string {
		t.Helper()
		root := hosttest.RDMA(t, "testdata/rdma/debian12-rxe.txtar").Path("/")
		for _, dir := range []string{"bin", "dev", "usr/bin", "proc"} {
			hosttest.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
		}
		run(t, "cp", "/bin/busybox", filepath.Join(root, "bin/busybox"))
		run(t, "cp", gpustack, filepath.Join(root, "bin/gpustack"))
		for _, name := range []string{"sh", "sleep", "rm"} {
			hosttest.NoError(t, os.Symlink("busybox", filepath.Join(root, "bin", name)))
		}
		for name, text := range map[string]string{"dev/null": "", "usr/bin/rping": playedRping, "usr/bin/podman": playedPodman,
			"sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts": "100\n",
			"usr/bin/ib_write_bw": playedPerftest, "usr/bin/ib_read_bw": playedPerftest, "usr/bin/ib_write_lat": playedPerftest,
			"usr/bin/ib_read_lat": playedPerftest, "usr/bin/ib_send_bw": playedPerftest, "usr/bin/ib_send_lat": playedPerftest} {
			hosttest.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o755))
		}
		for _, mark := range marks {
			hosttest.NoError(t, os.WriteFile(filepath.Join(root, mark), nil, 0o644))
		}
		return root
	}
	// command runs in a network namespace that has the address of the stack.
	command := func(root string, args ...string) *exec.Cmd {
		const inside = `root=$1; shift
			ip link set lo up && ip address add 192.168.77.1/24 dev lo && exec chroot "$root" /bin/gpustack rdma test "$@"`
		return exec.Command("unshare", append([]string{"--net", "sh", "-c", inside, "sh", root}, args...)...)
	}
	for _, test := range []struct {
		name, args, marks string
		status            int
		output            []string // of both streams
	}{
		{"loopback", "", "", 0, []string{"pass: rxe0 port 1 (Ethernet, eth9 192.168.77.1, both sides here): 10 of 10 iterations of 64 bytes in ", "  sent_pkts +40\n"}},
		{"peer", "--peer 192.168.77.2 --iterations 1000 --size 4096", "remote", 0,
			[]string{"pass: rxe0 port 1 (Ethernet, eth9 192.168.77.1 to 192.168.77.2): 1000 of 1000 iterations of 4096 bytes", "  sent_pkts +40\n"}},
		{"listen", "--listen --device rxe0/1 --wait 5m", "done", 0,
			[]string{"rxe0 port 1 listens at 192.168.77.1 for 5m0s; on the other machine run: gpustack rdma test --peer 192.168.77.1 --port 7174 " +
				"--iterations 10 --size 64\n",
				"UDP port 4791", "10 of 10 iterations", "warning: rxe0 port 1: its counters of packets did not move"}},
		{"nobody comes", "--listen --wait 300ms", "", 2, []string{"fail: rxe0 port 1", "cause: no peer completed a test within 300ms"}},
		{"unreachable", "--peer 192.168.77.2", "alone", 2,
			[]string{"fail: rxe0", "rping: cma event RDMA_CM_EVENT_UNREACHABLE, error -110\n", "cause: the peer's connection manager does not answer", "UDP port 4791"}},
		{"other route", "--peer 127.0.0.1", "", 1, []string{"error: --peer 127.0.0.1: the route to 127.0.0.1 leaves by the address 127.0.0.1, which no RDMA port that can be tested has", "--device ADDRESS"}},
		{"families", "--peer ::1 --device rxe0", "", 1, []string{"--peer ::1: rxe0 port 1 has no address of this family: ::1"}},
		{"no device", "--device mlx5_7", "", 1, []string{"mlx5_7 is no RDMA device of this machine", "gpustack rdma scan lists them"}},
		{"bad values", "--iterations 0 --size 7 --listen --peer x", "", 1,
			[]string{"--iterations 0: must be 1 to 100000", "--size 7: must be 32 to 65535", "--listen and --peer cannot be combined"}},
		{"containers", "--container localhost/rdma:1", "", 0, []string{"pass: rxe0 port 1 (Ethernet, eth9 192.168.77.1, both sides here): 10 of 10 iterations",
			"  in containers: podman run --device /dev/infiniband/uverbs0:/dev/infiniband/uverbs0:rw --device /dev/infiniband/rdma_cm:/dev/infiniband/rdma_cm:rw localhost/rdma:1\n"}},
		{"container and peer", "--container localhost/rdma:1 --peer 192.168.77.2", "remote", 0, []string{"192.168.77.1 to 192.168.77.2", "  in containers: podman run "}},
		{"container listens", "--container localhost/rdma:1 --listen", "done", 0,
			[]string{"run: gpustack rdma test --peer 192.168.77.1 --port 7174 --iterations 10 --size 64 --container localhost/rdma:1\n"}},
		{"container unreachable", "--container localhost/rdma:1 --peer 192.168.77.2", "alone", 2, []string{"fail: rxe0", "cause: the peer's connection manager does not answer"}},
		{"no image", "--container localhost/other --peer 192.168.77.2", "remote", 1,
			[]string{"error: podman: localhost/other: no such image on this machine: a test pulls none\n", "podman pull IMAGE"}},
		{"no rping in the image", "--container localhost/bare --peer 192.168.77.2", "remote", 1, []string{"error: localhost/bare: the image has no rping\n", "rdmacm-utils"}},
		{"no name of an image", "--container -v", "", 1, []string{`--container "-v": is no name of an image`}},
		{"perf", "--perf", "", 0, []string{"pass: rxe0 port 1 (Ethernet, eth9 192.168.77.1, both sides here): 6 measurements of 5000 iterations in ",
			"  measured on: a software device, whose rate is not that of a link\n", "  ib_write_bw 65536   1000.0 MB/s (8.00 Gb/s), 15259 messages/s\n",
			"  ib_read_bw 65536    1000.0 MB/s", "  ib_send_bw 65536    1000.0 MB/s", "  ib_send_lat 2       0.98 µs",
			"  ib_write_lat 2      0.98 µs typical, 1.21 µs in 99 % of iterations\n", "  ib_read_lat 2       0.98 µs", "  sent_pkts +40\n"}},
		{"perf of a peer", "--perf --peer 192.168.77.2 --iterations 20", "remote", 0,
			[]string{"eth9 192.168.77.1 to 192.168.77.2): 6 measurements of 20 iterations"}},
		{"perf for a peer", "--perf --listen", "up.ib_write_bw up.ib_read_bw up.ib_send_bw up.ib_write_lat up.ib_read_lat up.ib_send_lat", 0,
			[]string{"for 10m0s; on the other machine run: gpustack rdma test --perf --peer 192.168.77.1 --port 7174 --iterations 5000\n",
				"  ib_read_lat         done: the other machine has the figures\n"}},
		{"perf, nobody comes", "--perf --listen --wait 1s", "", 2,
			[]string{"fail: rxe0 port 1", "0 measurements", "cause: no peer completed a test within 1s", "gpustack rdma test --perf --peer 192.168.77.1"}},
		{"perf, unreachable", "--perf --peer 192.168.77.2", "alone", 2,
			[]string{"fail: rxe0", "perftest: Unexpected CM event bl blka 7\n", "cause: the peer's connection manager does not answer", "UDP port 4791"}},
		{"perf, cut", "--perf", "cut", 2, []string{"fail: rxe0", "cause: ib_write_bw: the report has no figures",
			"remedy: see what it prints: ib_write_bw -s 65536 -R -F -d rxe0"}},
		{"perf in containers", "--perf --container localhost/rdma:1", "", 0,
			[]string{"12 measurements of 5000 iterations", "  ib_write_bw 65536   1000.0 MB/s (8.00 Gb/s), 15259 messages/s\n    in a container    1000.0 MB/s (8.00 Gb/s), 15259 messages/s\n",
				"  in containers: podman run --device "}},
		{"no perftest in the image", "--perf --container localhost/bare", "", 1,
			[]string{"error: localhost/bare: the image has no perftest\n", "install perftest and ibverbs-providers"}},
		{"bad values of perf", "--perf --iterations 4 --size 64", "", 1,
			[]string{"--iterations 4: must be 5 to 100000", "--perf and --size cannot be combined"}},
		{"root", "--root /proc", "", 1, []string{`--root "/proc": rdma test moves data through the adapters of the running machine, and needs --root /`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			root := lay(t, strings.Fields(test.marks)...)
			stdout, stderr, status := try(t, command(root, strings.Fields(test.args)...))
			hosttest.EqualIn(t, "exit status", test.status, status)
			for _, want := range test.output {
				if !strings.Contains(stdout+stderr, want) {
					t.Errorf("%q is missing in:\n%s%s", want, stdout, stderr)
				}
			}
			if left, err := filepath.Glob(filepath.Join(root, "var/lib/gpustack*")); err != nil || left != nil {
				t.Errorf("a test records nothing: %v, %v", left, err)
			}
		})
	}
	t.Run("json", func(t *testing.T) {
		t.Parallel()
		root := lay(t)
		stdout, stderr, status := try(t, command(root, "-o", "json"))
		var report struct {
			Verdict string
			Tests   []struct {
				Name, IP   string
				Iterations int
				Counted    *bool `json:"packets_counted"`
			}
		}
		if err := json.Unmarshal([]byte(stdout), &report); err != nil || status != 0 || report.Verdict != "pass" || len(report.Tests) != 1 {
			t.Fatalf("exit status %d, %v: %s%s", status, err, stdout, stderr)
		}
		if r := report.Tests[0]; r.Name != "rxe0" || r.IP != "192.168.77.1" || r.Iterations != 10 || r.Counted == nil || !*r.Counted {
			t.Errorf("%s", stdout)
		}
	})
	t.Run("perf json", func(t *testing.T) {
		t.Parallel()
		root := lay(t)
		stdout, stderr, status := try(t, command(root, "--perf", "-o", "json"))
		var report struct {
			Program, Verdict string
			Tests            []struct {
				Iterations   int
				Measurements []struct {
					Program   string
					Contained bool `json:"in_container"`
					Report    struct {
						Bytes     int `json:"message_bytes"`
						Bandwidth *struct {
							Average float64  `json:"average_bytes_per_second"`
							Peak    *float64 `json:"peak_bytes_per_second"`
							Rate    *float64 `json:"messages_per_second"`
						}
						Latency *struct {
							P99 float64 `json:"ninety_ninth_percentile_us"`
						}
					}
				}
			}
		}
		if err := json.Unmarshal([]byte(stdout), &report); err != nil || status != 0 || report.Program != "perftest" || report.Verdict != "pass" ||
			len(report.Tests) != 1 || len(report.Tests[0].Measurements) != 6 {
			t.Fatalf("exit status %d, %v: %s%s", status, err, stdout, stderr)
		}
		one := report.Tests[0]
		if b := one.Measurements[0].Report.Bandwidth; one.Iterations != 30000 || b == nil || b.Rate == nil || *b.Rate != 15259 || b.Average < 999e6 ||
			b.Average > 1001e6 || b.Peak != nil {
			t.Errorf("%s", stdout)
		}
		if l := one.Measurements[4]; l.Program != "ib_read_lat" || l.Report.Bytes != 2 || l.Contained || l.Report.Latency == nil || l.Report.Latency.P99 != 1.21 {
			t.Errorf("%s", stdout)
		}
		hosttest.NoError(t, os.Remove(filepath.Join(root, "usr/bin/ib_read_lat")))
		writeFile(t, filepath.Join(root, "etc/os-release"), "ID=rocky\nID_LIKE=\"rhel centos fedora\"\n")
		for _, options := range [][]string{{"--perf"}, {"--perf", "--container", "localhost/rdma:1"}} {
			if _, stderr, status := try(t, command(root, options...)); status != 1 || !strings.Contains(stderr, "error: perftest is not installed\n") ||
				!strings.Contains(stderr, "dnf install perftest") {
				t.Errorf("%s: exit status %d: %s", options, status, stderr)
			}
		}
	})
	t.Run("container by CDI", func(t *testing.T) {
		t.Parallel()
		root := lay(t)
		writeFile(t, filepath.Join(root, "run/cdi/hca.json"), `{"cdiVersion":"0.5.0","kind":"gpustack.local/hca",
"devices":[{"name":"rxe0","containerEdits":{"deviceNodes":[{"path":"/dev/infiniband/uverbs0","type":"c","permissions":"rw"}]}}],
"containerEdits":{"deviceNodes":[{"path":"/dev/infiniband/rdma_cm","type":"c","permissions":"rw"}]}}`)
		if err := os.Remove(filepath.Join(root, "usr/bin/rping")); err != nil { // only the image has it
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(root, "usr/local/bin/rping"), playedRping)
		hosttest.NoError(t, os.Chmod(filepath.Join(root, "usr/local/bin/rping"), 0o755))
		podman := strings.Replace(playedPodman, "exec $entry", "exec /usr/local/bin/$entry", 1)
		writeFile(t, filepath.Join(root, "usr/bin/podman"), podman)
		stdout, stderr, status := try(t, command(root, "--container", "localhost/rdma:1", "-o", "json"))
		var report struct {
			Containers struct{ Image, Engine string }
			Tests      []struct {
				Devices []string `json:"container_devices"`
			}
		}
		if err := json.Unmarshal([]byte(stdout), &report); err != nil || status != 0 || len(report.Tests) != 1 {
			t.Fatalf("exit status %d, %v: %s%s", status, err, stdout, stderr)
		}
		if c, d := report.Containers, report.Tests[0].Devices; c.Image != "localhost/rdma:1" || c.Engine != "podman" || len(d) != 1 || d[0] != "gpustack.local/hca=rxe0" {
			t.Errorf("%s", stdout)
		}
		if asked := hosttest.Read(t, filepath.Join(root, "asked")); strings.Count(asked, " --device gpustack.local/hca=rxe0 ") < 2 ||
			strings.Contains(asked, "/dev/") {
			t.Errorf("%s", asked)
		}
		hosttest.NoError(t, os.Remove(filepath.Join(root, "usr/bin/podman")))
		if _, stderr, status := try(t, command(root, "--container", "localhost/rdma:1")); status != 1 ||
			!strings.Contains(stderr, "error: neither podman, docker nor nerdctl is installed\n") {
			t.Errorf("exit status %d: %s", status, stderr)
		}
	})
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		root := lay(t)
		hosttest.NoError(t, os.Remove(filepath.Join(root, "usr/bin/rping")))
		hosttest.NoError(t, os.WriteFile(filepath.Join(root, "sys/class/infiniband/rxe0/ports/1/state"), []byte("1: DOWN\n"), 0o644))
		_, stderr, status := try(t, command(root))
		if status != 1 || !strings.Contains(stderr, "rping is not installed") || !strings.Contains(stderr, "apt install rdmacm-utils") {
			t.Errorf("exit status %d: %s", status, stderr)
		}
		hosttest.NoError(t, os.WriteFile(filepath.Join(root, "usr/bin/rping"), []byte(playedRping), 0o755))
		_, stderr, status = try(t, command(root))
		if status != 1 || !strings.Contains(stderr, "error: rxe0 port 1 is not ACTIVE: its state is DOWN (LinkUp)") {
			t.Errorf("exit status %d: %s", status, stderr)
		}
	})
	for _, test := range []struct {
		signal  syscall.Signal
		options []string
	}{{syscall.SIGINT, []string{"--listen"}}, {syscall.SIGKILL, []string{"--listen"}}, {syscall.SIGINT, []string{"--perf", "--listen"}},
		{syscall.SIGKILL, []string{"--perf", "--listen"}}} {
		signal, options := test.signal, test.options
		t.Run(signal.String()+" "+options[0], func(t *testing.T) {
			t.Parallel()
			root := lay(t)
			cmd := command(root, options...)
			hosttest.NoError(t, cmd.Start())
			await(t, filepath.Join(root, "up"))
			pid := hosttest.Read(t, filepath.Join(root, "pid"))
			hosttest.NoError(t, cmd.Process.Signal(signal))
			cmd.Wait()
			if status := cmd.ProcessState.ExitCode(); signal == syscall.SIGINT && status != 130 {
				t.Errorf("exit status %d", status)
			}
			for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
				stat, err := os.ReadFile("/proc/" + strings.TrimSpace(pid) + "/stat")
				if err != nil || strings.Contains(string(stat), ") Z ") {
					break
				}
				if time.Now().After(end) {
					t.Fatal("a program outlives gpustack")
				}
			}
		})
	}
}
