package vm

import (
	"bytes"
	"context"
	_ "embed" // for the recipe, and the source
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// What the module is made of. What is kept was made as these say.
var (
	//go:embed nvidia.go
	nvidiaRecipe string
	//go:embed nvidia/nvidia.c
	nvidiaSource string
)

// nvidiaModule compiles the module that has the name of NVIDIA's for a kernel, in a tree of its
// own with a compiler and the kernel's headers, of which only the module is kept.
func nvidiaModule(ctx context.Context, k kernel) (file string, err error) {
	suite, err := release()
	if err != nil {
		return "", err
	}
	dir, err := cached(ctx, "nvidia", recipe(nvidiaRecipe, nvidiaSource, suite, k.Release), func(ctx context.Context, dir string) error {
		tree, headers := filepath.Join(dir, "root"), "linux-headers-"+k.Release
		debootstrap := exec.CommandContext(ctx, "mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", "--include=make,"+headers,
			"--aptopt=APT::Install-Recommends false", "--dpkgopt=force-unsafe-io",
			"--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/locale/*", "--dpkgopt=path-exclude=/usr/share/man/*", suite, tree)
		var out bytes.Buffer
		debootstrap.Stdout, debootstrap.Stderr = &out, &out
		if err := debootstrap.Run(); err != nil {
			return fmt.Errorf("mmdebstrap: %w\n%s", err, out.Bytes())
		}
		const source = "/usr/src/nvidia"
		if err := os.Mkdir(filepath.Join(tree, source), 0o755); err != nil {
			return err
		}
		for name, text := range map[string]string{"Kbuild": "obj-m := nvidia.o\n", "nvidia.c": nvidiaSource} {
			if err := os.WriteFile(filepath.Join(tree, source, name), []byte(text), 0o644); err != nil {
				return err
			}
		}
		err := command(ctx, "", "chroot", tree, "make", "-C", filepath.Join("/usr/src", headers), "M="+source, "KBUILD_MODPOST_WARN=", "modules")
		if err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(tree, source, "nvidia.ko"), filepath.Join(dir, "nvidia.ko")); err != nil {
			return err
		}
		return os.RemoveAll(tree)
	})
	return filepath.Join(dir, "nvidia.ko"), err
}
