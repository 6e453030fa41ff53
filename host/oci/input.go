package oci

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"gpustack/host"
)

// reference is the form of an image's name, as opposed to the path of a file, which begins with a
// slash or a dot (distribution/reference, regexp.go), with the transport of skopeo, if any.
var reference = host.LazyRegexp(`^([a-z-]+:(//)?)?[a-z0-9][a-z0-9._-]*(:\d+)?(/[a-z0-9._-]+)*(:[\w.-]+)?(@sha256:[0-9a-f]{64})?$`)

// IsLayout reports whether a folder is an OCI layout, as opposed to the root folder of an image. A
// name that is no folder, and a folder in the format of docker save, is an error.
func IsLayout(name string) (bool, error) {
	info, err := os.Stat(name)
	switch {
	case host.IsAbsent(err) && reference().MatchString(name):
		return false, host.WithHint(fmt.Errorf("%s: %w", name, host.Cause(err)),
			"an image is read from a folder, which podman writes for its name: podman save --format oci-dir -o DIR NAME")
	case err != nil:
		return false, fmt.Errorf("%s: %w", name, host.Cause(err))
	case !info.IsDir():
		return false, fmt.Errorf("%s: %w", name, archiveError(name, info))
	}
	has := func(file string) bool {
		_, err := os.Stat(filepath.Join(name, file))
		return err == nil
	}
	switch {
	case has("index.json"), has("oci-layout"):
		return true, nil
	case has("manifest.json") && !has("usr"):
		return false, fmt.Errorf("%s: %w", name, errDocker)
	}
	return false, nil
}

// archiveError returns the error of a file in place of a folder, by what it is.
func archiveError(name string, info os.FileInfo) error {
	if !info.Mode().IsRegular() {
		return ErrArchive
	}
	f, err := os.Open(name)
	if err != nil {
		return host.Cause(err)
	}
	defer f.Close() //nolint:errcheck // only read from
	content, err := decompressed(bufio.NewReader(f))
	if err != nil {
		return ErrArchive
	}
	defer content.Close() //nolint:errcheck // only read from
	// The file that tells the kind is one of the first: all others are in blobs/, or in one folder
	// or file for each layer.
	const most = 1000
	archive := tar.NewReader(content)
	isDocker := false
	for range most {
		h, err := archive.Next()
		if err != nil {
			break
		}
		switch path.Clean(strings.TrimPrefix(h.Name, "/")) {
		case "oci-layout", "index.json":
			return ErrOCIArchive
		case "manifest.json", "repositories":
			isDocker = true
		}
	}
	if isDocker {
		return ErrDockerArchive
	}
	return ErrArchive
}

// Errors of archives in place of a folder.
var (
	// ErrOCIArchive is the error of an OCI layout in a tar archive. docker save writes one since
	// Docker 25.
	ErrOCIArchive = host.WithHint(errors.New("is an archive of an OCI layout, not a folder"), "unpack it: mkdir DIR && tar -xf FILE -C DIR")
	// ErrDockerArchive is the error of an archive of docker save before Docker 25.
	ErrDockerArchive = host.WithHint(errors.New("is an archive of docker save, not an OCI layout"), "convert it: skopeo copy docker-archive:FILE oci:DIR")
)
