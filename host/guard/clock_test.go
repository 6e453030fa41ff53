package guard_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/guard"
	"gpustack/host/hosttest"
)

// TestClocks: a PTP clock is in use where a process has it open, or an enabled service is to use
// it. ptp2 is the clock of eth2 (07:00.0).
func TestClocks(t *testing.T) {
	const clocks = "symlink sys/class/ptp/ptp0 -> ../../devices/virtual/ptp/ptp0\nsymlink sys/class/ptp/ptp2 -> ../../devices/pci0000:00/0000:07:00.0/ptp/ptp2\n"
	enabled := func(unit string) string {
		return "symlink etc/systemd/system/multi-user.target.wants/" + unit + " -> /usr/lib/systemd/system/" + unit + "\n"
	}
	for _, test := range []struct{ name, files, want string }{
		{"an idle clock", "mkdir proc/7/fd\n", ""},
		{"a process has it open", "symlink proc/7/fd/3 -> /dev/ptp2\n-- proc/7/comm --\nptp4l\n",
			"0000:07:00.0 has the PTP clock of ptp4l (pid 7), which has /dev/ptp2 open\n"},
		{"a process has the hypervisor's clock open", "symlink proc/7/fd/3 -> /dev/ptp0\n-- proc/7/comm --\nchronyd\n", ""},
		{"chrony names the clock", joined(enabled("chronyd.service"), "-- etc/chrony.conf --\npool x iburst\n! refclock PHC /dev/ptp9\nrefclock PHC /dev/ptp2:extpps poll 2\n"),
			"0000:07:00.0 has the PTP clock of chronyd.service: /dev/ptp2 (/etc/chrony.conf:3)\n"},
		{"chrony names the interface", joined(enabled("chrony.service"), "-- etc/chrony/conf.d/a.conf --\nhwtimestamp eth2\n"),
			"0000:07:00.0 has the PTP clock of chrony.service: eth2 (/etc/chrony/conf.d/a.conf:1)\n"},
		{"chrony names all interfaces", joined(enabled("chrony.service"), "-- etc/chrony/chrony.conf --\nhwtimestamp *\n"), ""},
		{"chrony is not enabled", "-- etc/chrony.conf --\nrefclock PHC /dev/ptp2\n", ""},
		{"a comment", joined(enabled("chronyd.service"), "-- etc/chrony.conf --\n#hwtimestamp eth2\n"), ""},
		{"a section of ptp4l", joined(enabled("ptp4l.service"), "-- etc/linuxptp/ptp4l.conf --\n[global]\n[eth2]\n"),
			"0000:07:00.0 has the PTP clock of ptp4l.service: eth2 (/etc/linuxptp/ptp4l.conf:2)\n"},
		{"a file that ptp4l's options name", joined(enabled("ptp4l.service"), "-- etc/sysconfig/ptp4l --\nOPTIONS=\"-f /etc/ptp/fabric\"\n-- etc/ptp/fabric --\n[eth2]\n"),
			"0000:07:00.0 has the PTP clock of ptp4l.service: eth2 (/etc/ptp/fabric:1)\n"},
		{"an instance of ptp4l", enabled("ptp4l@eth2.service"), "0000:07:00.0 carries the PTP clock of ptp4l@eth2.service, through eth2\n"},
		{"a unit of phc2sys", "-- etc/systemd/system/multi-user.target.wants/phc2sys-fabric.service --\n[Service]\nExecStart=/usr/sbin/phc2sys -c /dev/ptp2 -s eth9\n",
			"0000:07:00.0 has the PTP clock of phc2sys-fabric.service: /dev/ptp2 (/etc/systemd/system/multi-user.target.wants/phc2sys-fabric.service:2)\n"},
		{"timemaster", joined(enabled("timemaster.service"), "-- etc/linuxptp/timemaster.conf --\n[ptp_domain 0]\ninterfaces eth2\n"),
			"0000:07:00.0 has the PTP clock of timemaster.service: eth2 (/etc/linuxptp/timemaster.conf:2)\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := needs(t, hosttest.Lay(t, joined(storage, clocks, test.files)), guard.Running{})
			var found strings.Builder
			for line := range strings.Lines(got) {
				if strings.Contains(line, "PTP") {
					found.WriteString(line)
				}
			}
			if diff := cmp.Diff(test.want, found.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestClocksBlind: what may hide the use of a clock is an error.
func TestClocksBlind(t *testing.T) {
	const clock = "symlink sys/class/ptp/ptp2 -> ../../devices/pci0000:00/0000:07:00.0/ptp/ptp2\n"
	root := hosttest.Lay(t, joined(storage, clock, "-- proc/7/fd --\n"))
	if _, err := guard.Needs(root, nil, guard.Running{}); err == nil || !strings.Contains(err.Error(), "/proc/7/fd") {
		t.Error(err)
	}
}
