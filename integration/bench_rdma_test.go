package integration

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/integration/race"
)

// gidReader is a C program that opens what rdma scan opens of GID tables: each entry, and type and
// interface of entries in use.
const gidReader = `
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static int attribute(int dir, const char *name, char *buf) {
	int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0) return -1;
	int n = read(fd, buf, 4096);
	close(fd);
	if (n >= 0) buf[n] = 0;
	return n;
}
int main(int argc, char **argv) {
	char buf[4097], path[4096];
	for (int i = 1; i < argc; i++) {
		snprintf(path, sizeof path, "%s/gids", argv[i]);
		DIR *d = opendir(path);
		snprintf(path, sizeof path, "%s/gid_attrs/types", argv[i]);
		int types = open(path, O_RDONLY | O_DIRECTORY);
		snprintf(path, sizeof path, "%s/gid_attrs/ndevs", argv[i]);
		int ndevs = open(path, O_RDONLY | O_DIRECTORY);
		if (!d || types < 0 || ndevs < 0) return 1;
		for (struct dirent *e; (e = readdir(d));) {
			if (e->d_name[0] == '.') continue;
			if (attribute(dirfd(d), e->d_name, buf) < 0) return 1;
			if (!strncmp(buf, "0000:0000:0000:0000:0000:0000:0000:0000", 39)) continue;
			printf("%s %s", e->d_name, buf);
			if (attribute(types, e->d_name, buf) < 0) return 1;
			printf("%s", buf);
			if (attribute(ndevs, e->d_name, buf) < 0) return 1;
			printf("%s", buf);
		}
		closedir(d);
		close(types);
		close(ndevs);
	}
}
`

// BenchmarkRDMAScan times rdma scan of a server with eight adapters: without GIDs, which should
// take 20 ms at most, and with tables of 1,024 entries beside a C program that opens the same files
// of them and nothing else: to compare at 1.3 times, subtract what the scan takes without GIDs. Of
// each table, few or almost all entries are in use.
func BenchmarkRDMAScan(b *testing.B) {
	program := filepath.Join(b.TempDir(), "gids")
	compile := exec.Command("gcc", "-O2", "-x", "c", "-o", program, "-")
	compile.Stdin = strings.NewReader(gidReader)
	if out, err := compile.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	for _, used := range []int{4, 1024} {
		root, ports := layAdapters(b, used)
		own := func(more ...string) race.Peer {
			return race.Peer{Name: "gpustack", Argv: append([]string{gpustack, "rdma", "scan", "--root", root}, more...)}
		}
		c := race.Peer{Name: "c", Argv: append([]string{program}, ports...)}
		b.Run(fmt.Sprintf("used=%d/gids", used), func(b *testing.B) { race.Run(b, c, own("-o", "json")) })
		b.Run(fmt.Sprintf("used=%d/table", used), func(b *testing.B) { race.Run(b, c, own()) })
	}
}

// layAdapters lays a server with eight adapters and 1,024 GIDs each, and returns the folders of
// their ports.
func layAdapters(b *testing.B, used int) (dir string, ports []string) {
	var adapters []hosttest.HCA
	for i := range 8 {
		h := hosttest.HCA{Address: fmt.Sprintf("0000:%02x:00.0", 0x10*(i+1)), Device: fmt.Sprintf("mlx5_%d", i), Index: i, NUMA: i / 4}
		for n := range 1023 {
			gid := "0000:0000:0000:0000:0000:0000:0000:0000"
			if n < used {
				gid = fmt.Sprintf("0000:0000:0000:0000:0000:ffff:0a%02x:%04x", i, n)
			}
			h.GIDs = append(h.GIDs, gid+" RoCE v2 eth0")
		}
		adapters = append(adapters, h)
		ports = append(ports, fmt.Sprintf("sys/class/infiniband/mlx5_%d/ports/1", i))
	}
	root := hosttest.Lay(b, hosttest.Fabric(adapters, "-- sys/devices/pci0000:a0/0000:a0:00.0/class --\n0x030200\n"))
	for i, port := range ports {
		ports[i] = root.Path(port)
	}
	return root.Path("/"), ports
}
