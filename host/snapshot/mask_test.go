package snapshot_test

import (
	"errors"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/snapshot"
)

func TestMaskBoot(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"boot/grub/grub.cfg", "password_pbkdf2 root grub.pbkdf2.sha512.10000.AB.CD\n", "password_pbkdf2 ***\n"},
		{"boot/grub2/user.cfg", "GRUB2_PASSWORD=grub.pbkdf2.sha512.10000.AB.CD\n", "GRUB2_PASSWORD=***\n"},
		{"etc/grub.d/01_password", "  password root secret\n", "  password ***\n"},
		{"etc/grub.d/01_password", "password --md5 root secret", "password ***"},
		{"boot/grub/grub.cfg", "password \"jo e\" \"S E;C\"\nset x=1\n", "password ***\nset x=1\n"},
		{"boot/grub/grub.cfg", "if x; then password 'jo' 'S C'; fi\n", "if x; then password ***; fi\n"},
		{"boot/grub/grub.cfg", "password joe \"S\nC\"\n", "password ***\nC\"\n"},
		{"boot/grub/menu.lst", "password --md5 $1$SECRET$x\ndefault 0\n", "password ***\ndefault 0\n"},
		{"etc/default/grub", `GRUB_CMDLINE_LINUX="rd.iscsi.password=one quiet"`, `GRUB_CMDLINE_LINUX="rd.iscsi.password=*** quiet"`},
		{"etc/default/grub", `GRUB_CMDLINE_LINUX="quiet rd.iscsi.password=one"`, `GRUB_CMDLINE_LINUX="quiet rd.iscsi.password=***"`},
		{"etc/default/grub", `GRUB_CMDLINE_LINUX="rd.iscsi.password=\"S C\" iommu.passthrough=1"`, `GRUB_CMDLINE_LINUX="rd.iscsi.password=*** iommu.passthrough=1"`},
		{"etc/default/grub", `GRUB_PASSWORD="S C"`, `GRUB_PASSWORD=***`},
		{"proc/cmdline", `a "rd.iscsi.password=S C" b`, `a "rd.iscsi.password=***" b`},
		{"proc/cmdline", `inst.rootpw=S luks_pass=C,S systemd.set_credential=a:S api_token=S b`,
			`inst.rootpw=*** luks_pass=*** systemd.set_credential=*** api_token=*** b`},
		{"proc/cmdline", "rd.iscsi.password=p", "rd.iscsi.password=***"},
		{"boot/grub/grub.cfg", "linux /x rd.iscsi.password=abc; initrd /y", "linux /x rd.iscsi.password=***; initrd /y"},
		{"proc/cmdline", "cifsroot=//u:S@h/x netroot=nbd:u:S@h ds=nocloud;s=http://u:S@h/ netconsole=44@10.0.0.1/e0,93@10.0.0.2/12:34 b",
			"cifsroot=//***@h/x netroot=nbd:***@h ds=nocloud;s=http://***@h/ netconsole=44@10.0.0.1/e0,93@10.0.0.2/12:34 b"},
		{"proc/cmdline", "root=/dev/sda1 netroot=iscsi:user:p@ss@10.0.0.1::::x quiet", "root=/dev/sda1 netroot=iscsi:***@10.0.0.1::::x quiet"},
		{"usr/lib/modprobe.d/x.conf", "options x secret=y", "options x secret=***"},
		{"boot/grub2/grubenv", "kernelopts=root=x pass=longer\n####", "kernelopts=root=x pass=***\n#######"},
		{"etc/fstab", "//nas/x /x cifs username=u,password=p,ro 0 0", "//nas/x /x cifs username=u,password=***,ro 0 0"},
		{"etc/fstab", "//nas/x /x cifs user=u,pass=p,ro 0 0", "//nas/x /x cifs user=u,pass=***,ro 0 0"},
		{"proc/mounts", "//nas/x /x cifs user=u%S,ro 0 0\nsshfs#u:S@h:/ /y", "//nas/x /x cifs user=u%***,ro 0 0\nsshfs#u:***@h:/ /y"},
		{"var/lib/gpustack/x.json", `{"a":"x pass=S","b":"pass=\"S\" quiet"}`, `{"a":"x pass=***","b":"pass=*** quiet"}`},
		{"proc/cmdline", "ip=dhcp url=https://h/x?X-Amz-Date=1&X-Amz-Signature=S&c=d quiet", "ip=dhcp url=https://h/x?X-Amz-Date=1&X-Amz-Signature=*** quiet"},
		{"etc/kernel/cmdline", "root=live:https://h/x?sig=S quiet", "root=live:https://h/x?sig=*** quiet"},
		{"etc/fstab", "https://h/x?auth=S /x davfs _netdev,uid=1 0 0", "https://h/x?auth=*** /x davfs _netdev,uid=1 0 0"},
		{"etc/docker/daemon.json", `{"x": 1, "token": "S", "auth": {"key": 5}}`, `{"x": 1, "token": "***", "auth": {"key": 5}}`},
		{"etc/x.toml", "auth = \"S C\"\nname = \"x\"\n", "auth = ***\nname = \"x\"\n"},
		{"etc/os-release", "HOME_URL=\"https://h/\"\nPRIVACY_POLICY_URL=\"https://h/\"\n", "HOME_URL=\"https://h/\"\nPRIVACY_POLICY_URL=\"https://h/\"\n"},
		{"etc/modprobe.d/x.conf", "options vfio-pci ids=10de:11b4\n# the password of nobody\n", "options vfio-pci ids=10de:11b4\n# the password of nobody\n"},
		{"sys/devices/x/modalias", "password=1", "password=1"},
	} {
		hosttest.EqualIn(t, c.name, c.want, string(snapshot.MaskBoot(c.name, []byte(c.in))))
	}
}

// TestMaskedLeavesGuestsOut: neither processes nor libvirt's domains are recorded.
func TestMaskedLeavesGuestsOut(t *testing.T) {
	var tree snapshot.Tree
	m := tree.Masked(func(_ string, data []byte) []byte { return append([]byte("masked "), data...) })
	m.Dir("proc", []string{"1", "4711", "mounts"}, nil)
	m.File("proc/4711/cmdline", []byte("qemu"), nil)
	m.Link("proc/4711/fd/3", "/dev/vfio/1", nil)
	m.File("etc/libvirt/qemu/guest.xml", []byte("x"), nil)
	m.Mode("etc/libvirt/qemu/guest.xml", 0o600)
	m.Dir("etc/libvirt/qemu", []string{"guest.xml"}, nil)
	m.File("etc/fstab", []byte("x"), nil)
	m.Mode("etc/fstab", 0o600)
	m.File("etc/closed", nil, errors.New("permission denied"))
	const want = "etc drwxr-xr-x\netc/closed Lrwxrwxrwx -> closed\netc/fstab -rw------- masked x\nproc drwxr-xr-x\nproc/mounts drwxr-xr-x\n"
	hosttest.Equal(t, want, unpack(t, &tree))
	if got := tree.Unreadable(); len(got) != 1 || got[0] != "etc/closed" {
		t.Errorf("%q", got)
	}
}
