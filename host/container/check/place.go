package check

import "gpustack/host/container/prepare"

// Place returns what the folder of mounted libraries depends on in the image.
func (i Image) Place() prepare.Image {
	place := prepare.Image{Name: i.Name}
	if !i.Musl {
		place.Folders = i.Folders
	}
	return place
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
