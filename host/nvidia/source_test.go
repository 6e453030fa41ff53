package nvidia_test

import (
	"strings"
	"testing"

	"gpustack/host/hosttest"
)

// driverFiles returns the links and files of libraries of a version in a folder.
func driverFiles(folder, version string, stems ...string) string {
	var links, files strings.Builder
	for _, stem := range stems {
		links.WriteString("symlink " + folder + "/" + stem + ".so.1 -> " + stem + ".so." + version + "\n")
		files.WriteString("-- " + folder + "/" + stem + ".so." + version + " --\n" + version + "\n")
	}
	return links.String() + files.String()
}

// both joins trees: links come before files.
func both(trees ...string) string {
	var links, files strings.Builder
	for _, tree := range trees {
		inFiles := false
		for line := range strings.Lines(tree) {
			if inFiles = inFiles || strings.HasPrefix(line, "-- "); inFiles {
				files.WriteString(line)
			} else {
				links.WriteString(line)
			}
		}
	}
	return links.String() + files.String()
}

// TestLibrarySource: all libraries are from one source: that whose libcuda has the version of the
// loaded module, else the driver container, else the folder that the loader searches first. A
// library of another version than libcuda is none of them.
func TestLibrarySource(t *testing.T) {
	t.Parallel()
	const cuda, ml = "libcuda", "libnvidia-ml"
	const debian, inContainer = "usr/lib/x86_64-linux-gnu", "run/nvidia/driver/usr/lib/x86_64-linux-gnu"
	loaded := "-- proc/driver/nvidia/version --\nNVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Fri May 31\n"
	container := driverFiles(inContainer, "580.95.05", cuda, ml)
	for name, test := range map[string]struct {
		tree     string
		cuda, ml string // folders, "" for none
	}{
		"a stale package beside a driver container": {both(container, driverFiles(debian, "535.161.07", cuda), loaded), inContainer, inContainer},
		"stale packages beside a driver container":  {both(container, driverFiles(debian, "535.161.07", cuda, ml), loaded), inContainer, inContainer},
		"the same, nothing loaded":                  {both(container, driverFiles(debian, "535.161.07", cuda)), inContainer, inContainer},
		"the same, another version loaded": {both(driverFiles(inContainer, "575.57.08", cuda, ml), driverFiles(debian, "535.161.07", cuda, ml),
			loaded), inContainer, inContainer},
		"stale packages before the driver container runs": {both("-- usr/local/nvidia/toolkit/nvidia-container-runtime --\n",
			"-- etc/nvidia-container-runtime/config.toml --\n[nvidia-container-cli]\nroot = \"/run/nvidia/driver\"\n",
			driverFiles(debian, "535.161.07", cuda, ml)), "", ""},
		"packages of the loaded version": {both(driverFiles(inContainer, "575.57.08", cuda, ml),
			driverFiles(debian, "580.95.05", cuda, ml), loaded), debian, debian},
		"packages and container of the loaded version":    {both(container, driverFiles(debian, "580.95.05", cuda, ml), loaded), debian, debian},
		"part of the packages, container of that version": {both(container, driverFiles(debian, "580.95.05", cuda), loaded), debian, ""},
		"an older copy in a folder that is searched first": {both("-- etc/ld.so.conf --\n/opt/old\n", driverFiles("opt/old", "535.161.07", cuda, ml),
			driverFiles("usr/lib64", "580.95.05", cuda, ml), loaded), "usr/lib64", "usr/lib64"},
		"links in two folders": {both(driverFiles(debian, "580.95.05", cuda), driverFiles("usr/lib64", "580.95.05", ml),
			loaded), debian, "usr/lib64"},
		"one library of another version": {both(driverFiles("usr/lib64", "580.95.05", cuda), driverFiles("usr/lib64", "535.161.07", ml),
			loaded), "usr/lib64", ""},
		"all of another version than the module": {both(driverFiles("usr/lib64", "590.48.01", cuda, ml), loaded), "usr/lib64", "usr/lib64"},
		"nothing loaded":                         {driverFiles("usr/lib64", "590.48.01", cuda, ml), "usr/lib64", "usr/lib64"},
	} {
		d := read(t, hosttest.Lay(t, test.tree))
		for link, want := range map[string]string{cuda + ".so.1": test.cuda, ml + ".so.1": test.ml} {
			got := ""
			if l := d.Library(link); l != nil {
				got = strings.TrimPrefix(l.Folder, "/")
			}
			hosttest.EqualIn(t, name+": what "+link+" is of", want, got)
		}
	}
}

// TestNoLibrary: a file that no link leads to is not the library without a name.
func TestNoLibrary(t *testing.T) {
	t.Parallel()
	d := read(t, hosttest.Lay(t, "-- usr/lib64/libcuda.so.1 --\nno version\n-- usr/lib64/libcuda.so.535.54.03 --\n535.54.03\n"))
	if len(d.Libraries) != 1 {
		t.Fatalf("%+v", d.Libraries)
	}
	if l := d.Library(""); l != nil {
		t.Errorf("%+v", l)
	}
}

// TestDriverContainer: a node of a driver container is known before that starts after a reboot, by
// what NVIDIA's toolkit container has left.
func TestDriverContainer(t *testing.T) {
	t.Parallel()
	const config = "-- usr/local/nvidia/toolkit/.config/nvidia-container-runtime/config.toml --\n[nvidia-container-cli]\n  root = "
	const program = "-- usr/local/nvidia/toolkit/nvidia-container-runtime --\n"
	for name, test := range map[string]struct {
		tree string
		want string
	}{
		"it runs":           {"-- run/nvidia/driver/usr/bin/nvidia-smi --\n", "/run/nvidia/driver"},
		"before it starts":  {config + "\"/run/nvidia/driver\"\n", "/run/nvidia/driver"},
		"the host's driver": {both(driverFiles("usr/lib64", "580.95.05", "libcuda"), config+"\"/\"\n"), ""},
		"a toolkit of the host's packages": {"-- etc/nvidia-container-runtime/config.toml --\n[nvidia-container-cli]\nroot = \"/run/nvidia/driver\"\n",
			"/run/nvidia/driver"},
		"a comment":                             {"-- etc/nvidia-container-runtime/config.toml --\n[nvidia-container-cli]\n#root = \"/run/nvidia/driver\"\n", ""},
		"a toolkit without a configuration":     {program, "/run/nvidia/driver"},
		"the same, with libraries of a package": {both(driverFiles("usr/lib64", "580.95.05", "libcuda"), program), ""},
		"neither a toolkit nor a container":     {"-- usr/bin/containerd --\n", ""},
		"the folder of the container is left":   {"-- run/nvidia/validations/driver-ready --\n", ""},
		"with packages, and a container's root": {both(driverFiles("usr/lib64", "535.161.07", "libcuda"), config+"\"/run/nvidia/driver\"\n"), "/run/nvidia/driver"},
	} {
		if d := read(t, hosttest.Lay(t, test.tree)); d.Container != test.want || d.Warnings != nil {
			t.Errorf("%s: %q, want %q; warnings %q", name, d.Container, test.want, d.Warnings)
		}
	}
	d := read(t, hosttest.Lay(t, "-- usr/local/nvidia/toolkit/.config/nvidia-container-runtime/config.toml/file --\n"))
	if len(d.Warnings) != 1 || !strings.Contains(d.Warnings[0], "config.toml: not a regular file") {
		t.Errorf("%q", d.Warnings)
	}
}
