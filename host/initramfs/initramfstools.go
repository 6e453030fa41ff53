package initramfs

import (
	"errors"
	"fmt"
	"strings"
	"text/template"

	"gpustack/host"
	"gpustack/host/edit"
	"gpustack/host/pci"
	"gpustack/templates"
)

// The files of initramfs-tools that are ours (initramfs-tools(7)).
const (
	hookFile   = "/etc/initramfs-tools/hooks/gpustack"
	scriptFile = "/etc/initramfs-tools/scripts/init-top/gpustack"
)

// Early is what shall happen before udev starts.
type Early struct {
	Driver   string   // is loaded, and takes what it is told to by ids
	Variants []string // drivers for single products that are loaded too
	Modules  []string // are to be in the initramfs
	Take     []Function
}

// Function is one that is taken by its address, if it still is that product.
type Function struct {
	Address         pci.Address
	Vendor, Product pci.ID
	Driver          string
}

var (
	hook   = template.Must(template.New("hook").Parse(templates.InitramfsHook))
	script = template.Must(template.New("init-top").Parse(templates.InitramfsScript))
)

// Plan plans our files for initramfs-tools.
func (e Early) Plan(root host.Root) (edit.Plan, error) {
	var plan edit.Plan
	for _, file := range []struct {
		name string
		text *template.Template
	}{{hookFile, hook}, {scriptFile, script}} {
		var b strings.Builder
		if err := file.text.Execute(&b, e); err != nil {
			return nil, err
		}
		c, err := edit.Put(root, file.name, []byte(b.String()), 0o755, true)
		if err != nil {
			return nil, err
		}
		plan = append(plan, c)
	}
	return plan, nil
}

// ErrMaker says that the program which makes a machine's initramfs is none that
// gpustack can tell what to put there.
var ErrMaker = errors.New("initramfs maker not supported yet")

// ErrNoMaker says that no such program was found.
var ErrNoMaker = errors.New("no initramfs maker found")

// Check is an error unless initramfs-tools makes the machine's initramfs. It goes
// by the programs, and on a tree without any by the folders of their configuration;
// a tree of Debian or Ubuntu with no trace of another has initramfs-tools.
func Check(root host.Root, distribution string) error {
	for _, maker := range []struct {
		file, name string
	}{
		{"/usr/sbin/mkinitramfs", ""},
		{"/usr/bin/dracut", "dracut"},
		{"/usr/sbin/dracut", "dracut"},
		{"/usr/bin/mkinitcpio", "mkinitcpio"},
		{"/usr/bin/booster", "booster"},
		{"/etc/initramfs-tools", ""},
		{"/etc/dracut.conf.d", "dracut"},
	} {
		ok, err := root.Exists(maker.file)
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", maker.file, host.Cause(err))
		case ok && maker.name == "":
			return nil
		case ok:
			return fmt.Errorf("%s: %w", maker.name, ErrMaker)
		}
	}
	if id, _, _ := strings.Cut(distribution, " "); id == "debian" || id == "ubuntu" {
		return nil
	}
	return ErrNoMaker
}
