package cudaparts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"gpustack/integration/vm"
)

// Release is a release of Debian, each of which has another branch of NVIDIA's driver.
type Release string

// The releases whose driver and CUDA runtime tests use.
const (
	Bullseye Release = "bullseye" // driver 470, CUDA 11.2
	Bookworm Release = "bookworm" // driver 535, CUDA 11.8
	Trixie   Release = "trixie"   // driver 550, CUDA 12.4
)

// Releases returns the releases, the oldest driver first.
func Releases() []Release { return []Release{Bullseye, Bookworm, Trixie} }

// Folder is the folder below Part.Dir, and on a node, in which Debian has the driver's libraries.
const Folder = "usr/lib/x86_64-linux-gnu/nvidia/current"

// Part is the unpacked content of a package.
type Part struct {
	Dir     string // in which the package's files are, such as usr/lib
	Version string // of the package: 535.261.03-1
}

// Upstream returns NVIDIA's version, such as 535.261.03.
func (p Part) Upstream() string {
	upstream, _, _ := strings.Cut(p.Version, "-")
	upstream, _, _ = strings.Cut(upstream, "~")
	return upstream
}

// Fetch returns the newest version that a release has of a package, such as libcuda1. It is fetched
// once. The error of a package that cannot be fetched names the package and the release.
func Fetch(ctx context.Context, release Release, name string) (Part, error) {
	part, err := fetch(ctx, release, name)
	if err != nil {
		err = fmt.Errorf("package %s of %s non-free: %w", name, release, err)
	}
	return part, err
}

// Cudart returns the CUDA runtime of a release.
func Cudart(ctx context.Context, release Release) (Part, error) {
	if release == Trixie {
		return Fetch(ctx, release, "libcudart12")
	}
	return Fetch(ctx, release, "libcudart11.0") // the name of 11.8, too
}

var packageVersion = regexp.MustCompile(`(?m)^Version: (\S+)$`)

func fetch(ctx context.Context, release Release, name string) (Part, error) {
	state, err := lists()
	if err != nil {
		return Part{}, err
	}
	out, err := apt(ctx, state, "", "apt-cache", "show", "--no-all-versions", name+"/"+string(release))
	if err != nil {
		return Part{}, err
	}
	found := packageVersion.FindSubmatch(out)
	if found == nil {
		return Part{}, errors.New("apt does not know it")
	}
	version := string(found[1])
	dir, err := vm.Cached(ctx, "cuda", []string{name, version}, func(ctx context.Context, dir string) error {
		if _, err := apt(ctx, state, dir, "apt-get", "--quiet=2", "download", name+"="+version); err != nil {
			return err
		}
		files, err := filepath.Glob(filepath.Join(dir, "*.deb"))
		if err == nil && len(files) != 1 {
			err = fmt.Errorf("%d files were fetched", len(files))
		}
		if err != nil {
			return err
		}
		if out, err := exec.CommandContext(ctx, "dpkg-deb", "--extract", files[0], dir).CombinedOutput(); err != nil {
			return fmt.Errorf("dpkg-deb --extract: %w: %s", err, bytes.TrimSpace(out))
		}
		return os.Remove(files[0])
	})
	return Part{dir, version}, err
}

// keyring has the keys that sign Debian's archive.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// lists returns a folder with a state of apt that knows the packages of all releases. It is made
// once a day: a point release removes the packages that it replaces.
var lists = sync.OnceValues(func() (string, error) {
	ctx := context.Background() // of all tests
	uri, err := archive(ctx)
	if err != nil {
		return "", err
	}
	var sources strings.Builder
	for _, release := range Releases() {
		fmt.Fprintf(&sources, "deb [signed-by=%s] %s %s non-free\n", keyring, uri, release)
	}
	key := []string{sources.String(), time.Now().UTC().Format(time.DateOnly)}
	return vm.Cached(ctx, "cuda-lists", key, func(ctx context.Context, dir string) error {
		for name, text := range map[string]string{"sources.list": sources.String(), "status": ""} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				return err
			}
		}
		for _, name := range []string{"lists/partial", "cache/archives/partial"} {
			if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
				return err
			}
		}
		_, err := apt(ctx, dir, "", "apt-get", "--quiet=2", "--error-on=any", "update")
		return err
	})
})

// inRelease is what apt would fetch first of a release of Debian's archive. Updates and security
// fixes are releases of other names.
var inRelease = regexp.MustCompile(`(?m)^'(\S+)/dists/[a-z]+/InRelease'`)

// archive returns the address of Debian's archive that apt is configured to use. apt may have no
// lists yet, and does not know then which archive is Debian's: the signature tells.
func archive(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "apt-get", "--print-uris", "update").Output()
	if err != nil {
		return "", fmt.Errorf("apt-get --print-uris update: %w", err)
	}
	found := inRelease.FindSubmatch(out)
	if found == nil {
		return "", errors.New("apt is not configured to use Debian's archive")
	}
	return string(found[1]), nil
}

// apt runs a program of apt with the state in a folder.
func apt(ctx context.Context, state, dir, program string, args ...string) ([]byte, error) {
	var options []string
	for _, option := range []string{
		"Dir::State::Lists=" + filepath.Join(state, "lists"), "Dir::State::status=" + filepath.Join(state, "status"),
		"Dir::Cache=" + filepath.Join(state, "cache"), "Dir::Etc::sourcelist=" + filepath.Join(state, "sources.list"),
		"Dir::Etc::sourceparts=/dev/null", "Debug::NoLocking=1", "APT::Sandbox::User=root", "APT::Architecture=amd64",
	} {
		options = append(options, "-o", option)
	}
	cmd := exec.CommandContext(ctx, program, append(options, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.Bytes(), nil
}
