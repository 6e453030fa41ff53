package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"gpustack/host/guest"
	"gpustack/host/hosttest"
	"gpustack/integration/race"
)

// guests runs host guests on this machine, as a user.
func guests(t testing.TB, uid uint32) (guest.Report, int) {
	t.Helper()
	cmd := exec.Command(gpustack, "host", "guests", "-o", "json")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	stdout, stderr, status := try(t, cmd)
	r, err := guest.Decode([]byte(stdout))
	if err != nil || stderr != "" {
		t.Fatalf("%v\n%s%s", err, stdout, stderr)
	}
	return r, status
}

// unread returns why a source was not read, "" if it was.
func unread(r guest.Report, source string) string {
	for _, s := range r.Unread() {
		if s.Name == source {
			return string(s.State) + ": " + s.Detail
		}
	}
	return ""
}

// TestGuestsOfThisMachine: /proc is read whole, as far as this test, which is the same
// user, can read it: in a container, or with fewer capabilities than process 1, one
// cannot, and the report must say so.
func TestGuestsOfThisMachine(t *testing.T) {
	const uuid = "0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d"
	start := time.Now()
	pid := fakeQEMU(t, "qemu-system-x86_64", "-uuid", uuid, "-name", "guest=instance-00000001,debug-threads=on")
	r, status := guests(t, 0)
	if (status == 0) != r.Complete || status == 1 {
		t.Errorf("exit status %d, complete %t", status, r.Complete)
	}
	for _, source := range []string{"groups", "hostname", "boot_id", "boot_time", "nova.conf"} {
		hosttest.EqualIn(t, source, "", unread(r, source))
	}
	_, noID := os.Stat("/etc/machine-id") // which an image that was never booted lacks
	_, noPCI := os.Stat("/sys/bus/pci/devices")
	_, noBuses := os.Stat("/sys/bus")
	for source, closed := range map[string]error{
		"processes": firstNamespace(), "vfio": openFiles(), "machine_id": noID, "sriov": noPCI, "vdpa": noBuses,
	} {
		if why := unread(r, source); (why != "") != (closed != nil) {
			t.Errorf("%s: %q, and this test: %v", source, why, closed)
		}
	}
	found := false
	for _, g := range r.Guests {
		if g.UUID == nil || *g.UUID != uuid {
			continue
		}
		found = true
		if g.PID != pid || *g.Name != "instance-00000001" || g.Started.Before(start.Add(-3*time.Second)) || g.Started.After(time.Now().Add(3*time.Second)) {
			t.Errorf("%+v, started %s, not %d started %s", g, g.Started, pid, start)
		}
	}
	if !found {
		t.Errorf("pid %d is not among %+v", pid, r.Guests)
	}
	var clock unix.Timex
	state, err := unix.Adjtimex(&clock)
	if synchronized := state != unix.TIME_ERROR; err != nil || r.Clock == nil || r.Clock.Synchronized != synchronized {
		t.Errorf("%+v, %v, and this test: %d", r.Clock, err, state)
	}
	answer := r.Absent(guest.Claim{Host: *r.NovaHost, Guest: uuid, Since: start.Add(-time.Hour), Now: time.Now()})
	if answer.Proven {
		t.Errorf("%+v", answer)
	}
}

// TestGuestsAge: nova-compute's age counts from the start of its process, without the clock.
func TestGuestsAge(t *testing.T) {
	before := time.Now()
	pid := startReady(t, exec.Command(shellAs(t, "nova-compute"), "-c", "echo ready; read line"))
	time.Sleep(1100 * time.Millisecond)
	r, _ := guests(t, 0)
	for _, n := range r.NovaCompute {
		if n.PID != pid {
			continue
		}
		if most := int(time.Since(before) / time.Second); n.AgeSeconds == nil || *n.AgeSeconds < 1 || *n.AgeSeconds > most {
			t.Errorf("%+v, not 1 to %d seconds old", n, most)
		}
		return
	}
	t.Errorf("pid %d is not among %+v", pid, r.NovaCompute)
}

// TestGuestsOfProcessTree: each process below this one is seen once, children of children
// too, whatever the numbers it gets.
func TestGuestsOfProcessTree(t *testing.T) {
	var want []int
	for range 30 {
		want = append(want, fakeQEMU(t, "qemu-kvm", "-uuid", "11111111-2222-4333-8444-555555555555"))
	}
	parent := startReady(t, exec.Command("sh", "-c", `"$0" -c 'echo ready; read line' -uuid 11111111-2222-4333-8444-555555555555; true`, shellAs(t, "qemu-kvm")))
	r, _ := guests(t, 0)
	var got []int
	for _, g := range r.Guests {
		if g.Command != "qemu-kvm" {
			continue
		}
		if slices.Contains(want, g.PID) {
			got = append(got, g.PID)
		} else if stat := hosttest.Read(t, fmt.Sprintf("/proc/%d/stat", g.PID)); !strings.HasPrefix(stat, fmt.Sprintf("%d (qemu-kvm) S %d ", g.PID, parent)) {
			t.Errorf("%+v is no child of %d: %s", g, parent, stat)
		} else {
			parent = 0
		}
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" || parent != 0 {
		t.Errorf("the child's child of %d (0 is seen), (-want +got):\n%s", parent, diff)
	}
}

// TestGuestsUnprivileged: who may not look at open files has seen nothing, and no list
// that rests on them says none.
func TestGuestsUnprivileged(t *testing.T) {
	const nobody = 65534
	r, status := guests(t, nobody)
	if status != 2 || r.Complete || unread(r, "vfio") == "" || len(r.Holders) == 0 && r.Holders != nil {
		t.Errorf("exit status %d, %+v", status, r)
	}
	hosttest.Contains(t, "permission denied", unread(r, "vfio"))
}

// TestGuestsInContainer: in a PID namespace of its own, all that is shown can be read, and
// still it is not all there is.
func TestGuestsInContainer(t *testing.T) {
	stdout, stderr, status := try(t, exec.Command("unshare", "--pid", "--fork", "--mount-proc", gpustack, "host", "guests", "-o", "json"))
	if status != 2 {
		t.Fatalf("exit status %d: %s", status, stderr)
	}
	r, err := guest.Decode([]byte(stdout))
	hosttest.NoError(t, err)
	if why := unread(r, "processes"); !strings.Contains(why, "only the processes of a container are visible") || r.Guests != nil {
		t.Errorf("%s: %+v", why, r)
	}
	hosttest.Equal(t, "", unread(r, "vfio"))
}

// TestGuestsOfOtherView: a daemon's folders are read as it sees them, in a mount
// namespace of its own.
func TestGuestsOfOtherView(t *testing.T) {
	const uuid = "6f3e8a52-0d0c-4c3e-9d3b-2f8d0b9a7c11"
	daemon := shellAs(t, "libvirtd")
	cmd := exec.Command("unshare", "--mount", "sh", "-ec", `
		mount -t tmpfs none /etc
		mkdir -p /etc/libvirt/qemu
		printf '%s' "<domain><name>a</name><uuid>$1</uuid></domain>" >/etc/libvirt/qemu/a.xml
		exec "$0" -c 'echo ready; read line'`, daemon, uuid)
	pid := startReady(t, cmd)
	r, _ := guests(t, 0)
	file := fmt.Sprintf("/proc/%d/root/etc/libvirt/qemu/a.xml", pid)
	for _, d := range r.Domains {
		if d.UUID == uuid && d.Files[0] == file {
			hosttest.Equal(t, "", unread(r, "domains"))
			return
		}
	}
	t.Errorf("%s is not among %+v, %s", file, r.Domains, unread(r, "domains"))
}

// fakeQEMU starts a program by QEMU's name and arguments, which waits for the test's end.
func fakeQEMU(t testing.TB, name string, arguments ...string) (pid int) {
	t.Helper()
	return startReady(t, exec.Command(shellAs(t, name), append([]string{"-c", "echo ready; read line"}, arguments...)...))
}

// shellAs copies the shell to a folder of the test's, as a program of another name.
func shellAs(t testing.TB, name string) string {
	t.Helper()
	data := hosttest.Read(t, "/bin/sh")
	path := filepath.Join(t.TempDir(), name)
	hosttest.NoError(t, os.WriteFile(path, []byte(data), 0o755))
	return path
}

// startReady starts a command that says when it is ready and then waits for its input to
// end, which it does with the test.
func startReady(t testing.TB, cmd *exec.Cmd) (pid int) {
	t.Helper()
	stdin, err := cmd.StdinPipe()
	hosttest.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	hosttest.NoError(t, err)
	hosttest.NoError(t, cmd.Start())
	t.Cleanup(func() {
		stdin.Close()
		cmd.Wait()
	})
	if _, err := stdout.Read(make([]byte, 6)); err != nil {
		t.Fatalf("%q: %v", cmd.Args, err)
	}
	return cmd.Process.Pid
}

// firstNamespace is an error unless it can be seen that /proc shows the whole machine.
func firstNamespace() error {
	target, err := os.Readlink("/proc/1/ns/pid")
	if err == nil && target != "pid:[4026531836]" {
		err = errors.New(target)
	}
	return err
}

// openFiles is an error unless the open files of all processes can be seen.
func openFiles() error {
	links, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return err
	}
	for _, link := range links {
		if _, err := os.Readlink(link); errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	return nil
}

// BenchmarkGuests times host guests on a node with 2,000 processes of 40 open files
// each, a hundred of them guests with a device, and a search of the same links by find.
func BenchmarkGuests(b *testing.B) {
	root := b.TempDir()
	for name, text := range map[string]string{
		"proc/stat": "btime 1772352000\n", "proc/sys/kernel/hostname": "gpu1\n", "proc/sys/kernel/random/boot_id": "b\n",
		"etc/machine-id": "3d12f0d5c3a94e7b8a6d2b1c0e9f8a7b\n", "etc/nova/nova.conf": "[DEFAULT]\nhost = gpu1\n",
	} {
		write(b, filepath.Join(root, name), text)
	}
	to := func(name, target string) {
		path := filepath.Join(root, name)
		hosttest.NoError(b, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(target, path)))
	}
	write(b, filepath.Join(root, "proc/uptime"), "1000.00 1000.00\n")
	hosttest.NoError(b, os.MkdirAll(filepath.Join(root, "sys/bus/pci/devices"), 0o755))
	to("proc/1/ns/pid", "pid:[4026531836]")
	for pid := 1; pid <= 2000; pid++ {
		dir := fmt.Sprintf("proc/%d", pid)
		comm, argv := "sh", "sh\x00-c\x00true\x00"
		for n := range 40 {
			to(fmt.Sprintf("%s/fd/%d", dir, n), fmt.Sprintf("socket:[%d]", pid*100+n))
		}
		if pid%20 == 0 {
			uuid := fmt.Sprintf("0a1b2c3d-4e5f-4a6b-8c7d-%012x", pid)
			comm, argv = "qemu-system-x86", "qemu-system-x86_64\x00-uuid\x00"+uuid+"\x00"+strings.Repeat("-device\x00virtio-net-pci\x00", 100)
			to(dir+"/fd/40", fmt.Sprintf("/dev/vfio/%d", pid))
			function := fmt.Sprintf("%04x:00:00.0", pid)
			to(fmt.Sprintf("sys/kernel/iommu_groups/%d/devices/%s", pid, function), "../../../../devices/"+function)
			write(b, filepath.Join(root, "etc/libvirt/qemu", uuid+".xml"), "<domain><name>a</name><uuid>"+uuid+"</uuid></domain>\n")
		}
		write(b, filepath.Join(root, dir, "cmdline"), argv)
		write(b, filepath.Join(root, dir, "stat"), fmt.Sprintf("%d (%s) S 1 1 1 0 -1 4194560 1 1 1 1 1 1 1 1 20 0 1 0 %d 1 1 1\n", pid, comm, pid))
	}
	var r guest.Report
	if err := json.Unmarshal([]byte(run(b, gpustack, "host", "guests", "--root", root, "-o", "json")), &r); err != nil || len(r.Guests) != 100 || len(r.Holders) != 100 {
		b.Fatalf("%d guests, %d holders, %v", len(r.Guests), len(r.Holders), err)
	}
	race.Run(b,
		race.Peer{Name: "find", Argv: []string{"find", filepath.Join(root, "proc"), "-path", "*/fd/*", "-lname", "/dev/vfio/*"}},
		race.Peer{Name: "gpustack", Argv: []string{gpustack, "host", "guests", "--root", root, "-o", "json"}},
	)
}
