package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	_ "embed"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// A file is one of a package.
type file struct {
	path string // below /usr
	mode fs.FileMode
	data []byte
	link string // the target of a symbolic link, which has neither mode nor data
}

// docs is the folder for a package's documents.
const docs = "share/doc/" + product + "/"

// licenses is the document with the licenses of all modules.
const licenses = "third-party-licenses.txt"

//go:embed lintian-overrides
var lintianOverrides []byte

//go:embed copyright
var copyright []byte

// forDebian returns the files of a deb: Debian Policy 12.1 (compressed manual pages), 12.5
// (copyright), and Debian's own folder for completions of zsh. Users of Debian do not have
// /usr/sbin among the folders for programs, and commands of flavors and images need no root: the
// link is for them. Users of RHEL and Fedora have it. The program stays in /usr/sbin, because units
// of prepared nodes name it.
func forDebian(all []file) (files []file, err error) {
	for _, f := range all {
		switch {
		case f.path == docs+"LICENSE":
			continue // Apache-2.0 is in /usr/share/common-licenses
		case strings.HasPrefix(f.path, "share/zsh/site-functions/"):
			f.path = "share/zsh/vendor-completions/" + path.Base(f.path)
		}
		files = append(files, f)
	}
	return compressManual(append(files,
		file{path: "bin/gpustack", link: "../sbin/gpustack"},
		file{path: docs + "copyright", mode: 0o644, data: copyright},
		file{path: "share/lintian/overrides/" + product, mode: 0o644, data: lintianOverrides}))
}

// rpmLicenses is the folder for an rpm's licenses, as Fedora's packaging guidelines name it.
const rpmLicenses = "share/licenses/" + product + "/"

// forRPM returns the files of an rpm.
func forRPM(all []file) (files []file, err error) {
	for _, f := range all {
		if f.path == docs+"LICENSE" || f.path == docs+licenses {
			f.path = rpmLicenses + path.Base(f.path)
		}
		files = append(files, f)
	}
	return compressManual(files)
}

// folders returns the folders of a package that have its name or that of the collection's
// namespace, and those below them: the package owns them, and they go with it.
func folders(files []file) (dirs []string) {
	own := func(dir string) bool {
		return strings.Contains(dir+"/", "/"+product+"/") || strings.HasPrefix(dir+"/", path.Dir(path.Clean(collectionDir))+"/")
	}
	for _, f := range files {
		for dir := path.Dir(f.path); own(dir); dir = path.Dir(dir) {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// compressManual compresses the manual pages among files.
func compressManual(files []file) (compressed []file, err error) {
	for _, f := range files {
		if strings.HasPrefix(f.path, "share/man/") {
			f.path += ".gz"
			if f.data, err = gzipped(f.data); err != nil {
				return nil, err
			}
		}
		compressed = append(compressed, f)
	}
	return compressed, nil
}

// gzipped returns data as gzip -9n compresses it: without a name and a time.
func gzipped(data []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err = w.Write(data); err == nil {
		err = w.Close()
	}
	return b.Bytes(), err
}

// tarball writes an archive with one folder, which has the name of the archive. It is unpacked
// below /usr/local by tar --strip-components=1.
func (r *release) tarball(name string, files []file) error {
	folder := strings.TrimSuffix(path.Base(name), ".tar.gz")
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: folder + "/" + f.path, Mode: int64(f.mode), Size: int64(len(f.data)),
			ModTime: r.time, Uname: "root", Gname: "root"}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		if _, err := w.Write(f.data); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	data, err := gzipped(b.Bytes())
	if err != nil {
		return err
	}
	return os.WriteFile(name, data, 0o644)
}
