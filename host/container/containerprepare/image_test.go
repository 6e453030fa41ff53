package containerprepare_test

import (
	"strings"
	"testing"

	"gpustack/host/container"
	"gpustack/host/container/containerprepare"
	"gpustack/host/machine"
	"gpustack/host/pci"
)

// TestImages: the folder of the driver's libraries by the images that are named, and which of their
// errors count with LD_LIBRARY_PATH.
func TestImages(t *testing.T) {
	t.Parallel()
	const recorded = "/usr/lib64"
	debian := container.Image{Name: "debian", Folders: []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib"}}
	fedora := container.Image{Name: "fedora", Folders: []string{"/usr/lib64"}}
	ubuntu, alpine := container.Image{Name: "ubuntu", Folders: []string{"/usr/lib/x86_64-linux-gnu"}}, container.Image{Name: "alpine"}
	rocky := container.Image{Name: "rocky", Folders: []string{"/lib64"}, Places: map[string]string{"/lib64": "/usr/lib64"}}
	const none = "its loader has no folder for libraries of glibc"
	const differ = "fedora: the loaders of the images look into different folders first: /usr/lib64, not /usr/lib/x86_64-linux-gnu"
	for name, test := range map[string]struct {
		images []container.Image
		path   *bool  // --library-path
		folder string // recorded
		errs   []string
	}{
		"none":                                 {nil, nil, recorded, nil},
		"one":                                  {[]container.Image{debian}, nil, "/usr/lib/x86_64-linux-gnu", nil},
		"alike":                                {[]container.Image{debian, ubuntu}, nil, "/usr/lib/x86_64-linux-gnu", nil},
		"alike, under another name":            {[]container.Image{rocky, fedora}, nil, "/usr/lib64", nil},
		"different":                            {[]container.Image{debian, fedora}, nil, "", []string{differ}},
		"of musl":                              {[]container.Image{alpine}, nil, "", []string{"alpine: " + none}},
		"all errors":                           {[]container.Image{alpine, debian, fedora}, nil, "", []string{"alpine: " + none, differ}},
		"with LD_LIBRARY_PATH":                 {[]container.Image{debian}, new(true), container.DefaultLibraryFolder, nil},
		"different, with LD_LIBRARY_PATH":      {[]container.Image{debian, fedora}, new(true), container.DefaultLibraryFolder, nil},
		"of musl, with LD_LIBRARY_PATH":        {[]container.Image{alpine}, new(true), "", []string{"alpine: " + none}},
		"all errors, with LD_LIBRARY_PATH":     {[]container.Image{alpine, debian, fedora}, new(true), "", []string{"alpine: " + none, differ}},
		"LD_LIBRARY_PATH is not recorded then": {[]container.Image{debian}, new(false), "/usr/lib/x86_64-linux-gnu", nil},
	} {
		t.Run(name, func(t *testing.T) {
			m := newNode(t).machine()
			m.Recorded = &machine.Containers{Options: machine.ContainerOptions{LibraryFolder: recorded}}
			w, err := containerprepare.NewWant(m, containerprepare.Options{GPUs: []pci.Address{address(t, gpu0)}, Images: test.images, LibraryPath: test.path})
			if test.errs != nil {
				if err == nil || err.Error() != strings.Join(test.errs, "\n") {
					t.Errorf("%v, want %q", err, test.errs)
				}
				return
			}
			if err != nil || w.Record.Options.LibraryFolder != test.folder {
				t.Errorf("%v, %q, want %q", err, w.Record.Options.LibraryFolder, test.folder)
			}
		})
	}
}
