package modprobe_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/edit"
	"gpustack/host/hosttest"
	"gpustack/host/modprobe"
)

// TestTakeOver: ids are found in each file that states them, and removed as a person would.
func TestTakeOver(t *testing.T) {
	const initramfs, modules, load, conf, dracut = "etc/initramfs-tools/modules", "etc/modules", "etc/modules-load.d/x.conf", "etc/modprobe.d/x.conf", "etc/dracut.conf.d/x.conf"
	for name, test := range map[string]struct{ file, text, stated, want string }{
		"the talk's line":          {initramfs, "# modules\npci_stub ids=10de:11b4,10de:0e0a\nloop\n", "2 pci-stub ids=10de:11b4,10de:0e0a", "# modules\nloop\n"},
		"another id stays":         {initramfs, "vfio\nvfio-pci ids=10de:11b4,8086:1533\n", "2 vfio-pci ids=10de:11b4,8086:1533", "vfio\nvfio-pci ids=8086:1533\n"},
		"other options stay":       {initramfs, "vfio_pci disable_vga=1 ids=10de:11b4\n", "1 vfio-pci ids=10de:11b4", "vfio_pci disable_vga=1\n"},
		"an empty element":         {initramfs, "loop\npci_stub ids=10de:11b4,\n", "2 pci-stub ids=10de:11b4", "loop\n"},
		"an empty element first":   {initramfs, "pci_stub ids=,10de:11b4,,8086:1533,\n", "1 pci-stub ids=10de:11b4,8086:1533", "pci_stub ids=8086:1533\n"},
		"another list is as it is": {initramfs, "pci_stub ids=8086:1533, ids=10de:11b4,\n", "1 pci-stub ids=8086:1533,10de:11b4", "pci_stub ids=8086:1533,\n"},
		"what is no id stays":      {initramfs, "pci_stub ids=10de:11b4,x\n", "1 pci-stub ids=10de:11b4", "pci_stub ids=x\n"},
		"dracut, an empty element": {dracut, "kernel_cmdline+=\" pci-stub.ids=10de:11b4, \"\n", "1 pci-stub ids=10de:11b4", ""},
		"only others":              {initramfs, "pci_stub ids=8086:1533\n", "1 pci-stub ids=8086:1533", "pci_stub ids=8086:1533\n"},
		"a comment":                {initramfs, "# pci_stub ids=10de:11b4\n", "", "# pci_stub ids=10de:11b4\n"},
		"another module":           {initramfs, "other ids=10de:11b4\n", "", "other ids=10de:11b4\n"},
		"no newline at the end":    {modules, "loop\npci_stub ids=10de:11b4", "2 pci-stub ids=10de:11b4", "loop\n"},
		"modules-load.d":           {load, "pci_stub ids=10de:11b4\n", "1 pci-stub ids=10de:11b4", ""},
		"upper case":               {initramfs, "pci_stub ids=10DE:11B4,8086:1533\n", "1 pci-stub ids=10DE:11B4,8086:1533", "pci_stub ids=8086:1533\n"},
		"with a subsystem":         {initramfs, "pci_stub ids=10de:11b4:10de:1\n", "1 pci-stub ids=10de:11b4:10de:1", ""},
		"with a prefix":            {initramfs, "pci_stub ids=0x10de:0x11b4,8086:1533\n", "1 pci-stub ids=0x10de:0x11b4,8086:1533", "pci_stub ids=8086:1533\n"},
		"of all products":          {initramfs, "pci_stub ids=10de:ffffffff\n", "1 pci-stub ids=10de:ffffffff", "pci_stub ids=10de:ffffffff\n"},
		"a longer product":         {initramfs, "pci_stub ids=10de:11b41\n", "1 pci-stub ids=10de:11b41", "pci_stub ids=10de:11b41\n"},
		"modprobe.d":               {conf, "options vfio-pci ids=10de:11b4 disable_vga=1\noptions pci-stub ids=10de:0e0a\n", "1 vfio-pci ids=10de:11b4; 2 pci-stub ids=10de:0e0a", "options vfio-pci disable_vga=1\n"},
		"modprobe.d, quoted":       {conf, "options vfio-pci ids=\"10de:11b4,8086:1533\"\n", "1 vfio-pci ids=10de:11b4,8086:1533", "options vfio-pci ids=\"8086:1533\"\n"},
		"modprobe.d, continued":    {conf, "options vfio-pci \\\n  ids=10de:11b4\n", "2 vfio-pci ids=10de:11b4", "error"},
		"a DOS line end":           {initramfs, "pci_stub ids=10de:11b4,8086:1533\r\n", "1 pci-stub ids=10de:11b4,8086:1533", "pci_stub ids=8086:1533\r\n"},
		"dracut":                   {dracut, "add_drivers+=\" pci_stub \"\nkernel_cmdline+=\" pci-stub.ids=10de:11b4 \"\n", "2 pci-stub ids=10de:11b4", "add_drivers+=\" pci_stub \"\n"},
		"dracut, other arguments":  {dracut, "kernel_cmdline=\"quiet pci-stub.ids=10de:11b4 x=y\"\n", "1 pci-stub ids=10de:11b4", "kernel_cmdline=\"quiet x=y\"\n"},
		"dracut, at the end":       {dracut, "kernel_cmdline=\"quiet pci-stub.ids=10de:11b4\"\n", "1 pci-stub ids=10de:11b4", "kernel_cmdline=\"quiet\"\n"},
		"gpustack's own":           {"etc/modprobe.d/zz-gpustack.conf", "options vfio-pci ids=10de:11b4\n", "", "options vfio-pci ids=10de:11b4\n"},
		"a file of a distribution": {"usr/lib/modprobe.d/x.conf", "options vfio-pci ids=10de:11b4\n", "1 vfio-pci ids=10de:11b4", "error"},
	} {
		t.Run(name, func(t *testing.T) {
			root := hosttest.Lay(t, "-- "+test.file+" --\n")
			hosttest.NoError(t, os.WriteFile(root.Path("/"+test.file), []byte(test.text), 0o640))
			conf, err := modprobe.ReadConf(root)
			hosttest.NoError(t, err)
			stated, err := modprobe.ReadStated(root, conf)
			hosttest.NoError(t, err)
			var found []string
			for _, s := range stated {
				found = append(found, strings.TrimPrefix(s.Place(), "/"+test.file+":")+" "+s.String())
			}
			hosttest.EqualIn(t, "stated", test.stated, strings.Join(found, "; "))
			plan, err := modprobe.TakeOver(filesOf(root, stated), stated, []string{"10de:11b4", "10de:0e0a"})
			if test.want == "error" {
				if err == nil {
					t.Error("no error")
				}
				return
			}
			if err == nil {
				err = plan.Apply(context.Background(), root)
			}
			hosttest.NoError(t, err)
			got, err := os.ReadFile(root.Path("/" + test.file))
			if err != nil || string(got) != test.want {
				t.Errorf("%q, want %q (%v)", got, test.want, err)
			}
		})
	}
}

// TestStatedOnce: Debian's link to /etc/modules states nothing more.
func TestStatedOnce(t *testing.T) {
	stated, err := modprobe.ReadStated(hosttest.Lay(t, "symlink etc/modules-load.d/modules.conf -> ../modules\n-- etc/modules --\npci_stub ids=1:2\n"), nil)
	if err != nil || len(stated) != 1 || stated[0].File != "/etc/modules" {
		t.Errorf("%v, %v", stated, err)
	}
}

// TestStatedUnreadable: a file that cannot be read may state ids.
func TestStatedUnreadable(t *testing.T) {
	for _, name := range []string{"etc/initramfs-tools/modules", "etc/modules", "etc/dracut.conf", "etc/modules-load.d/x.conf"} {
		if stated, err := modprobe.ReadStated(hosttest.Lay(t, "mkdir "+name+"\n"), nil); err == nil {
			t.Errorf("%s: a folder: %v", name, stated)
		}
	}
	if stated, err := modprobe.ReadStated(hosttest.Lay(t, "symlink etc/modules-load.d -> modules-load.d\n"), nil); err == nil {
		t.Errorf("a folder that is a link to itself: %v", stated)
	}
}

// filesOf returns the files that state ids.
func filesOf(root host.Root, stated []modprobe.Stated) edit.Files {
	var names []string
	for _, s := range stated {
		if s.Number != 0 {
			names = append(names, s.File)
		}
	}
	return edit.Observe(root, names...)
}
