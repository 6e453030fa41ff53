package vm

import (
	"strings"
	"time"

	"gpustack/host/hosttest"
	"gpustack/integration/vm/agent"
)

// stuckUnbind: vfio-pci does not let go of a function that is in use, and the kernel
// does not return from asking it to (Linux, vfio_unregister_group_dev). That it is in
// use cannot be seen, for what has it open lies in a socket. gpustack ends, says so, and
// from then on waits for nothing that waits for the kernel; once that has returned, the
// next run goes on.
func stuckUnbind(m machine) {
	const (
		card, audio = "0000:02:00.0", "0000:02:00.1"
		nobody      = 65534
		reboot      = "reboot the machine; "
		writes      = `writes "` + card + `" to /sys/bus/pci/drivers/vfio-pci/unbind: the write is stuck in the kernel (uninterruptible sleep)`
	)
	m.run("modprobe", "vfio_iommu_type1")
	first := m.drivers()
	m.run("gpustack", "host", "bind", "--live", "--yes", "--device", card, "--allow", audio)
	letGo := m.stay("guest", "hide", m.group(card), card)

	release := func(timeout string) []string {
		return []string{"gpustack", "host", "release", "--yes", "--device", card, "--timeout", timeout}
	}
	for _, step := range []struct {
		name string
		argv []string
		user uint32
		says string
	}{
		{name: "release", argv: release("5s"), says: card + ": unbind from vfio-pci: /sys/bus/pci/drivers/vfio-pci/unbind: the write is stuck in the kernel (uninterruptible sleep) for 5s"},
		{name: "scan", argv: []string{"gpustack", "host", "scan"}, says: writes},
		{name: "scan by anybody", argv: []string{"gpustack", "host", "scan"}, user: nobody, says: writes},
		{name: "check", argv: []string{"gpustack", "host", "check"}, says: writes},
		{name: "release again", argv: release("1s"), says: writes},
	} {
		reply := m.soon(step.user, step.argv...)
		if reply.Status != 1 || !strings.Contains(reply.Stderr, step.says) || !strings.Contains(reply.Stderr, reboot) {
			m.t.Errorf("%s: exit status %d, want %q\n%s%s", step.name, reply.Status, step.says, reply.Stdout, reply.Stderr)
		}
	}
	// Who has functions open is not asked of the functions. Of this machine, which has
	// neither name nor machine id, something is always unread.
	if reply := m.soon(0, "gpustack", "host", "guests"); reply.Status != 2 {
		m.t.Errorf("guests: exit status %d\n%s%s", reply.Status, reply.Stdout, reply.Stderr)
	}
	hosttest.EqualIn(m.t, audio+", which comes after", vfioPCI, m.drivers()[audio])

	letGo()
	reply := m.soon(0, release("10s")...)
	if reply.Status != 0 || !strings.Contains(reply.Stderr, "was interrupted") {
		m.t.Errorf("released once it is free: exit status %d\n%s%s", reply.Status, reply.Stdout, reply.Stderr)
	}
	hosttest.EqualIn(m.t, "released", first, m.drivers())
	m.soon(0, "gpustack", "host", "scan")
}

// soon runs a program that must end soon. One that waits for a stuck function's lock
// never does, killed or not.
func (m machine) soon(user uint32, argv ...string) agent.Reply {
	m.t.Helper()
	const patience = 30 * time.Second
	reply, err := m.Ask(m.t.Context(), agent.Request{Argv: argv, User: user, Kill: patience})
	hosttest.NoError(m.t, err)
	if reply.Took >= patience {
		m.t.Fatalf("%q takes more than %s\n%s%s", argv, patience, reply.Stdout, reply.Stderr)
	}
	m.t.Logf("%.1f s: %s", reply.Took.Seconds(), strings.Join(argv, " "))
	return reply
}
