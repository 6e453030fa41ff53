package initramfs_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"gpustack/host/edit"
	"gpustack/host/hosttest"
	"gpustack/host/initramfs"
)

const (
	conf  = "etc/modprobe.d/zz-gpustack.conf"
	order = "scripts/init-top/ORDER"
	hook  = "usr/lib/dracut/hooks/pre-udev/00-gpustack.sh"
)

// image is the content of an initramfs.
type image map[string]string

// imageOf returns the image that a generator would make of gpustack's files.
func imageOf(t *testing.T, early initramfs.Early, generator initramfs.Generator) image {
	t.Helper()
	plan, err := early.Plan(edit.Observe(hosttest.Lay(t, "mkdir etc\n"), initramfs.PlanFiles()...), generator)
	hosttest.NoError(t, err)
	in := image{conf: "options vfio-pci ids=10de:2342\n", "init": ""}
	for _, m := range []string{"vfio/vfio.ko.xz", "vfio/vfio_iommu_type1.ko.xz", "vfio/pci/vfio-pci.ko.xz", "vfio/pci/nvgrace-gpu-vfio-pci.ko"} {
		in["usr/lib/modules/6.1.0-28-amd64/kernel/drivers/"+m] = ""
	}
	for _, c := range plan.Pending() {
		switch {
		case strings.Contains(c.Name, "init-top"):
			in["scripts/init-top/gpustack"] = string(c.After.Content)
			in[order] = "/scripts/init-top/all_generic_ide \"$@\"\n[ -e /conf/param.conf ] && . /conf/param.conf\n" +
				"/scripts/init-top/gpustack \"$@\"\n/scripts/init-top/udev \"$@\"\n"
		case strings.HasSuffix(c.Name, "/gpustack.sh"):
			in[hook] = string(c.After.Content)
			in["usr/lib/systemd/systemd"] = ""
			in["etc/systemd/system/initrd.target.wants/dracut-pre-udev.service"] = ""
		}
	}
	return in
}

func (in image) content() initramfs.Content {
	c := initramfs.Content{Image: "/boot/initrd", Files: map[string][]byte{}}
	for name, text := range in {
		c.Names = append(c.Names, name)
		if initramfs.Wanted(name) {
			c.Files[name] = []byte(text)
		}
	}
	slices.Sort(c.Names)
	return c
}

// scriptHash returns the hash in a contract of the script that runs before udev.
func scriptHash(t *testing.T, early initramfs.Early, generator initramfs.Generator) string {
	t.Helper()
	plan, err := early.Plan(edit.Observe(hosttest.Lay(t, "mkdir etc\n"), initramfs.PlanFiles()...), generator)
	hosttest.NoError(t, err)
	for _, c := range plan.Pending() {
		if c.Name == generator.Script() {
			return c.After.Hash()
		}
	}
	t.Fatalf("%s: no script", generator)
	return ""
}

// TestVerifyEarlier: an image must have the script that the contract records, not the one that this
// release would write.
func TestVerifyEarlier(t *testing.T) {
	const earlier = "#!/bin/sh\nmodprobe vfio-pci\n"
	early := byIDs()
	for _, generator := range []initramfs.Generator{initramfs.Tools, initramfs.Dracut} {
		in := imageOf(t, early, generator)
		name := map[initramfs.Generator]string{initramfs.Tools: "scripts/init-top/gpustack", initramfs.Dracut: hook}[generator]
		in[name] = earlier
		for hash, want := range map[string]error{(&edit.File{Content: []byte(earlier)}).Hash(): nil, "": initramfs.ErrDiffers,
			scriptHash(t, early, generator): initramfs.ErrDiffers} {
			err := early.Verify(in.content(), generator, initramfs.Expected{Release: "6.1.0-28-amd64", Loadable: func(string) bool { return true }, Script: hash})
			if !errors.Is(err, want) {
				t.Errorf("%s, recorded %q: %v, want %v", generator, hash, err, want)
			}
		}
	}
}

// moved renames an entry of an image.
func (in image) moved(from, to string) {
	in[to] = in[from]
	delete(in, from)
}

// TestVerify: the error has everything that an image lacks, each with the image's name.
func TestVerify(t *testing.T) {
	const vfioPCI = "usr/lib/modules/6.1.0-28-amd64/kernel/drivers/vfio/pci/vfio-pci.ko.xz"
	for _, test := range []struct {
		name      string
		generator initramfs.Generator
		spoil     func(image)
		want      string
		is        error
	}{
		{"initramfs-tools", initramfs.Tools, func(image) {}, "", nil},
		{"no script", initramfs.Tools, func(in image) { delete(in, "scripts/init-top/gpustack") },
			"/boot/initrd: scripts/init-top/gpustack: is missing", initramfs.ErrMissing},
		{"another script", initramfs.Tools, func(in image) { in["scripts/init-top/gpustack"] += "#\n" },
			"/boot/initrd: scripts/init-top/gpustack: differs from what was planned", initramfs.ErrDiffers},
		{"udev first", initramfs.Tools, func(in image) {
			in[order] = "/scripts/init-top/udev \"$@\"\n/scripts/init-top/gpustack \"$@\"\n"
		}, "/boot/initrd: does not bind functions before udev starts", initramfs.ErrOrder},
		{"not run", initramfs.Tools, func(in image) { in[order] = "/scripts/init-top/gpustack-not \"$@\"\n" },
			"/boot/initrd: does not bind functions before udev starts", initramfs.ErrOrder},
		{"no order", initramfs.Tools, func(in image) { delete(in, order) },
			"/boot/initrd: does not bind functions before udev starts", initramfs.ErrOrder},
		{"no udev", initramfs.Tools, func(in image) { in[order] = "/scripts/init-top/gpustack \"$@\"\n" }, "", nil},

		{"dracut", initramfs.Dracut, func(image) {}, "", nil},
		{"dracut with hooks in var", initramfs.Dracut, func(in image) { in.moved(hook, "var/lib/dracut/hooks/pre-udev/00-gpustack.sh") }, "", nil},
		{"dracut with hooks in lib", initramfs.Dracut, func(in image) { in.moved(hook, "lib/dracut/hooks/pre-udev/00-gpustack.sh") }, "", nil},
		{"dracut with init of its own", initramfs.Dracut, func(in image) {
			delete(in, "usr/lib/systemd/systemd")
			delete(in, "etc/systemd/system/initrd.target.wants/dracut-pre-udev.service")
		}, "", nil},
		{"no hook", initramfs.Dracut, func(in image) { delete(in, hook) },
			"/boot/initrd: lib/dracut/hooks/pre-udev/00-gpustack.sh: is missing", initramfs.ErrMissing},
		{"a later hook", initramfs.Dracut, func(in image) { in.moved(hook, "usr/lib/dracut/hooks/pre-trigger/00-gpustack.sh") },
			"/boot/initrd: lib/dracut/hooks/pre-udev/00-gpustack.sh: is missing", initramfs.ErrMissing},
		{"another hook", initramfs.Dracut, func(in image) { in[hook] = "" },
			"/boot/initrd: usr/lib/dracut/hooks/pre-udev/00-gpustack.sh: differs from what was planned", initramfs.ErrDiffers},
		{"nothing runs hooks", initramfs.Dracut, func(in image) {
			delete(in, "etc/systemd/system/initrd.target.wants/dracut-pre-udev.service")
		}, "/boot/initrd: does not bind functions before udev starts", initramfs.ErrOrder},

		{"nothing that starts", initramfs.Dracut, func(in image) {
			delete(in, "usr/lib/systemd/systemd")
			delete(in, "init")
		}, "/boot/initrd: does not bind functions before udev starts", initramfs.ErrOrder},

		{"no modprobe.d", initramfs.Dracut, func(in image) { delete(in, conf) },
			"/boot/initrd: /etc/modprobe.d/zz-gpustack.conf: is missing", initramfs.ErrMissing},
		{"an old modprobe.d", initramfs.Tools, func(in image) { in[conf] = "options vfio-pci ids=10de:11b4\n" },
			"/boot/initrd: /etc/modprobe.d/zz-gpustack.conf: differs from what was planned", initramfs.ErrDiffers},
		{"a module without a suffix", initramfs.Tools, func(in image) { in.moved(vfioPCI, strings.TrimSuffix(vfioPCI, ".xz")) }, "", nil},
		{"modules below lib", initramfs.Tools, func(in image) { in.moved(vfioPCI, strings.TrimPrefix(vfioPCI, "usr/")) }, "", nil},
		{"no module", initramfs.Tools, func(in image) { delete(in, vfioPCI) },
			"/boot/initrd: module vfio_pci of 6.1.0-28-amd64: is missing", initramfs.ErrMissing},
		{"another kernel's module", initramfs.Tools, func(in image) { in.moved(vfioPCI, strings.Replace(vfioPCI, "28", "27", 1)) },
			"/boot/initrd: module vfio_pci of 6.1.0-28-amd64: is missing", initramfs.ErrMissing},
		{"a module of a longer name", initramfs.Tools, func(in image) { in.moved(vfioPCI, strings.Replace(vfioPCI, "vfio-pci.ko", "vfio-pci-core.ko", 1)) },
			"/boot/initrd: module vfio_pci of 6.1.0-28-amd64: is missing", initramfs.ErrMissing},
		{"all at once", initramfs.Tools, func(in image) {
			delete(in, vfioPCI)
			delete(in, conf)
			delete(in, order)
		}, "/boot/initrd: does not bind functions before udev starts\n" +
			"/boot/initrd: /etc/modprobe.d/zz-gpustack.conf: is missing\n" +
			"/boot/initrd: module vfio_pci of 6.1.0-28-amd64: is missing", initramfs.ErrMissing},
		{"nothing of ours", initramfs.Dracut, func(in image) { clear(in) },
			"/boot/initrd: lib/dracut/hooks/pre-udev/00-gpustack.sh: is missing\n" +
				"/boot/initrd: /etc/modprobe.d/zz-gpustack.conf: is missing\n" +
				"/boot/initrd: module vfio_iommu_type1 of 6.1.0-28-amd64: is missing\n" +
				"/boot/initrd: module vfio_pci of 6.1.0-28-amd64: is missing\n" +
				"/boot/initrd: module nvgrace_gpu_vfio_pci of 6.1.0-28-amd64: is missing", initramfs.ErrMissing},
	} {
		t.Run(test.name, func(t *testing.T) {
			early := twins(t)
			in := imageOf(t, early, test.generator)
			script := scriptHash(t, early, test.generator)
			test.spoil(in)
			expected := initramfs.Expected{
				Release:  "6.1.0-28-amd64",
				Loadable: func(module string) bool { return module != "vfio" }, // is part of the kernel
				Files:    map[string][]byte{"/" + conf: []byte("options vfio-pci ids=10de:2342\n")},
				Script:   script,
			}
			err := early.Verify(in.content(), test.generator, expected)
			got := ""
			if err != nil {
				got = err.Error()
			}
			hosttest.Equal(t, test.want, got)
			if !errors.Is(err, test.is) {
				t.Errorf("%v is not the right error", err)
			}
			// What a Memory keeps leads to the same answer.
			kept := in.content()
			kept.Names = initramfs.Essence(kept.Names)
			hosttest.EqualIn(t, "of what is remembered", fmt.Sprint(err), fmt.Sprint(early.Verify(kept, test.generator, expected)))
		})
	}
}
