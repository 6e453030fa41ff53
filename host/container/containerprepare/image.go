package containerprepare

import (
	"errors"
	"fmt"

	"gpustack/host"
	"gpustack/host/container"
)

// Errors of images that mounted libraries have no common place in.
var (
	// errNoFolder is the error of an image whose loader does not load libraries of the driver.
	errNoFolder = host.WithHint(errors.New("its loader has no folder for libraries of glibc"), "use an image with glibc")
	// errFolders is the error of images whose loaders look into different folders first.
	errFolders = host.WithHint(errors.New("the loaders of the images look into different folders first"),
		"set LD_LIBRARY_PATH instead: --library-path; or name images of one distribution")
)

// images records the folder in which the loaders of all images look first by default. With
// LD_LIBRARY_PATH they need none in common, but each must load libraries of glibc.
func (w *wanting) images() {
	folder, err := folderOf(w.Images)
	r := &w.Record.Options
	if folder != "" && !r.LibraryPath {
		r.LibraryFolder = folder
	}
	if err != nil && (!r.LibraryPath || errors.Is(err, errNoFolder)) {
		w.fail(err)
	}
}

// folderOf returns the folder in which the loaders of all images look first by default.
func folderOf(images []container.Image) (folder string, err error) {
	var errs []error
	var able []container.Image
	for _, i := range images {
		if len(i.LibraryFolders()) == 0 {
			errs = append(errs, fmt.Errorf("%s: %w", i.Name, errNoFolder))
			continue
		}
		able = append(able, i)
	}
	if len(able) == 0 {
		return "", errors.Join(errs...)
	}
	if folder = container.CommonFolder(able); folder != "" {
		return folder, errors.Join(errs...)
	}
	folder = able[0].Folders[0]
	for _, i := range able[1:] {
		if container.CommonFolder([]container.Image{able[0], i}) == "" {
			errs = append(errs, fmt.Errorf("%s: %w: %s, not %s", i.Name, errFolders, i.Folders[0], folder))
		}
	}
	return folder, errors.Join(errs...)
}

// loads warns of images whose programs do not load the mounted libraries.
func (w *wanting) loads() {
	for _, i := range w.Images {
		if why := i.Loads(w.Record.Options.LibraryFolder, w.Record.Options.LibraryPath); why != "" {
			w.Warnings = append(w.Warnings, i.Name+": "+why)
		}
	}
}
