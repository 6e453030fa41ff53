package vm

import (
	"bytes"
	"context"
	_ "embed" // for the recipe
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
)

const (
	qemuName    = "qemu-system-x86_64"
	qemuProgram = "/usr/bin/" + qemuName
	// playsSuite is the newest release of Debian whose QEMU plays functions without KVM.
	playsSuite = "bookworm"
)

// qemuRecipe is this file: what is kept was made as it says.
//
//go:embed qemu.go
var qemuRecipe string

// An emulator is a QEMU that can play functions.
type emulator struct {
	argv []string // the program and its first arguments
	env  []string
}

// CheckQEMU is an error where no QEMU can be had that plays functions.
func CheckQEMU(ctx context.Context) error {
	_, err := qemu(ctx)
	return err
}

// qemu returns the QEMU that machines run in: the one that is installed or, where that cannot play
// functions, the one of an earlier release of Debian. It is unpacked in the cache with the
// libraries that it needs, and started by its own loader (ld.so(8)).
func qemu(ctx context.Context) (emulator, error) {
	able, err := plays(ctx)
	if err != nil || able {
		return emulator{argv: []string{qemuProgram}}, err
	}
	dir, err := cached(ctx, "qemu", recipe(qemuRecipe), func(ctx context.Context, dir string) error {
		// Nothing is set up in the tree.
		unpack := exec.CommandContext(ctx, "mmdebstrap", "--quiet", "--mode=root", "--variant=extract", "--include=qemu-system-x86",
			"--aptopt=APT::Install-Recommends false", "--dpkgopt=path-exclude=/usr/share/doc/*", playsSuite, filepath.Join(dir, "root"))
		var out bytes.Buffer
		unpack.Stdout, unpack.Stderr = &out, &out
		if err := unpack.Run(); err != nil {
			return fmt.Errorf("mmdebstrap: %w\n%s", err, out.Bytes())
		}
		return nil
	})
	root := filepath.Join(dir, "root")
	libraries := filepath.Join(root, "lib/x86_64-linux-gnu")
	more := filepath.Join(root, "usr/lib/x86_64-linux-gnu")
	return emulator{
		argv: []string{
			filepath.Join(libraries, "ld-linux-x86-64.so.2"), "--library-path", libraries + ":" + more, filepath.Join(root, qemuProgram),
			"-L", filepath.Join(root, "usr/share/qemu"), "-L", filepath.Join(root, "usr/share/seabios"), "-L", filepath.Join(root, "usr/lib/ipxe/qemu"),
		},
		env: []string{"QEMU_MODULE_DIR=" + filepath.Join(more, "qemu")},
	}, err
}

var qemuVersion = regexp.MustCompile(`version (\d+)\.(\d+)`)

// plays tells whether a QEMU is installed that can play functions: since 8.2 it takes for granted
// that there is KVM as it connects their interrupts (hw/remote/proxy.c,
// proxy_intx_update; kvm_irqfds_enabled, which asked, has gone from
// accel/kvm/kvm-all.c), and ends by a segmentation fault where there is not.
func plays(ctx context.Context) (bool, error) {
	out, err := exec.CommandContext(ctx, qemuProgram, "--version").Output()
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%s --version: %w", qemuProgram, err)
	}
	words := qemuVersion.FindStringSubmatch(string(out))
	if words == nil {
		return false, fmt.Errorf("%s --version: %q", qemuProgram, out)
	}
	major, majorErr := strconv.Atoi(words[1])
	minor, minorErr := strconv.Atoi(words[2])
	late := major > 8 || major == 8 && minor >= 2
	return accelerator() != "tcg" || !late, errors.Join(majorErr, minorErr)
}

// accelerator is QEMU's: emulation, unless the environment says otherwise. A machine
// can offer /dev/kvm that answers, and yet run no guest, so that there is no asking.
func accelerator() string {
	if a := os.Getenv("GPUSTACK_VM_ACCEL"); a != "" {
		return a
	}
	return "tcg"
}
