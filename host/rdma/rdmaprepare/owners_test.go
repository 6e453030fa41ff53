package rdmaprepare_test

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/host/rdma"
	"gpustack/host/rdma/rdmaprepare"
)

// owner returns the place that a plan of VFs for 0000:0d:00.0 (eth1, mlx5_core) names as their
// owner, or "". eth0 is another interface of the machine.
func owner(t *testing.T, commands, files string) string {
	t.Helper()
	root := hosttest.Lay(t, machineOf([]hca{infiniband(), ethernet()}, "mkdir sys/class/net/eth0\n"+commands, files))
	_, got := plan(t, root, rdmaprepare.Options{Add: []pci.Address{address("0d:00.0")}, VFs: 2})
	if got == "" {
		return ""
	}
	first, _, _ := strings.Cut(got, "\n")
	place, ok := strings.CutPrefix(first, "0000:0d:00.0: ")
	place, _, found := strings.Cut(place, ": already sets VFs at boot: ")
	if !ok || !found {
		t.Fatalf("%q, want an owner", got)
	}
	return place
}

// TestOwnersCommands: a command that writes the number of VFs sets VFs, and so does one of which
// that cannot be determined. One that reads it does not.
func TestOwnersCommands(t *testing.T) {
	// owners returns the owners that a script with a line makes.
	owners := func(t *testing.T, line string) []rdmaprepare.Owner {
		text := strings.ReplaceAll(line, "FILE", "/sys/class/net/eth1/device/sriov_numvfs")
		owners, err := rdmaprepare.ReadOwners(hosttest.Lay(t, "-- etc/rc.local --\n#!/bin/sh\n"+text+"\n"), nil)
		if err != nil {
			t.Fatal(err)
		}
		return owners
	}
	for _, line := range []string{
		"echo 8 > FILE",
		"echo 8 >FILE",
		"echo 8 >> FILE",
		"echo 8 >| FILE",
		`echo "8" > "FILE"`,
		"> FILE echo 8",
		"printf 8 1> FILE",
		"echo 8 | tee FILE >/dev/null",
		"echo 8 | sudo tee FILE",
		"sudo sh -c 'echo 8 > FILE'",
		"test -w FILE && echo 8 > FILE",
		"[ -w FILE ] && cat /etc/vfs > FILE",
		`[ "$(cat FILE)" = 0 ] && echo 8 > FILE`,
		"cat FILE || echo 8 > FILE",
		"dd if=/etc/vfs of=FILE",
		"cp /etc/vfs FILE",
		"install -m 600 /etc/vfs FILE",
		"exec 3<> FILE",
		"ls FILE | while read f; do echo 8 > $f; done",
		"echo FILE | xargs -I{} sh -c 'echo 8 > {}'",
		"for f in $(ls FILE); do echo 8 > $f; done",
		"for f in FILE; do echo 8 > $f; done",
		"for f in /etc/vfs FILE; do echo 8 > $f; done",
		"find /sys -name sriov_numvfs -exec sh -c 'echo 8 > {}' ;",
		"grep -l 0 FILE | while read f; do echo 8 > $f; done",
		"grep 0 /sys/class/net/*/device/sriov_numvfs | while IFS=: read f n; do echo 8 > $f; done",
		"while read f; do echo 8 > $f; done <<< FILE",
		"set_vfs FILE 8",
		"python3 -c \"open('FILE', 'w').write('8')\"",
		"perl -e 'open(F, \">FILE\"); print F 8'",
		"awk 'BEGIN{print 8 > \"FILE\"}'",
		"awk -v f=FILE 'BEGIN{print 8 > f}'",
		"awk -v f=FILE 'BEGIN{system(\"echo 8 > \" f)}'",
		"echo 8 > /sys/class/net/${pci[$i + 1]}/device/sriov_numvfs",
		"echo 8 > \"/sys/class/net/$(basename \"$x\")/device/sriov_numvfs\"",
		"echo 8 > /sys/class/net/`basename $x`/device/sriov_numvfs",
		"echo 8 > /sys/class/infiniband/mlx5_1/device/mlx5_num_vfs",
		"cd /sys/class/net/eth1/device; echo 8 > sriov_numvfs",
		"F=FILE\necho 8 > $F",
		"F=FILE\necho 8 > \"${F}\"",
		"F=FILE\n[ -w $F ] || exit\ncat /etc/vfs > $F",
		"D=/sys/class/net/eth1/device\nF=$D/sriov_numvfs\necho 8 | tee $F",
		"export F=FILE\n/usr/bin/other $F", // a program reads it
		"F=FILE /usr/bin/other; cat $F",
		"F=FILE",
		"path() { echo FILE; }",
		"tee \\\nFILE < /etc/vfs",
		"echo 8 > \\\n FILE",
		"case $1 in\na) true\n;; b) echo 8 > FILE",
		"echo \"8 # VFs\" > FILE",
		"echo '#!/bin/sh\necho 8 > FILE' > /usr/local/bin/vfs",
		"devlink_or_sysfs --numvfs FILE 8",
		"F=$(readlink -f FILE)\necho 8 > $F",
		"echo 8 > $(readlink -f FILE)",
		"readlink -f FILE | while read f; do echo 8 > $f; done",
		"N=$(basename FILE)\necho 8 > /sys/class/net/eth1/device/$N",
		"echo 8 > $(dirname FILE)/sriov_numvfs",
		"for f in FILE; do echo 8 > $(dirname $f)/$(basename $f); done",
		"for f in FILE; do echo 8 > ${f%/*}/sriov_numvfs; done",
		"for f in FILE; do d=${f%/*}; echo 8 > $d/sriov_numvfs; done",
		"ls FILE | wc -l; for f in $(ls FILE); do echo 8 > $f; done",
		"ls FILE > /run/list | wc -l; while read f; do echo 8 > $f; done < /run/list",
		"ls FILE | tee /run/list | wc -l",
		"ls FILE | wc -l $(tee /run/list)",
		"ls FILE | wc --files0-from=-",
		"F=sriov_numvfs\ncd /sys/class/net/eth1/device; echo 8 > ${F%/*}",
		"for f in FILE; do echo 8 > ${f%%/nothing}; done",
		"ls FILE | sort; wc -l /etc/vfs",
		"n=$(ls -d FILE | xargs -n 1 set_vfs)",
	} {
		t.Run("writes: "+line, func(t *testing.T) {
			if got := owners(t, line); len(got) == 0 || got[0].File != "/etc/rc.local" || got[0].Line < 2 {
				t.Errorf("%v, want a line of /etc/rc.local", got)
			}
		})
	}
	for _, line := range []string{
		"cat FILE",
		"/bin/cat FILE",
		"cat FILE > /tmp/vfs",
		"cat FILE 2>/dev/null >&2",
		"n=$(cat FILE)",
		"n=`cat FILE`",
		`n="$(cat "FILE" 2>/dev/null || echo 0)"`,
		"n=$(< FILE)",
		"read -r n < FILE",
		"while read n; do echo $n; done < FILE",
		"[ -e FILE ] || exit 0",
		"test -w FILE",
		"[[ -n $x && -r FILE ]]",
		`if [ "$(cat FILE)" = 0 ]; then echo none; fi`,
		`if [ "$(cat FILE)" -gt 0 ]; then echo "VFs exist" > /run/vfs; fi`,
		"grep -q 8 FILE",
		"grep -qx 0 FILE && logger none",
		"sudo cat FILE | cut -d' ' -f1",
		"sh -c 'cat FILE'",
		"cat \"/sys/class/net/$(basename \"$x\")/device/sriov_numvfs\"",
		"echo \"VFs of eth1: $(cat FILE)\"",
		"echo \"sriov_numvfs{device=\\\"eth1\\\"} $(cat FILE)\" > /var/lib/node_exporter/vfs.prom",
		"ls FILE >/dev/null 2>&1 || exit",
		"head -n 1 FILE",
		"awk '{print $1}' FILE",
		"true # echo 8 > FILE",
		"# echo 8 > FILE",
		"F=FILE\n[ -f \"$F\" ] && n=$(cat \"$F\")",
		"f() {\n  local -r F=FILE\n  cat ${F}\n}",
		"for f in /sys/class/net/*/device/sriov_numvfs; do\n  echo \"VFs in $f: $(cat $f)\"\ndone",
		"for a in sriov_totalvfs sriov_numvfs; do cat /sys/class/net/eth1/device/$a; done",
		"for f in /sys/bus/pci/devices/*/sriov_numvfs; do\n  d=$(basename $(dirname $f))\n  echo \"$d $(cat $f)\" >> /var/log/vfs\ndone",
		"for f in FILE; do d=`dirname $f`; echo \"$(basename \"$d\") $(cat \"$f\")\"; done",
		"for f in FILE; do d=${f%/*}; echo \"${d##*/} $(cat $f)\"; done",
		"for f in FILE; do cat ${f%/sriov_numvfs}/vendor; done",
		"n=$(ls -d /sys/bus/pci/devices/*/sriov_numvfs | wc -l)",
		"n=$(ls -1 FILE 2>/dev/null | wc -l); [ $n -gt 0 ] || exit",
		"ls /sys/class/net/*/device/sriov_numvfs | wc -l",
		"readlink -e FILE >/dev/null || exit",
		"wc -c < FILE",
		"ip link set eth1 up",
	} {
		t.Run("reads: "+line, func(t *testing.T) {
			if got := owners(t, line); len(got) > 0 {
				t.Errorf("%v, want none", got)
			}
		})
	}
}

// TestOwnersFiles: each kind of files that sets VFs, and the same files where they only read, are
// about another adapter, or are not in force.
func TestOwnersFiles(t *testing.T) {
	const (
		rule, service = "-- etc/udev/rules.d/82-a.rules --\n", "-- etc/systemd/system/a.service --\n[Service]\n"
		exporter      = "-- etc/systemd/system/a.service --\n[Service]\nExecStart=/usr/local/bin/exporter\n-- usr/local/bin/exporter --\n"
		write         = "echo 8 > /sys/class/net/eth1/device/sriov_numvfs\n"
		vfs           = "-- usr/local/bin/vfs --\n#!/bin/sh\n" + write
	)
	for _, test := range []struct{ name, files, want string }{
		{"udev, a comparison", rule + "ATTR{sriov_numvfs}==\"0\", ENV{IDLE}=\"1\"\nATTRS{device/sriov_numvfs}!=\"0\", TAG+=\"x\"\n", ""},
		{"udev, a test and a substitution", rule + "TEST==\"device/sriov_numvfs\", ENV{VFS}=\"$attr{device/sriov_numvfs}\", RUN+=\"/bin/echo %s{sriov_numvfs}\"\n", ""},
		{"udev, a comparison and an assignment", rule + "ATTR{device/sriov_numvfs}==\"0\", ATTR{device/sriov_numvfs}=\"8\"\n", "/etc/udev/rules.d/82-a.rules:1"},
		{"udev, a program that writes", rule + "ACTION==\"add\", RUN+=\"/bin/sh -c 'echo 8 > /sys$devpath/device/sriov_numvfs'\"\n", "/etc/udev/rules.d/82-a.rules:1"},
		{"udev, a program that reads", rule + "ACTION==\"add\", PROGRAM==\"/bin/cat /sys$devpath/device/sriov_numvfs\", RUN+=\"/bin/sh -c 'cat /sys/%p/device/sriov_numvfs'\"\n", ""},
		{"udev, of another interface", rule + "KERNEL==\"eth0\", ATTR{device/sriov_numvfs}=\"8\"\n", ""},
		{"udev, of several interfaces", rule + "KERNEL==\"eth0|eth1\", ATTR{device/sriov_numvfs}=\"8\"\n", "/etc/udev/rules.d/82-a.rules:1"},
		{"udev, of interfaces by a pattern", rule + "KERNEL==\"eth*\", ATTR{device/sriov_numvfs}=\"8\"\n", "/etc/udev/rules.d/82-a.rules:1"},
		{"udev, of another driver", rule + "ENV{ID_NET_DRIVER}==\"ixgbe|i40e\", \\\n  ATTR{device/sriov_numvfs}=\"8\"\n", ""},
		{"udev, of a driver above", rule + "DRIVERS==\"pcieport\", ATTR{device/sriov_numvfs}=\"8\"\n", "/etc/udev/rules.d/82-a.rules:1"},
		{"udev, of a package, replaced", "-- usr/lib/udev/rules.d/82-a.rules --\nATTR{device/sriov_numvfs}=\"8\"\n" + rule, ""},

		{"tmpfiles.d, a mode", "-- etc/tmpfiles.d/a.conf --\nz /sys/class/net/eth1/device/sriov_numvfs 0660 root sriov\n", ""},
		{"tmpfiles.d", "-- usr/lib/tmpfiles.d/a.conf --\nw+ /sys/class/net/eth1/device/sriov_numvfs - - - - 8\n", "/usr/lib/tmpfiles.d/a.conf:1"},
		{"sysfsutils", "-- etc/sysfs.conf --\nclass/net/eth1/device/sriov_numvfs = 8\n", "/etc/sysfs.conf:1"},
		{"sysfsutils, of another interface", "-- etc/sysfs.d/a.conf --\nclass/net/eth0/device/sriov_numvfs = 8\n", ""},
		{"sysfsutils, a mode and an owner", "-- etc/sysfs.d/a.conf --\nmode class/net/eth1/device/sriov_numvfs = 0660\nowner class/net/eth1/device/sriov_numvfs = root:sriov\n", ""},

		{"systemd, what reads", "-- etc/systemd/system/a.service --\n[Unit]\nDescription=Export sriov_numvfs\nConditionPathExists=/sys/class/net/eth1/device/sriov_numvfs\n" +
			"[Service]\nExecCondition=/usr/bin/test -e /sys/class/net/eth1/device/sriov_numvfs\nExecStart=-/bin/sh -c 'cat /sys/class/net/eth1/device/sriov_numvfs >/run/vfs'\n", ""},
		{"systemd, a variable", service + "Environment=F=/sys/class/net/eth1/device/sriov_numvfs\nExecStart=/usr/bin/other\n", "/etc/systemd/system/a.service:2"},
		{"systemd, before the start", service + "ExecStartPre=/usr/local/bin/vfs\nExecStart=/bin/true\n" + vfs, "/usr/local/bin/vfs:2"},
		{"systemd, a template of another interface", "symlink etc/systemd/system/multi-user.target.wants/vfs@eth0.service -> ../vfs@.service\n" +
			"-- etc/systemd/system/vfs@.service --\n[Service]\nExecStart=/bin/sh -c 'echo 8 > /sys/class/net/%i/device/sriov_numvfs'\n", ""},
		{"systemd, a template of this interface", "symlink usr/lib/systemd/system/multi-user.target.wants/vfs@eth1.service -> ../vfs@.service\n" +
			"-- usr/lib/systemd/system/vfs@.service --\n[Service]\nExecStart=/bin/sh -c 'echo 8 > /sys/class/net/%i/device/sriov_numvfs'\n", "/usr/lib/systemd/system/vfs@.service:2"},
		{"systemd, a package's unit that its timer starts", "symlink etc/systemd/system/timers.target.wants/vfs.timer -> /usr/lib/systemd/system/vfs.timer\n" +
			"-- usr/lib/systemd/system/vfs.service --\n[Service]\nExecStart=/usr/local/bin/vfs\n" + vfs, "/usr/local/bin/vfs:2"},
		{"systemd, a package's unit, masked", "symlink etc/systemd/system/vfs.service -> /dev/null\nsymlink etc/systemd/system/multi-user.target.wants/vfs.service -> /usr/lib/systemd/system/vfs.service\n" +
			"-- usr/lib/systemd/system/vfs.service --\n[Service]\nExecStart=/usr/local/bin/vfs\n" + vfs, ""},

		{"a script of Python that reads", exporter + "#!/usr/bin/env python3\nwith open('/sys/class/net/eth1/device/sriov_numvfs') as f:\n    vfs = f.read()\nwith open('/run/vfs', 'w') as f:\n    f.write(vfs)\n", ""},
		{"a script of Python that changes nothing", exporter + "#!/usr/bin/python3\nNUMVFS = '/sys/class/net/%s/device/sriov_numvfs'\nprint(open(NUMVFS % 'eth1').read())\n", ""},
		{"a script of Python that writes", exporter + "#!/usr/bin/env python3\nopen('/sys/class/net/eth1/device/sriov_numvfs', 'w').write('8')\n", "/usr/local/bin/exporter:2"},
		{"a script of Python that writes through a variable", exporter + "#!/usr/bin/env python3\np = '/sys/class/net/eth1/device/sriov_numvfs'\nopen(p, mode='w').write('8')\n", "/usr/local/bin/exporter:2"},
		{"a script of Python that starts a shell", exporter + "#!/usr/bin/env python3\nimport os\nos.popen('echo 8 > /sys/class/net/eth1/device/sriov_numvfs')\n", "/usr/local/bin/exporter:3"},
		{"a script of another language", exporter + "#!/usr/bin/perl\ncat('/sys/class/net/eth1/device/sriov_numvfs');\n", "/usr/local/bin/exporter:2"},

		// An interpreter starts a script whatever its first line says.
		{"a script that bash starts", service + "ExecStart=/bin/bash /opt/vf\n-- opt/vf --\n" + write, "/opt/vf:1"},
		{"a script that bash starts, with options", service + "ExecStart=-/bin/bash -eu -o pipefail /opt/vf start\n-- opt/vf --\n" + write, "/opt/vf:1"},
		{"a script that sh starts, on a continued line", service + "ExecStart=/bin/sh \\\n  /opt/vf\n-- opt/vf --\n" + write, "/opt/vf:1"},
		{"a script that a shell of a shell starts", service + "ExecStart=/bin/sh -c 'sleep 1; exec bash /opt/vf'\n-- opt/vf --\n" + write, "/opt/vf:1"},
		{"a command that a shell starts", service + "ExecStart=/bin/sh -c /opt/vf\n-- opt/vf --\n" + write, "/opt/vf:1"},
		{"a script that bash starts, that reads", service + "ExecStart=/bin/bash /opt/vf\n-- opt/vf --\ncat /sys/class/net/eth1/device/sriov_numvfs\n", ""},
		{"a script that bash starts, of another interface", service + "ExecStart=/bin/bash /opt/vf\n-- opt/vf --\necho 8 > /sys/class/net/eth0/device/sriov_numvfs\n", ""},
		{"a script that python starts", service + "ExecStart=/usr/bin/python3 /opt/vf.py\n-- opt/vf.py --\nopen('/sys/class/net/eth1/device/sriov_numvfs', 'w').write('8')\n", "/opt/vf.py:1"},
		{"a script that python starts through env", service + "ExecStart=/usr/bin/env python3.11 -u -W ignore /opt/vf.py\n-- opt/vf.py --\nopen('/sys/class/net/eth1/device/sriov_numvfs', 'w').write('8')\n", "/opt/vf.py:1"},
		{"a script that python starts, that reads", service + "ExecStart=/usr/bin/python3 /opt/vf.py\n-- opt/vf.py --\nprint(open('/sys/class/net/eth1/device/sriov_numvfs').read())\n", ""},
		{"a script that perl starts", service + "ExecStart=/usr/bin/perl /opt/vf.pl\n-- opt/vf.pl --\nopen(F, '>/sys/class/net/eth1/device/sriov_numvfs');\n", "/opt/vf.pl:1"},
		{"an argument of a script", service + "ExecStart=/bin/bash /opt/show /var/log/vf.log\n-- opt/show --\ncat $1\n-- var/log/vf.log --\nsriov_numvfs of eth1 set to 8\n", ""},
		{"a file that a command of a shell reads", service + "ExecStart=/bin/sh -c 'cat /var/log/vf.log'\n-- var/log/vf.log --\nsriov_numvfs of eth1 set to 8\n", ""},
		{"a file behind the name of a shell", "-- etc/rc.local --\n#!/bin/sh\nuseradd -s /bin/bash -c x root; cat /var/log/vf.log\n-- var/log/vf.log --\nsriov_numvfs of eth1 set to 8\n", ""},
		{"a program that a shell starts", service + "ExecStart=/bin/sh -c /usr/bin/nm\n-- usr/bin/nm --\n\x7fELF\x00\nsriov_numvfs\n", ""},
		{"udev, a script that bash starts", rule + "ACTION==\"add\", RUN+=\"/bin/bash /opt/vf\"\n-- opt/vf --\n" + write, "/opt/vf:1"},
		{"cron, a script that sh starts", "-- etc/crontab --\n@reboot root sh /opt/vf\n-- opt/vf --\n" + write, "/opt/vf:1"},
		{"modprobe, a script that sh starts", "-- etc/modprobe.d/a.conf --\ninstall mlx5_core sh /opt/vf\n-- opt/vf --\n" + write, "/opt/vf:1"},
		{"a script of a script that bash starts", service + "ExecStart=/bin/bash /opt/a\n-- opt/a --\n/bin/bash /opt/vf\n-- opt/vf --\n" + write, "/opt/vf:1"},

		{"ifupdown, what reads", "-- etc/network/interfaces --\niface eth1 inet static\n  pre-up test -e /sys/class/net/eth1/device/sriov_numvfs\n", ""},
		{"ifupdown, 0 first", "-- etc/network/interfaces --\niface eth1 inet static\n  pre-up echo 0 > /sys/class/net/eth1/device/sriov_numvfs; echo 8 > /sys/class/net/eth1/device/sriov_numvfs\n", "/etc/network/interfaces:2"},
		{"a script that another starts", "-- etc/network/if-up.d/a --\n#!/bin/sh\n[ \"$IFACE\" = eth1 ] && /usr/local/bin/vfs\n" + vfs, "/usr/local/bin/vfs:2"},
		{"functions of another file", "-- etc/rc.local --\n#!/bin/sh\n. /usr/local/lib/vfs\n-- usr/local/lib/vfs --\nset_vfs() {\n" + write + "}\n", "/usr/local/lib/vfs:2"},
		{"cron, what reads", "-- etc/cron.d/a --\n*/5 * * * * root cat /sys/class/net/eth1/device/sriov_numvfs > /run/vfs\n", ""},
		{"cron, a user's, what reads", "-- var/spool/cron/root --\n@hourly cat /sys/class/net/eth1/device/sriov_numvfs > /run/vfs\n", ""},
		{"cron, often", "-- etc/cron.d/a --\n*/5 * * * * root " + write, "/etc/cron.d/a:1"},
		{"cron, a script, often", "-- etc/crontab --\n*/5 * * * * root /usr/local/bin/vfs\n" + vfs, "/usr/local/bin/vfs:2"},
		{"modprobe, what reads", "-- etc/modprobe.d/a.conf --\ninstall mlx5_core /sbin/modprobe -i mlx5_core; cat /sys/class/net/eth1/device/sriov_numvfs\n", ""},

		{"rc.local, of another interface", "-- etc/rc.local --\n#!/bin/sh\nF=/sys/class/net/eth0/device/sriov_numvfs\necho 8 > $F\n", ""},
		{"rc.local, through a variable", "-- etc/rc.local --\n#!/bin/sh\nF=/sys/class/net/eth1/device/sriov_numvfs\n[ -w $F ] || exit\necho 8 > $F\n", "/etc/rc.local:4"},
		{"ifcfg, of another interface, named below", "-- etc/sysconfig/network-scripts/ifcfg-eth0 --\nSRIOV_TOTAL_VFS=8\nDEVICE=eth0\n", ""},
		{"RHEL's hook for interfaces", "-- sbin/ifup-local --\n#!/bin/sh\n" + write, "/sbin/ifup-local:2"},
		{"a script of RHEL's network scripts", "-- etc/sysconfig/network-scripts/ifup-vfs --\n#!/bin/sh\n" + write, "/etc/sysconfig/network-scripts/ifup-vfs:2"},
		{"TripleO's script", "-- etc/sysconfig/allocate_vfs --\n#!/bin/bash\n" + write, "/etc/sysconfig/allocate_vfs:2"},
		{"NetworkManager, without a suffix", "-- etc/NetworkManager/system-connections/eth1 --\n[connection]\ninterface-name=eth1\n[sriov]\ntotal-vfs=8\n", "/etc/NetworkManager/system-connections/eth1:4"},
		{"NetworkManager, of another interface, named below", "-- etc/NetworkManager/system-connections/a.nmconnection --\n[sriov]\ntotal-vfs=8\n[connection]\ninterface-name=eth0\n", ""},
		{"a link file, of another driver", "-- etc/systemd/network/10-a.link --\n[Match]\nDriver=i40e\n[Link]\nSR-IOVVirtualFunctions=8\n", ""},
		{"a link file, replaced", "-- usr/lib/systemd/network/10-a.link --\n[Match]\nOriginalName=*\n[Link]\nSR-IOVVirtualFunctions=8\n-- etc/systemd/network/10-a.link --\n[Match]\nOriginalName=*\n", ""},
		{"netplan, on one line", "-- etc/netplan/50.yaml --\nnetwork:\n  ethernets:\n    eth1: {virtual-function-count: 8}\n", "/etc/netplan/50.yaml:3"},
		{"netplan, in a comment", "-- etc/netplan/50.yaml --\nnetwork:\n  ethernets:\n    eth1:\n      mtu: 9000 # virtual-function-count: 8\n", ""},
		{"netplan, VFs of this interface", "-- etc/netplan/50.yaml --\nnetwork:\n  ethernets:\n    eth1:\n      dhcp4: true\n    eth1v0:\n      dhcp4: true\n      link: eth1\n", "/etc/netplan/50.yaml:7"},
		{"netplan, VFs on one line", "-- etc/netplan/50.yaml --\nnetwork:\n  ethernets:\n    eth1v0: {link: eth1}\n", "/etc/netplan/50.yaml:3"},
		{"netplan, VFs of another interface", "-- etc/netplan/50.yaml --\nnetwork:\n  ethernets:\n    eth0v0:\n      link: eth0\n", ""},
		{"netplan, a VLAN", "-- etc/netplan/50.yaml --\nnetwork:\n  vlans:\n    v7:\n      id: 7\n      link: eth1\n", ""},
		{"netplan, replaced", "-- lib/netplan/50.yaml --\nnetwork:\n  ethernets:\n    eth1:\n      virtual-function-count: 8\n-- etc/netplan/50.yaml --\nnetwork: {}\n", ""},
		{"nmstate, on one line", "-- etc/nmstate/a.yml --\ninterfaces:\n- name: eth1\n  ethernet: {sr-iov: {total-vfs: 8}}\n", "/etc/nmstate/a.yml:3"},
		{"os-net-config, what it has applied", "-- var/lib/os-net-config/sriov_config.yaml --\n- device_type: pf\n  name: eth1\n  numvfs: 8\n", "/var/lib/os-net-config/sriov_config.yaml:3"},
		{"os-net-config, of another interface", "-- var/lib/os-net-config/sriov_config.yaml --\n- device_type: pf\n  link_mode: legacy\n  name: eth0\n  numvfs: 8\n", ""},
		{"os-net-config, the configuration of another interface", "-- etc/os-net-config/config.yaml --\nnetwork_config:\n- type: sriov_pf\n  name: eth0\n  numvfs: 8\n- type: interface\n  name: eth1\n", ""},
		{"os-net-config, an alias", "-- etc/os-net-config/config.yaml --\nnetwork_config:\n- type: sriov_pf\n  name: nic2\n  numvfs: 8\n", "/etc/os-net-config/config.yaml:2"},
		{"os-net-config, on one line", "-- etc/os-net-config/config.json --\n{\"network_config\": [{\"type\": \"interface\", \"name\": \"eth1\", \"numvfs\": 8}]}\n", "/etc/os-net-config/config.json:1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			commands, files, _ := strings.Cut("\n"+test.files, "\n-- ")
			if got := owner(t, strings.TrimPrefix(commands+"\n", "\n"), "-- "+files); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

// TestOwnersMasked: a link to /dev/null removes a file of a package. It is no file that cannot be
// read.
func TestOwnersMasked(t *testing.T) {
	for _, dir := range []string{"udev/rules.d/82-a.rules", "systemd/network/10-a.link", "tmpfiles.d/a.conf"} {
		root := hosttest.Lay(t, machineOf([]hca{ethernet()}, "mkdir dev\nsymlink etc/"+dir+" -> /dev/null\nsymlink etc/systemd/network/99-default.network -> /dev/null\n",
			"-- usr/lib/"+dir+" --\nATTR{device/sriov_numvfs}=\"8\"\n[Link]\nSR-IOVVirtualFunctions=8\nw /sys/bus/pci/devices/0000:0d:00.0/sriov_numvfs - - - - 8\n"))
		if err := unix.Mkfifo(root.Path("/dev/null"), 0o666); err != nil { // like a device, no regular file
			t.Fatal(err)
		}
		if _, got := plan(t, root, rdmaprepare.Options{Add: []pci.Address{address("0d:00.0")}, VFs: 2, Use: rdma.ForContainers}); got != "" {
			t.Errorf("%s: %q", dir, got)
		}
	}
}
