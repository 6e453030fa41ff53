package vm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
)

// What a small machine has beside its own so that it has an RDMA adapter: rdma_rxe makes one of a
// network interface.
var (
	rdmaModules  = []string{"rdma_rxe", "ib_uverbs", "rdma_ucm", "ib_umad", "crc32_generic"}
	rdmaPrograms = []string{"ip", "rdma", "rping", "ibv_devinfo", "ibv_devices", "ibv_rc_pingpong", "ibstat", "ibhosts", "runc",
		"ib_write_bw", "ib_read_bw", "ib_write_lat", "ib_read_lat"}
	// libgcc is loaded by glibc when a thread ends.
	rdmaFiles = []string{"/etc/libibverbs.d/rxe.driver", libraries + "/libgcc_s.so.1"}
)

const (
	libraries    = "/usr/lib/x86_64-linux-gnu"
	rdmaProvider = libraries + "/libibverbs/librxe-rdmav34.so"
)

// writeRDMAInitramfs writes an initramfs with all that another has, and what a machine with an RDMA
// adapter needs: modules of the kernel, and programs of this machine with their libraries. Linux
// unpacks one archive after the other, and the last of equal names counts.
func writeRDMAInitramfs(ctx context.Context, name, small string, k kernel) (err error) {
	out, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	in, err := os.Open(small)
	if err != nil {
		return err
	}
	defer in.Close()
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	tree, err := moduleTree(ctx, k, slices.Concat(smallModules, rdmaModules))
	if err != nil {
		return err
	}
	defer os.RemoveAll(tree)
	files, err := rdmaProgramFiles(ctx)
	if err != nil {
		return err
	}
	modules, err := list(tree)
	if err != nil {
		return err
	}
	for _, file := range modules {
		files["/"+file] = filepath.Join(tree, file)
	}
	a := &archive{to: out}
	folders := map[string]bool{}
	for to := range files {
		for dir := filepath.Dir(to); dir != "/"; dir = filepath.Dir(dir) {
			folders[dir] = true
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(folders)) {
		a.folder(dir[1:])
	}
	for _, to := range slices.Sorted(maps.Keys(files)) {
		a.file(to[1:], 0o755, files[to])
	}
	a.link("usr/bin/podman", "/bin/guest") // which plays it
	return a.close()
}

var libraryPath = regexp.MustCompile(`(/\S+) \(0x`)

// rdmaProgramFiles returns which files of this machine the programs are made of, by their paths
// there.
func rdmaProgramFiles(ctx context.Context) (map[string]string, error) {
	files := map[string]string{rdmaProvider: rdmaProvider}
	linked := []string{rdmaProvider}
	for _, program := range rdmaPrograms {
		path, err := exec.LookPath(program)
		if err != nil {
			return nil, err
		}
		// /bin has busybox's programs, which come later in PATH.
		files["/usr/bin/"+program] = path
		// ibhosts is a script.
		if program != "ibhosts" {
			linked = append(linked, path)
		}
	}
	for _, file := range rdmaFiles {
		files[file] = file
	}
	path, err := exec.LookPath("ibnetdiscover") // of ibhosts
	if err != nil {
		return nil, err
	}
	files["/usr/sbin/ibnetdiscover"] = path
	for _, file := range append(linked, path) {
		out, err := exec.CommandContext(ctx, "ldd", file).Output()
		if err != nil {
			return nil, fmt.Errorf("ldd %s: %w", file, err)
		}
		for _, found := range libraryPath.FindAllSubmatch(out, -1) {
			library := string(found[1])
			to := library
			if filepath.Dir(library) != "/lib64" { // where programs say their loader is
				to = filepath.Join(libraries, filepath.Base(library))
			}
			files[to] = library
		}
	}
	return files, nil
}
