package vm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
)

var packageVersion = regexp.MustCompile(`(?m)^Version: (\S+)$`)

// Package returns a folder with the files of one of Debian's packages, of the newest version that
// apt knows, installed nowhere. For a package that only depends on a kernel's, these are the files
// of that kernel.
func Package(ctx context.Context, name string) (dir string, err error) {
	name, version, err := newestPackage(ctx, name)
	if err != nil {
		return "", err
	}
	return Cached(ctx, "package", []string{name, version}, func(ctx context.Context, dir string) error {
		if err := command(ctx, dir, "apt-get", "--quiet=2", "download", name+"="+version); err != nil {
			return err
		}
		packages, err := filepath.Glob(filepath.Join(dir, "*.deb"))
		if err == nil && len(packages) != 1 {
			err = fmt.Errorf("%d packages were fetched", len(packages))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := command(ctx, dir, "dpkg-deb", "--extract", packages[0], dir); err != nil {
			return err
		}
		// Since Debian 13 modules are in /usr/lib, which /lib leads to.
		if err := os.Symlink("usr/lib", filepath.Join(dir, "lib")); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return os.Remove(packages[0])
	})
}

// newestPackage asks apt which version of a package is the newest. A machine made from a
// container's image may have no lists yet.
func newestPackage(ctx context.Context, name string) (real, version string, err error) {
	for _, update := range []bool{false, true} {
		if update {
			if err := command(ctx, "", "apt-get", "--quiet=2", "update"); err != nil {
				return "", "", err
			}
		}
		out, err := exec.CommandContext(ctx, "apt-cache", "show", "--no-all-versions", name).Output()
		if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
			return "", "", err
		}
		if m := dependency.FindSubmatch(out); m != nil {
			return string(m[1]), string(m[2]), nil
		}
		if m := packageVersion.FindSubmatch(out); m != nil {
			return name, string(m[1]), nil
		}
	}
	return "", "", fmt.Errorf("package %s: apt does not know it", name)
}
