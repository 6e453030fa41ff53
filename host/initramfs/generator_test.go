package initramfs_test

import (
	"errors"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/hosttest"
	"gpustack/host/initramfs"
)

func TestGeneratorOf(t *testing.T) {
	const (
		tools     = "-- usr/sbin/mkinitramfs --\n"
		dracut    = "-- usr/bin/dracut --\n"
		update    = "-- usr/sbin/update-initramfs --\n#!/bin/sh\nif mkinitramfs ${OPTS} \"${initramfs}.new\"; then\n"
		wrapper   = "-- usr/sbin/update-initramfs --\n#!/bin/sh\ndracut --force --kver \"$version\"\n"
		other     = "-- usr/sbin/update-initramfs --\n#!/bin/sh\nexit 0\n"
		toolsConf = "mkdir etc/initramfs-tools\n"
		dracConf  = "mkdir etc/dracut.conf.d\n"
	)
	for _, test := range []struct {
		name, tree, distribution string
		want                     string
	}{
		{"initramfs-tools", tools + update, "ubuntu 22.04", "initramfs-tools"},
		{"dracut", dracut, "fedora 40", "dracut"},
		{"dracut in sbin", "-- usr/sbin/dracut --\n", "rhel 7.9", "dracut"},
		{"dracut on Debian", dracut + "mkdir etc/initramfs-tools\n", "debian 12", "dracut"},
		{"both, and update-initramfs is of initramfs-tools", tools + dracut + update, "debian 12", "initramfs-tools"},
		{"both, and update-initramfs is of dracut", tools + dracut + wrapper, "ubuntu 25.10", "dracut"},
		{"both, and no update-initramfs", tools + dracut, "debian 12", "dracut"},
		{"both, and update-initramfs is of neither", tools + dracut + other, "debian 12",
			"/usr/sbin/update-initramfs: runs neither mkinitramfs nor dracut: initramfs generator not supported"},
		{"both, and update-initramfs cannot be read", tools + dracut + "mkdir usr/sbin/update-initramfs\n", "debian 12",
			"/usr/sbin/update-initramfs: not a regular file"},
		{"mkinitcpio", "-- usr/bin/mkinitcpio --\n", "arch", "mkinitcpio: initramfs generator not supported"},
		{"booster", "-- usr/bin/booster --\n", "arch", "booster: initramfs generator not supported"},
		{"configuration of initramfs-tools", toolsConf, "", "initramfs-tools"},
		{"configuration of dracut", dracConf, "debian 12", "dracut"},
		{"configuration of mkinitcpio", "-- etc/mkinitcpio.conf --\n", "", "mkinitcpio: initramfs generator not supported"},
		{"configuration of both, on RHEL", toolsConf + dracConf, "rhel 9.4", "dracut"},
		{"configuration of both, on Debian", toolsConf + dracConf, "debian 12", "initramfs-tools"},
		{"configuration of both, elsewhere", toolsConf + dracConf, "void", "initramfs-tools"},
		{"Ubuntu by its name", "mkdir etc\n", "ubuntu 24.04", "initramfs-tools"},
		{"Rocky by its name", "mkdir etc\n", "rocky 9.4", "dracut"},
		{"SLES by its name", "mkdir etc\n", "sles 15.5", "dracut"},
		{"Leap by its name", "mkdir etc\n", "opensuse-leap 15.5", "dracut"},
		{"by what it is like", "mkdir etc\n", "eurolinux 9.4 rhel fedora centos", "dracut"},
		{"an unknown distribution", "mkdir etc\n", "void", "no initramfs generator found"},
		{"no distribution", "mkdir etc\n", "", "no initramfs generator found"},
	} {
		t.Run(test.name, func(t *testing.T) {
			generator, err := initramfs.GeneratorOf(hosttest.Lay(t, commandsFirst(test.tree)), test.distribution)
			got := string(generator)
			if err != nil {
				got = err.Error()
			}
			hosttest.Equal(t, test.want, got)
			if strings.Contains(got, "not supported") != errors.Is(err, initramfs.ErrUnsupported) ||
				strings.HasPrefix(got, "no ") != errors.Is(err, initramfs.ErrNoGenerator) {
				t.Errorf("%q is not the right error", err)
			}
		})
	}
}

// commandsFirst moves the commands of an archive before its files.
func commandsFirst(tree string) string {
	var commands, files string
	for line := range strings.Lines(tree) {
		if strings.HasPrefix(line, "mkdir ") {
			commands += line
		} else {
			files += line
		}
	}
	return commands + files
}

// TestImages: images with the names of all distributions are found and regenerated in place. Other
// files are ignored.
func TestImages(t *testing.T) {
	root := hosttest.Lay(t, `
symlink boot/initrd -> initrd-5.14.21-default
-- boot/initrd.img-6.1.0-28-amd64 --
-- boot/initrd.img-6.1.0-28-amd64.bak --
-- boot/initramfs-5.14.0-427.el9.x86_64.img --
-- boot/initramfs-5.14.0-427.el9.x86_64kdump.img --
-- boot/initramfs-0-rescue-c0ffee.img --
-- boot/initrd-5.14.21-default --
-- boot/initrd.img-6.8.0-31-generic --
-- boot/initramfs-6.8.0-31-generic.img --
`)
	images, err := initramfs.Images(root, []string{"5.14.0-427.el9.x86_64", "5.14.21-default", "6.1.0-28-amd64", "6.8.0-31-generic", "6.9.0-custom"})
	hosttest.NoError(t, err)
	want := []initramfs.Image{
		{Release: "5.14.0-427.el9.x86_64", Name: "/boot/initramfs-5.14.0-427.el9.x86_64.img"},
		{Release: "5.14.21-default", Name: "/boot/initrd-5.14.21-default"},
		{Release: "6.1.0-28-amd64", Name: "/boot/initrd.img-6.1.0-28-amd64"},
		{Release: "6.8.0-31-generic", Name: "/boot/initrd.img-6.8.0-31-generic"},
		{Release: "6.8.0-31-generic", Name: "/boot/initramfs-6.8.0-31-generic.img"},
		{Release: "6.9.0-custom"},
	}
	hosttest.Equal(t, want, images)
	hosttest.Equal(t, []host.Program{{Kind: host.UpdateInitramfs}}, initramfs.Tools.Programs(images))
	hosttest.Equal(t, []host.Program{
		{Kind: host.Dracut, File: "/boot/initramfs-5.14.0-427.el9.x86_64.img", Release: "5.14.0-427.el9.x86_64"},
		{Kind: host.Dracut, File: "/boot/initrd-5.14.21-default", Release: "5.14.21-default"},
		{Kind: host.Dracut, File: "/boot/initrd.img-6.1.0-28-amd64", Release: "6.1.0-28-amd64"},
		{Kind: host.Dracut, File: "/boot/initrd.img-6.8.0-31-generic", Release: "6.8.0-31-generic"},
		{Kind: host.Dracut, File: "/boot/initramfs-6.8.0-31-generic.img", Release: "6.8.0-31-generic"},
	}, initramfs.Dracut.Programs(images))
}

// TestImagesUnreadable: a boot partition that cannot be read is an error.
func TestImagesUnreadable(t *testing.T) {
	if images, err := initramfs.Images(hosttest.Lay(t, "-- boot --\nx\n"), []string{"6.1"}); err == nil {
		t.Errorf("%v", images)
	}
}
