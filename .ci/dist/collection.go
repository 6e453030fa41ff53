package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"gopkg.in/yaml.v3"
)

// collectionDir is where Ansible finds the collection without a configuration, in the packages.
const collectionDir = "share/ansible/collections/ansible_collections/gpustack/nova/"

// A galaxy is galaxy.yml, which describes a collection.
type galaxy struct {
	Namespace   string   `yaml:"namespace"`
	Name        string   `yaml:"name"`
	Version     string   `yaml:"version"`
	Readme      string   `yaml:"readme"`
	Authors     []string `yaml:"authors"`
	Description string   `yaml:"description"`
	LicenseFile string   `yaml:"license_file"`
	Tags        []string `yaml:"tags"`
	Repository  string   `yaml:"repository"` // for linters alone
}

// A collectionInfo is what MANIFEST.json says of a collection: the fields of galaxy.yml as
// ansible-galaxy writes them (ansible-core, lib/ansible/galaxy/collection/__init__.py,
// _build_manifest). It reads no others.
type collectionInfo struct {
	Namespace     string            `json:"namespace"`
	Name          string            `json:"name"`
	Version       string            `json:"version"`
	Authors       []string          `json:"authors"`
	Readme        string            `json:"readme"`
	Tags          []string          `json:"tags"`
	Description   string            `json:"description"`
	License       []string          `json:"license"`
	LicenseFile   string            `json:"license_file"`
	Dependencies  map[string]string `json:"dependencies"`
	Repository    *string           `json:"repository"`
	Documentation *string           `json:"documentation"`
	Homepage      *string           `json:"homepage"`
	Issues        *string           `json:"issues"`
}

// A manifestFile is an element of FILES.json, and what MANIFEST.json says of FILES.json.
type manifestFile struct {
	Name   string  `json:"name"`
	Type   string  `json:"ftype"`
	Sum    *string `json:"chksum_type"`
	SHA256 *string `json:"chksum_sha256"`
	Format int     `json:"format"`
}

func newManifestFile(name string, data []byte) manifestFile {
	kind, sum := "sha256", sha256.Sum256(data)
	text := hex.EncodeToString(sum[:])
	return manifestFile{name, "file", &kind, &text, 1}
}

// A collection is Ansible's collection as a release has it: its files, whose paths are below its
// folder, and the version.
type collection struct {
	file  string // the name of its archive, as Ansible Galaxy names it
	files []file // folders end with a slash
}

// newCollection reads the collection in a folder, in which a version of a release takes the place
// of that of galaxy.yml. ansible-galaxy collection build would write the time of the build.
func newCollection(dir, version string) (c collection, err error) {
	text, err := os.ReadFile(filepath.Join(dir, "galaxy.yml"))
	if err != nil {
		return collection{}, err
	}
	var g galaxy
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true) // a field that nothing reads would be lost
	if err := decoder.Decode(&g); err != nil {
		return collection{}, fmt.Errorf("%s/galaxy.yml: %w", dir, err)
	}
	manifest := []manifestFile{{Name: ".", Type: "dir", Format: 1}}
	err = filepath.WalkDir(dir, func(where string, entry fs.DirEntry, err error) error {
		name, relErr := filepath.Rel(dir, where)
		switch {
		case err != nil || relErr != nil:
			return errors.Join(err, relErr)
		case name == "." || name == "galaxy.yml":
			return nil
		case strings.HasPrefix(entry.Name(), ".") || entry.Name() == "__pycache__": // for those who work on it
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case entry.IsDir():
			c.files = append(c.files, file{path: name + "/", mode: 0o755})
			manifest = append(manifest, manifestFile{Name: name, Type: "dir", Format: 1})
			return nil
		}
		data, err := os.ReadFile(where) // of the target of a link, such as LICENSE
		if err != nil {
			return err
		}
		c.files = append(c.files, file{path: name, mode: 0o644, data: data})
		manifest = append(manifest, newManifestFile(name, data))
		return nil
	})
	if err != nil {
		return collection{}, err
	}
	list, err := indented(map[string]any{"files": manifest, "format": 1})
	if err != nil {
		return collection{}, err
	}
	info, err := indented(struct {
		Info   collectionInfo `json:"collection_info"`
		Files  manifestFile   `json:"file_manifest_file"`
		Format int            `json:"format"`
	}{collectionInfo{Namespace: g.Namespace, Name: g.Name, Version: version, Authors: g.Authors, Readme: g.Readme, Tags: g.Tags,
		Description: g.Description, License: []string{}, LicenseFile: g.LicenseFile, Dependencies: map[string]string{}},
		newManifestFile("FILES.json", list), 1})
	if err != nil {
		return collection{}, err
	}
	// The order of ansible-galaxy.
	c.files = append([]file{{path: "MANIFEST.json", mode: 0o644, data: info}, {path: "FILES.json", mode: 0o644, data: list}}, c.files...)
	c.file = fmt.Sprintf("%s-%s-%s.tar.gz", g.Namespace, g.Name, version)
	return c, nil
}

func indented(value any) ([]byte, error) {
	text, err := json.MarshalIndent(value, "", " ")
	return append(text, '\n'), err
}

// write writes the archive that ansible-galaxy collection install accepts.
func (c collection) write(r *release) error {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range c.files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.path, Mode: int64(f.mode), Size: int64(len(f.data)), ModTime: r.time, Uname: "root", Gname: "root"}
		if strings.HasSuffix(f.path, "/") {
			header.Typeflag, header.Name = tar.TypeDir, path.Clean(f.path)
		}
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
	return os.WriteFile(filepath.Join(r.out, c.file), data, 0o644)
}

// unpacked returns the files of the installed collection, for a package.
func (c collection) unpacked() (files []file) {
	for _, f := range c.files {
		if !strings.HasSuffix(f.path, "/") {
			f.path = collectionDir + f.path
			files = append(files, f)
		}
	}
	return files
}
