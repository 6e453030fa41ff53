package machine

import (
	"errors"
	"path"
	"slices"
	"sync"

	"gpustack/host"
	"gpustack/host/boot"
	"gpustack/host/initramfs"
	"gpustack/host/modprobe"
)

// Initramfs is the initramfs of a kernel, compared with the contract.
type Initramfs struct {
	Kernel, File string
	// what it lacks (host/initramfs), ErrLeft, or why it could not be read
	Err error
}

// ErrNoInitramfs means that no installed kernel has an initramfs.
var ErrNoInitramfs = errors.New("no initramfs of an installed kernel")

// ErrLeft means that an initramfs binds functions although nothing is recorded any more.
var ErrLeft = errors.New("still binds functions for guests")

// readInitramfs compares the initramfs of each kernel with the contract: those in /boot, and those
// that entries name, whether or not the entries can be read. Without a contract it reads them only
// if the journal has one, whose script an image may still have.
func (o *observer) readInitramfs(all Look[[]initramfs.Image]) {
	contract := o.Contract.Value
	if contract == nil && !slices.ContainsFunc(o.journal.Entries, takesBoot) {
		return
	}
	if ImagesElsewhere(o.Loader.Value) {
		o.Initramfs = Saw[[]Initramfs]("/boot", nil, ErrNoInitramfs)
		return
	}
	if err := errors.Join(o.Generator.Err, all.Err); err != nil {
		o.Initramfs = Saw[[]Initramfs]("/boot", nil, err)
		return
	}
	if o.listErr != nil && !errors.Is(o.listErr, ErrNoKernel) {
		o.Initramfs = Saw[[]Initramfs](host.ModulesDir, nil, o.listErr)
		return
	}
	var images []Initramfs
	for _, i := range append(slices.Clone(all.Value), ImagesOf(o.Entries.Value)...) {
		image := Initramfs{Kernel: i.Release, File: i.Name}
		known := slices.ContainsFunc(images, func(other Initramfs) bool { return other.Kernel == i.Release && other.File == i.Name })
		if i.Name != "" && !known && slices.Contains(o.releases, i.Release) {
			images = append(images, image)
		}
	}
	if len(images) == 0 {
		o.Initramfs = Saw[[]Initramfs]("/boot", nil, ErrNoInitramfs)
		return
	}
	var beside sync.WaitGroup
	for i := range images {
		beside.Go(func() {
			image := &images[i]
			content, err := o.images.Read(o.root, image.File)
			switch {
			case err != nil:
			case contract != nil:
				var kernel modprobe.Modules
				if kernel, err = o.names[image.Kernel](); err == nil {
					err = contract.VerifyImage(o.root, o.Generator.Value, kernel, content)
				}
			case content.Binds():
				err = ErrLeft
			}
			image.Err = err
		})
	}
	beside.Wait()
	o.Initramfs = Saw("/boot", images, nil)
}

// ImagesOf returns the initramfs images of boot entries.
func ImagesOf(entries []boot.Entry) []initramfs.Image {
	var images []initramfs.Image
	for _, e := range entries {
		for _, name := range e.Initrds {
			images = append(images, initramfs.Image{Release: e.Release, Name: name})
		}
	}
	return images
}

// VerifyImage compares an initramfs of a kernel with the contract. The script in it must be the
// recorded one.
func (c Contract) VerifyImage(root host.Root, maker initramfs.Generator, kernel modprobe.Modules, content initramfs.Content) error {
	expected := initramfs.Expected{Release: kernel.Release, Loadable: kernel.Loadable, Files: map[string][]byte{}}
	for _, f := range c.Files {
		if f.Name == maker.Script() {
			expected.Script = f.Hash
		}
		if path.Dir(f.Name) == modprobe.Dir {
			content, err := root.ReadFile(f.Name)
			if err != nil {
				return err
			}
			expected.Files[f.Name] = content
		}
	}
	return c.Early([]modprobe.Modules{kernel}).Verify(content, maker, expected)
}

// Early returns what the initramfs of these kernels does to bind the recorded functions.
func (c Contract) Early(kernels []modprobe.Modules) initramfs.Early {
	e := initramfs.Early{Driver: c.Driver, Modules: loadable(kernels, OwnModules(c.Driver))}
	for _, f := range c.Functions {
		if f.By == ByService {
			continue
		}
		if f.By == ByAddress {
			e.ByAddress = append(e.ByAddress, initramfs.Function{
				Address: f.Address, Path: f.SysfsPath, Vendor: f.VendorID, Product: f.ProductID,
				SubsystemVendor: f.SubsystemVendorID, Subsystem: f.SubsystemID, Driver: f.Driver,
			})
		}
		if f.BootVGA {
			e.Consoles = append(e.Consoles, f.Address)
		}
		if f.Driver != c.Driver && !slices.Contains(e.Variants, f.Driver) {
			e.Variants = append(e.Variants, f.Driver)
			e.Modules = append(e.Modules, f.Driver)
		}
	}
	return e
}

// Modules returns the modules that kernels load to bind the functions of the contract.
func (c Contract) Modules(kernels []modprobe.Modules) []string {
	drivers := host.Map(c.Functions, func(f Function) string { return f.Driver })
	return loadable(kernels, append(OwnModules(c.Driver), drivers...))
}

// loadable returns the modules that one of the kernels can load.
func loadable(kernels []modprobe.Modules, modules []string) []string {
	return host.Filter(modules, func(name string) bool {
		return slices.ContainsFunc(kernels, func(m modprobe.Modules) bool { return m.Loadable(name) })
	})
}

// OwnModules returns the modules that bind functions to a driver for passthrough.
func OwnModules(driver string) []string {
	if driver == Stub {
		return []string{"pci_stub"}
	}
	return []string{"vfio", "vfio_iommu_type1", "vfio_pci"}
}
