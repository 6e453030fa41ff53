package check

// LibraryFolders returns the folders in which its loader looks for libraries of glibc by default, in
// its order; none if it is musl's.
func (i Image) LibraryFolders() []string {
	if i.Musl {
		return nil
	}
	return i.Folders
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
