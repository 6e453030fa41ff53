package modprobe_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"gpustack/host/edit"
	"gpustack/host/hosttest"
	"gpustack/host/modprobe"
)

// TestConf: files of all directories are read in order of their names, and one overrides files of
// the same name.
func TestConf(t *testing.T) {
	root := hosttest.Lay(t, `
-- etc/modprobe.d/b.conf --
# options vfio-pci ids=0000:0000
options vfio-pci ids=1111:1111 disable_vga=1
options vfio_pci \
  ids="2222:2222"
-- etc/modprobe.d/hidden.conf --
-- etc/modprobe.d/.gpustack-zz.conf~ --
options vfio-pci ids=3333:3333
-- etc/modprobe.d/notes.txt --
options vfio-pci ids=4444:4444
-- usr/lib/modprobe.d/a.conf --
options vfio-pci ids=5555:5555
-- lib/modprobe.d/hidden.conf --
options vfio-pci ids=6666:6666
-- run/modprobe.d/c.conf --
options other ids=7777:7777
`)
	conf, err := modprobe.ReadConf(root)
	hosttest.NoError(t, err)
	var got []string
	for _, o := range conf.Options("vfio-pci", "ids") {
		got = append(got, o.File+" "+o.Value)
	}
	want := []string{"/usr/lib/modprobe.d/a.conf 5555:5555", "/etc/modprobe.d/b.conf 1111:1111", "/etc/modprobe.d/b.conf 2222:2222"}
	hosttest.Equal(t, want, got)
}

// TestWords: lines are split as kmod and the kernel split them. integration compares kmod's own
// answers.
func TestWords(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"DOS line end: part of a module's name":         {"blacklist nouveau\r\n", "1 blacklist nouveau\r"},
		"DOS line end: a space to the kernel":           {"options vfio-pci ids=1:2\r\n", "1 options vfio_pci ids=1:2"},
		"DOS line end: a backslash does not continue":   {"options vfio-pci\\\r\n ids=1:2\n", "1 options vfio_pci\r"},
		"no-break space: part of a module's name":       {"blacklist nouveau\u00a0\n", "1 blacklist nouveau\u00a0"},
		"no-break space: no separator after a command":  {"blacklist\u00a0nouveau\n", ""},
		"vertical tab and form feed":                    {"blacklist a\vb\nblacklist c\fd\n", "1 blacklist a\vb; 2 blacklist c\fd"},
		"the kernel splits at the byte A0":              {"options vfio-pci a=\u00a0ids=1:2\n", "1 options vfio_pci a=\xc2|ids=1:2"},
		"tabs and spaces":                               {"\t options\t vfio-pci\tids=1:2  b=c\n", "1 options vfio_pci ids=1:2|b=c"},
		"continued":                                     {"options vfio-pci \\\n  ids=1:2\n", "2 options vfio_pci ids=1:2"},
		"continued within a word":                       {"blacklist nou\\\nveau\n", "2 blacklist nouveau"},
		"a continued comment":                           {"# old \\\nblacklist nouveau\nblacklist x\n", "3 blacklist x"},
		"a backslash that continues no line is dropped": {"blacklist nou\\veau\nblacklist a\\\\b\n", `1 blacklist nouveau; 2 blacklist a\b`},
		"a backslash at the end of the file":            {"blacklist a\nblacklist b c\\", "1 blacklist a; 2 blacklist b c\xff"},
		"no newline at the end of the file":             {"blacklist a\nblacklist b", "1 blacklist a; 2 blacklist b"},
	} {
		t.Run(name, func(t *testing.T) {
			root := hosttest.Lay(t, "mkdir etc/modprobe.d\n")
			hosttest.NoError(t, os.WriteFile(root.Path("/etc/modprobe.d/x.conf"), []byte(test.text), 0o644))
			conf, err := modprobe.ReadConf(root)
			hosttest.NoError(t, err)
			var got []string
			for _, l := range conf {
				got = append(got, strings.TrimRight(fmt.Sprintf("%d %s %s %s", l.Number, l.Command, l.Module, strings.Join(l.Rest, "|")), " "))
			}
			hosttest.Equal(t, test.want, strings.Join(got, "; "))
		})
	}
}

// TestIDs: a list of ids is what the driver reads of it (sscanf), quotes and characters after an id
// left out.
func TestIDs(t *testing.T) {
	for list, want := range map[string]string{
		"10de:11b4,10de:0e0a":     "10de:11b4 10de:0e0a",
		"10de:11b4,,10de:11b4":    "10de:11b4",
		"10DE:11B4":               "10DE:11B4",
		"10de:11b4:1:2:30000:ff":  "10de:11b4:1:2:30000:ff",
		"10de:11b4\u00a0":         "10de:11b4",
		"10de:11b4\xff,10de:0e0a": "10de:11b4 10de:0e0a",
		"10de:11b4:":              "10de:11b4",
		"0x10de:0x11b4":           "0x10de:0x11b4",
		"10de,nothing":            "",
	} {
		hosttest.EqualIn(t, list, want, strings.Join(modprobe.AddIDs(nil, list), " "))
	}
}

func TestModules(t *testing.T) {
	root := hosttest.Lay(t, `
symlink lib -> usr/lib
-- usr/lib/modules/6.1/modules.dep --
kernel/drivers/vfio/pci/vfio-pci.ko.zst: kernel/drivers/vfio/vfio.ko.zst
kernel/drivers/gpu/drm/nouveau/nouveau.ko:
updates/dkms/nvidia.ko.xz:
-- usr/lib/modules/6.1/modules.builtin --
kernel/drivers/usb/host/xhci-pci.ko
-- usr/lib/modules/6.1/modules.alias --
# Aliases
alias pci:v000010DEd*sv*sd*bc03sc*i* nouveau
alias pci:v000010DEd00002342sv*sd*bc03sc02i00* nvidia
alias pci:v00008086d*sv*sd*bc*sc*i* i915
alias vfio_pci:v000010DEd00002342sv*sd*bc*sc*i* nvgrace_gpu_vfio_pci
alias vfio_pci:v*d*sv*sd*bc*sc*i* vfio_pci
alias usb:v1234p* usbthing
`)
	m, err := modprobe.ReadModules(root, "6.1", "000010DE")
	hosttest.NoError(t, err)
	for name, want := range map[string][2]bool{"vfio_pci": {true, false}, "vfio-pci": {true, false}, "nvidia": {true, false},
		"xhci_pci": {false, true}, "vfio": {false, false}} {
		if got := [2]bool{m.Loadable(name), m.Builtin(name)}; got != want {
			t.Errorf("%s: loadable, built in: %v, want %v", name, got, want)
		}
	}
	for modalias, want := range map[string]string{
		"pci:v000010DEd00002342sv000010DEsd0000abcdbc03sc02i00":      "nvidia nouveau",
		"vfio_pci:v000010DEd00002342sv000010DEsd0000abcdbc03sc02i00": "nvgrace_gpu_vfio_pci vfio_pci",
		"vfio_pci:v000010DEd000011B4sv000010DEsd0000abcdbc03sc00i00": "vfio_pci",
		"pci:v00008086d00000001sv0sd0bc03sc00i00":                    "",
	} {
		hosttest.EqualIn(t, modalias, want, strings.Join(m.Match(modalias), " "))
	}
}

// TestLast: gpustack's file sorts after every file that sets ids=, or Plan returns an error.
func TestLast(t *testing.T) {
	for _, test := range []struct{ foreign, want string }{
		{"", "/etc/modprobe.d/zz-gpustack.conf"},
		{"vfio.conf", "/etc/modprobe.d/zz-gpustack.conf"},
		{"zz-vfio.conf", "/etc/modprobe.d/zzz-gpustack.conf"},
		{"zzz.conf", "/etc/modprobe.d/zzzz-gpustack.conf"},
		{"zzzzz.conf", ""},
	} {
		t.Run(test.foreign, func(t *testing.T) {
			tree := "mkdir etc\n"
			if test.foreign != "" {
				tree = "-- etc/modprobe.d/" + test.foreign + " --\noptions vfio-pci ids=1111:1111\n"
			}
			root := hosttest.Lay(t, tree)
			conf, err := modprobe.ReadConf(root)
			hosttest.NoError(t, err)
			plan, err := modprobe.Functions{Driver: "vfio-pci", IDs: []string{"1111:1111"}}.Plan(edit.Observe(root, modprobe.PlanFiles()...), conf)
			if test.want == "" {
				if !errors.Is(err, modprobe.ErrLast) {
					t.Errorf("%v", err)
				}
				return
			}
			hosttest.NoError(t, err)
			hosttest.Equal(t, test.want, plan.Pending()[0].Name)
		})
	}
}

// FuzzConf: any text is parsed without a panic, and every parsed option occurs in it.
func FuzzConf(f *testing.F) {
	f.Add("options vfio-pci ids=1:2\nsoftdep a pre: b\\\n c\r\n# x\n")
	f.Fuzz(func(t *testing.T, text string) {
		root := hosttest.Lay(t, "mkdir etc/modprobe.d\n")
		hosttest.NoError(t, os.WriteFile(root.Path("/etc/modprobe.d/x.conf"), []byte(text), 0o644))
		conf, err := modprobe.ReadConf(root)
		hosttest.NoError(t, err)
		for _, line := range conf {
			if line.Number < 1 || line.Number > strings.Count(text, "\n")+1 {
				t.Errorf("line %d of %q", line.Number, text)
			}
		}
		plain := strings.NewReplacer("\\\n", "", "\\", "", "\xff", "")
		for _, o := range conf.Options("vfio-pci", "ids") {
			if !strings.Contains(plain.Replace(text), plain.Replace(o.Value)) {
				t.Errorf("%q is not in %q", o.Value, text)
			}
		}
	})
}
