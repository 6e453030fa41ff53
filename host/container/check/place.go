package check

import (
	"errors"
	"fmt"

	"gpustack/host"
)

// Errors of images that mounted libraries have no common place in.
var (
	// ErrNoFolder is the error of an image whose loader does not load libraries of the driver.
	ErrNoFolder = host.WithHint(errors.New("its loader has no folder for libraries of glibc"), "use an image with glibc")
	// ErrFolders is the error of images whose loaders look into different folders first.
	ErrFolders = host.WithHint(errors.New("the loaders of the images look into different folders first"),
		"set LD_LIBRARY_PATH instead: --library-path; or name images of one distribution")
)

// Place returns the folder in which the loaders of all images look first by default.
func Place(images []Image) (folder string, err error) {
	var errs []error
	for _, i := range images {
		switch {
		case i.Musl || len(i.Folders) == 0:
			errs = append(errs, fmt.Errorf("%s: %w", i.Name, ErrNoFolder))
		case folder == "":
			folder = i.Folders[0]
		case i.Folders[0] != folder:
			errs = append(errs, fmt.Errorf("%s: %w: %s, not %s", i.Name, ErrFolders, i.Folders[0], folder))
		}
	}
	return folder, errors.Join(errs...)
}

// Loads describes which libcuda programs of the image load when the driver's is mounted in a
// folder. "" means the mounted one.
func (i Image) Loads(folder string, libraryPath bool) string {
	switch own, found := i.takes(injection{folder: folder, env: libraryPath}); {
	case own != "":
		return "its programs load its own " + own + " instead of the mounted libcuda: it needs --library-path"
	case !found:
		return "its loader does not look into " + folder + ": it needs --library-path"
	}
	return ""
}
