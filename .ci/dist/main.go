// Program dist makes the files of a release: for each binary a tar.gz, a deb, an rpm and an SBOM,
// Ansible's collection, and the SHA256SUMS of all. make dist runs it.
//
// The same commit gives the same bytes, on every machine and at any time: every time is
// SOURCE_DATE_EPOCH, modes and owners are set here, and the archives are written by Go, whose
// version go.mod names, and by the nfpm that the Makefile names.
//
// The packages contain what make install installs, at the places where each distribution wants it,
// and the collection, where Ansible finds it.
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// product is the name of the packages. The binary and the manual are named gpustack, which is also
// the name of another project's packages.
const product = "gpustack-nova"

func main() {
	var r release
	flag.StringVar(&r.source, "version", "", "what git describe --tags --always --dirty prints")
	flag.StringVar(&r.maintainer, "maintainer", "", "name and address of who releases: NAME <ADDRESS>")
	flag.StringVar(&r.installed, "installed", "", "folder into which make install PREFIX=/usr has installed")
	flag.StringVar(&r.nfpm, "nfpm", "", "the nfpm program")
	flag.StringVar(&r.config, "config", "", "nfpm.yaml: what is the same in every package")
	flag.StringVar(&r.ansible, "collection", "", "folder of Ansible's collection")
	flag.StringVar(&r.out, "out", "", "folder to write to")
	flag.Parse()
	if err := r.make(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "dist: error:", err)
		os.Exit(1)
	}
}

// A release is what all packages have in common.
type release struct {
	source, maintainer, installed, nfpm, config, ansible, out string

	version string    // of the packages
	time    time.Time // of every file: SOURCE_DATE_EPOCH
}

// make writes the files of a release for these binaries, each for an architecture of its own.
func (r *release) make(binaries []string) error {
	epoch, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH is not a number of seconds; git log -1 --format=%%ct prints that of a commit: %w", err)
	}
	r.time = time.Unix(epoch, 0).UTC()
	if r.version, err = packageVersion(r.source, r.time); err != nil {
		return err
	}
	if !strings.Contains(r.maintainer, "@") {
		return fmt.Errorf("maintainer %q has no address; give it as make dist MAINTAINER='NAME <ADDRESS>'", r.maintainer)
	}
	shared, err := r.shared()
	if err != nil {
		return err
	}
	semantic, err := semanticVersion(r.source)
	if err != nil {
		return err
	}
	c, err := newCollection(r.ansible, semantic)
	if err != nil {
		return err
	}
	if err := c.write(r); err != nil {
		return err
	}
	for _, binary := range binaries {
		if err := r.forBinary(binary, shared, c.unpacked()); err != nil {
			return fmt.Errorf("%s: %w", binary, err)
		}
	}
	return r.sums()
}

// forBinary writes the packages and the SBOM of one binary. The deb and the rpm have further files
// besides the shared ones.
func (r *release) forBinary(binary string, shared, further []file) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	settings := map[string]string{}
	for _, setting := range info.Settings {
		settings[setting.Key] = setting.Value
	}
	arch := settings["GOARCH"]
	if settings["GOOS"] != "linux" || settings["CGO_ENABLED"] != "0" {
		return fmt.Errorf("not a static binary for Linux: GOOS=%s CGO_ENABLED=%s", settings["GOOS"], settings["CGO_ENABLED"])
	}
	program, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	if info.Deps, err = withCarried(info.Deps, program, carried+arch); err != nil {
		return err
	}
	texts, ids, err := r.licenses(info)
	if err != nil {
		return err
	}
	all := append(slices.Clone(shared),
		file{path: "sbin/gpustack", mode: 0o755, data: program},
		file{path: docs + licenses, mode: 0o644, data: texts})

	name := filepath.Join(r.out, fmt.Sprintf("%s-%s-linux-%s", product, r.version, arch))
	sbom, err := r.sbom(info, program, ids)
	if err != nil {
		return err
	}
	deb, err := forDebian(slices.Concat(all, further))
	if err != nil {
		return err
	}
	rpm, err := forRPM(slices.Concat(all, further))
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(name+".cdx.json", sbom, 0o644),
		r.tarball(name+".tar.gz", all),
		r.pack("deb", arch, deb),
		r.pack("rpm", arch, rpm))
}

// pack runs nfpm, which makes a deb or an rpm.
func (r *release) pack(format, arch string, files []file) (err error) {
	dir, err := os.MkdirTemp("", "dist-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	text, err := os.ReadFile(r.config)
	if err != nil {
		return err
	}
	var config map[string]any
	if err := yaml.Unmarshal(text, &config); err != nil {
		return fmt.Errorf("%s: %w", r.config, err)
	}
	config["arch"], config["version"], config["maintainer"] = arch, r.version, r.maintainer
	config["changelog"] = filepath.Join(dir, "changelog.yaml")
	if format == "deb" {
		delete(config, "license") // a deb has it in its copyright file
	}
	if text, ok := config[format+"_description"]; ok {
		config["description"] = text
	}
	delete(config, "rpm_description")
	var contents []any
	for i, f := range files {
		if f.link != "" {
			contents = append(contents, map[string]any{"src": f.link, "dst": "/usr/" + f.path, "type": "symlink", "file_info": map[string]any{"mtime": r.time}})
			continue
		}
		source := filepath.Join(dir, strconv.Itoa(i))
		if err := os.WriteFile(source, f.data, 0o600); err != nil {
			return err
		}
		content := map[string]any{"src": source, "dst": "/usr/" + f.path,
			"file_info": map[string]any{"mode": int64(f.mode), "mtime": r.time, "owner": "root", "group": "root"}}
		switch {
		case format != "rpm":
		case strings.HasPrefix(f.path, rpmLicenses):
			content["type"] = "license"
		case strings.HasPrefix(f.path, docs) || strings.HasPrefix(f.path, "share/man/"):
			content["type"] = "doc"
		}
		contents = append(contents, content)
	}
	// Folders that the package does not share with others.
	for _, dir := range folders(files) {
		contents = append(contents, map[string]any{"dst": "/usr/" + dir, "type": "dir", "file_info": map[string]any{"mode": 0o755, "mtime": r.time}})
	}
	config["contents"] = contents
	for name, value := range map[string]any{"nfpm.yaml": config, "changelog.yaml": r.changelog()} {
		text, err := yaml.Marshal(value)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return err
		}
	}
	// The target is a folder: nfpm knows how each format names its files.
	said, err := exec.Command(r.nfpm, "package", "--config", filepath.Join(dir, "nfpm.yaml"), "--packager", format, "--target", r.out).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", r.nfpm, err, said)
	}
	return nil
}

// changelog returns the packages' own changelog, in the form of nfpm. What a release does is in
// CHANGELOG.md, which is in the packages too.
func (r *release) changelog() any {
	return []any{map[string]any{
		"semver":   r.version + "-1",
		"date":     r.time,
		"packager": r.maintainer,
		"deb":      map[string]any{"urgency": "medium", "distributions": []string{"unstable"}},
		"changes":  []any{map[string]any{"note": "Release. CHANGELOG.md lists what it does."}},
	}}
}

// sums writes SHA256SUMS, as sha256sum --check reads it.
func (r *release) sums() error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, entry := range entries {
		data, err := os.ReadFile(filepath.Join(r.out, entry.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(data), entry.Name())
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(sums.String()), 0o644)
}

// shared returns the files of all architectures, in the order of their names: what make install
// has installed, apart from the binary.
func (r *release) shared() (files []file, err error) {
	prefix := filepath.Join(r.installed, "usr")
	err = filepath.WalkDir(prefix, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(prefix, path)
		if err != nil || name == "sbin/gpustack" {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644) // whatever the umask was
		if info.Mode()&0o100 != 0 {
			mode = 0o755
		}
		files = append(files, file{path: name, mode: mode, data: data})
		return nil
	})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s has no files", prefix)
	}
	return files, err
}
