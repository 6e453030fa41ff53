package guard_test

import (
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
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
		{"a file that chrony's pattern includes", joined(enabled("chrony.service"), "-- etc/chrony.conf --\ninclude /etc/time/[!y]*.conf\n-- etc/time/x.conf --\nhwtimestamp eth2\n-- etc/time/y.conf --\nhwtimestamp eth2\n"),
			"0000:07:00.0 has the PTP clock of chrony.service: eth2 (/etc/time/x.conf:1)\n"},
		{"folders of chrony", joined(enabled("chrony.service"), "-- etc/chrony.conf --\nConfDir /run/none /opt/time\n-- opt/time/a.conf --\nhwtimestamp eth2\n-- opt/time/a.keys --\n1 eth2\n"),
			"0000:07:00.0 has the PTP clock of chrony.service: eth2 (/opt/time/a.conf:1)\n"},
		{"chrony's own file by timemaster", joined(enabled("timemaster.service"), "-- etc/linuxptp/timemaster.conf --\n[chrony.conf]\ninclude /etc/time.conf\n-- etc/time.conf --\nhwtimestamp eth2\n"),
			"0000:07:00.0 has the PTP clock of timemaster.service: eth2 (/etc/time.conf:1)\n"},
		{"a unit with a file of its options", "-- etc/systemd/system/multi-user.target.wants/ptp4l-a.service --\n[Service]\nEnvironmentFile=-/etc/opt/ptp\nExecStart=/usr/sbin/ptp4l $OPTIONS\n-- etc/opt/ptp --\nOPTIONS=\"-mf/etc/ptp/a -2\"\n-- etc/ptp/a --\n[eth2]\n",
			"0000:07:00.0 has the PTP clock of ptp4l-a.service: eth2 (/etc/ptp/a:1)\n"},
		{"keys", joined(enabled("chrony.service"), "-- etc/chrony.conf --\nkeyfile /etc/chrony.keys\nntsservercert /etc/cert\n-- etc/chrony.keys --\n1 eth2\n-- etc/cert --\neth2\n"), ""},
		{"no configuration", "-- etc/systemd/system/multi-user.target.wants/ptp4l-a.service --\nExecStart=/usr/sbin/ptp4l -f /dev/null -i eth9\n", ""},
		{"files in place of folders", "-- etc/systemd/system/x.wants --\n-- etc/linuxptp --\n" + enabled("ptp4l.service"), ""},
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

// TestClockSecrets: a snapshot holds the lines about clocks of the files of a service that is to
// use one, and neither its keys nor other lines.
func TestClockSecrets(t *testing.T) {
	const secret = "pl4nted"
	root := hosttest.Lay(t, joined(storage, `
symlink sys/class/ptp/ptp2 -> ../../devices/pci0000:00/0000:07:00.0/ptp/ptp2
symlink etc/systemd/system/multi-user.target.wants/chrony.service -> /usr/lib/systemd/system/chrony.service
symlink etc/systemd/system/multi-user.target.wants/ptp4l.service -> /usr/lib/systemd/system/ptp4l.service
-- usr/lib/systemd/system/chrony.service --
[Service]
Environment=x=pl4nted
EnvironmentFile=/etc/default/chrony
ExecStart=/usr/sbin/chronyd -f /etc/chrony/chrony.conf
-- etc/default/chrony --
X="pl4nted"
-- etc/chrony/chrony.conf --
keyfile /etc/chrony/chrony.keys
cmdallow pl4nted
#hwtimestamp eth2 pl4nted
include /etc/chrony/more.conf
refclock PHC /dev/ptp2
-- etc/chrony/more.conf --
# pl4nted
hwtimestamp eth2
-- etc/chrony/chrony.keys --
1 SHA1 HEX:pl4nted
2 eth2 pl4nted
-- etc/linuxptp/ptp4l.conf --
[global]
sa_file /etc/linuxptp/sa
[eth2]
-- etc/linuxptp/sa --
1 AES128 eth2 pl4nted
`))
	rec := texts{}
	found := needs(t, root.Recorded(rec), guard.Running{})
	for name, text := range rec {
		if strings.Contains(text, secret) {
			t.Errorf("%s: %q", name, text)
		}
	}
	want := texts{
		"usr/lib/systemd/system/chrony.service": "\n\nEnvironmentFile=/etc/default/chrony\nExecStart=/usr/sbin/chronyd -f /etc/chrony/chrony.conf\n",
		"etc/chrony/chrony.conf":                "\n\n\ninclude /etc/chrony/more.conf\nrefclock PHC /dev/ptp2\n",
		"etc/chrony/more.conf":                  "\nhwtimestamp eth2\n",
		"etc/linuxptp/ptp4l.conf":               "\n\n[eth2]\n",
	}
	for name, text := range want {
		if diff := cmp.Diff(text, rec[name]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		hosttest.Write(name, rec[name])(t, root)
	}
	for _, name := range []string{"etc/chrony/chrony.keys", "etc/linuxptp/sa"} {
		if _, ok := rec[name]; ok {
			t.Errorf("%s is recorded", name)
		}
	}
	if diff := cmp.Diff(found, needs(t, root, guard.Running{})); diff != "" {
		t.Errorf("of what is recorded (-want +got):\n%s", diff)
	}
}

// texts is a recorder of the content of files, by name.
type texts map[string]string

func (r texts) File(name string, data []byte, err error) {
	if err == nil && data != nil {
		r[name] = string(data)
	}
}
func (texts) Mode(string, fs.FileMode)    {}
func (texts) Link(string, string, error)  {}
func (texts) Dir(string, []string, error) {}

// TestForbidden: a user who may not read files about clocks and disks gets what the others show, as
// that user cannot change anything.
func TestForbidden(t *testing.T) {
	if os.Geteuid() == 0 { // who may read every file
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestForbidden$", "-test.v")
		cmd.Dir, cmd.Env = "/", []string{"TMPDIR=/tmp"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	root := hosttest.Lay(t, joined(storage, `
symlink sys/class/ptp/ptp2 -> ../../devices/pci0000:00/0000:07:00.0/ptp/ptp2
symlink etc/systemd/system/multi-user.target.wants/chrony.service -> /usr/lib/systemd/system/chrony.service
-- usr/lib/systemd/system/chrony.service --
ExecStart=/usr/sbin/chronyd -f /etc/time/a -f /etc/time.d/a
-- etc/chrony.conf --
hwtimestamp eth2
-- etc/chrony/conf.d/a.conf --
-- etc/time/a --
-- etc/time.d/a --
-- etc/fstab --
-- etc/crypttab --
`))
	for _, name := range []string{"etc/chrony/conf.d", "etc/time/a", "etc/time.d", "etc/fstab", "etc/crypttab"} {
		file := root.Path(name)
		if err := os.Chmod(file, 0); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Chmod(file, 0o700) }) // else the folders cannot be removed
	}
	if got, want := needs(t, root, guard.Running{}), "0000:07:00.0 has the PTP clock of chrony.service: eth2 (/etc/chrony.conf:1)\n"; !strings.Contains(got, want) {
		t.Errorf("%s, want %s", got, want)
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
