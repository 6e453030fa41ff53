package rdma_test

import (
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/rdma"
)

// TestVerbs: which libraries are found where distributions and vendors install them.
func TestVerbs(t *testing.T) {
	t.Parallel()
	root := hosttest.Lay(t, `symlink lib -> usr/lib
symlink usr/lib/x86_64-linux-gnu/libibverbs.so.1 -> libibverbs.so.1.14.44.0
symlink usr/lib/x86_64-linux-gnu/libibverbs/libmlx5-rdmav34.so -> ../libmlx5.so.1.24.44.0
symlink usr/lib/x86_64-linux-gnu/libibverbs/libmlx4-rdmav34.so -> ../libmlx4.so.1.0.44.0
-- etc/libibverbs.d/mlx5.driver --
# comment
driver mlx5
-- etc/libibverbs.d/mthca.driver --
driver mthca
-- etc/libibverbs.d/any --
drivers foo
-- usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0 --
ELF IBVERBS_1.1 IBVERBS_PRIVATE_34 -rdmav34.so
-- usr/lib/x86_64-linux-gnu/libmlx5.so.1.24.44.0 --
-- usr/lib/x86_64-linux-gnu/libibverbs/README-rdmav --
-- usr/lib64/ld-linux-x86-64.so.2 --
-- usr/lib64/libibverbs.so.1 --
ELF IBVERBS_PRIVATE_65
-- usr/lib64/libibverbs/librxe-rdmav65.so --
-- usr/lib64/libmthca-rdmav2.so --
-- usr/local/lib/libibverbs.so.1 --
of 2014
`)
	const debian = "/usr/lib/x86_64-linux-gnu"
	want := rdma.Verbs{
		Drivers: []string{"mlx5", "mthca"},
		Folders: []rdma.VerbsFolder{
			{Dir: "/usr/lib64", Library: "/usr/lib64/libibverbs.so.1", Private: 65, Providers: []rdma.Provider{ // and one from before 2017
				{File: "/usr/lib64/libibverbs/librxe-rdmav65.so", Name: "rxe", Private: 65},
			}},
			// The library of mlx4 is a link to a missing file.
			{Dir: debian, Library: debian + "/libibverbs.so.1", Private: 34, Providers: []rdma.Provider{
				{File: debian + "/libibverbs/libmlx5-rdmav34.so", Name: "mlx5", Private: 34},
			}},
			{Dir: "/usr/local/lib", Library: "/usr/local/lib/libibverbs.so.1"},
		},
	}
	got := rdma.ReadVerbs(root)
	if got.Err != nil {
		t.Error(got.Err)
	}
	hosttest.Equal(t, want, got)
}
