package check_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host"
	"gpustack/host/hosttest"
	"gpustack/host/memlock"
	"gpustack/host/rdma/check"
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
  driver   /opt/lib/libfoo
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
	want := check.Verbs{
		Drivers: []check.DriverLine{{Name: "/opt/lib/libfoo", File: "/etc/libibverbs.d/any", Line: 1}, {Name: "mlx5", File: "/etc/libibverbs.d/mlx5.driver", Line: 2},
			{Name: "mthca", File: "/etc/libibverbs.d/mthca.driver", Line: 1}},
		Folders: []check.VerbsFolder{
			{Dir: "/usr/lib64", Library: "/usr/lib64/libibverbs.so.1", Private: 65, Providers: []check.Provider{
				{File: "/usr/lib64/libmthca-rdmav2.so", Name: "mthca", Private: 2}, {File: "/usr/lib64/libibverbs/librxe-rdmav65.so", Name: "rxe", Private: 65},
			}},
			// The library of mlx4 is a link to a missing file.
			{Dir: debian, Library: debian + "/libibverbs.so.1", Private: 34, Providers: []check.Provider{
				{File: debian + "/libibverbs/libmlx5-rdmav34.so", Name: "mlx5", Private: 34},
			}},
			{Dir: "/usr/local/lib", Library: "/usr/local/lib/libibverbs.so.1"},
		},
	}
	got := check.Observe(root, nil)
	if got.Verbs.Err != nil {
		t.Error(got.Verbs.Err)
	}
	if diff := cmp.Diff(want, got.Verbs); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestLimits: which setting of the limit of locked memory counts.
func TestLimits(t *testing.T) {
	t.Parallel()
	const service = "[Unit]\nLimitMEMLOCK=1\n[Service]\n"
	const docker = "usr/lib/systemd/system/docker.service"
	file := func(name, text string) string { return "-- " + name + " --\n" + strings.TrimSuffix(text, "\n") + "\n" }
	at := func(file string, line int, bytes uint64) *memlock.Setting {
		return &memlock.Setting{Bytes: bytes, File: file, Line: line}
	}
	for name, test := range map[string]struct {
		tree  string
		units []memlock.UnitLimit
		users []memlock.UserLimit
		errs  []string
	}{
		"nothing is installed": {"-- etc/os-release --\n", nil, nil, nil},
		"none is set":          {file(docker, service), []memlock.UnitLimit{dockerUnit("/"+docker, nil)}, nil, nil},
		"in the unit":          {file(docker, service+"LimitMEMLOCK=64M\n"), []memlock.UnitLimit{dockerUnit("/"+docker, at("/"+docker, 4, 64<<20))}, nil, nil},
		"the operator's unit hides the package's": {
			file(docker, service+"LimitMEMLOCK=64M\n") + file("etc/systemd/system/docker.service", service+"LimitMEMLOCK=infinity:infinity\n"),
			[]memlock.UnitLimit{dockerUnit("/etc/systemd/system/docker.service", at("/etc/systemd/system/docker.service", 4, memlock.Unlimited))}, nil, nil,
		},
		"a drop-in, the last name counts": {
			file(docker, service+"LimitMEMLOCK=64M\n") + file("etc/systemd/system/docker.service.d/20.conf", "[Service]\nLimitMEMLOCK=1G\n") +
				file("usr/lib/systemd/system/docker.service.d/30.conf", "[Service]\nLimitMEMLOCK=4096\n") +
				file("run/systemd/system/docker.service.d/30.conf", "[Service]\nLimitMEMLOCK=8K\n"),
			[]memlock.UnitLimit{dockerUnit("/"+docker, at("/run/systemd/system/docker.service.d/30.conf", 2, 8192))}, nil, nil,
		},
		"drop-ins of all services": {
			file(docker, service) + file("etc/systemd/system/service.d/10.conf", "[Service]\nLimitMEMLOCK=2G\n"),
			[]memlock.UnitLimit{dockerUnit("/"+docker, at("/etc/systemd/system/service.d/10.conf", 2, 2<<30))}, nil, nil,
		},
		"a masked drop-in": {
			"symlink etc/systemd/system/docker.service.d/10.conf -> /dev/null\n" + file(docker, service+"LimitMEMLOCK=64M\n") +
				file("usr/lib/systemd/system/docker.service.d/10.conf", "[Service]\nLimitMEMLOCK=1\n"),
			[]memlock.UnitLimit{dockerUnit("/"+docker, at("/"+docker, 4, 64<<20))}, nil, nil,
		},
		"a masked unit": {"symlink etc/systemd/system/docker.service -> /dev/null\n" + file(docker, service), nil, nil, nil},
		"the manager's default, and an empty value that returns to it": {
			file(docker, service+"LimitMEMLOCK=1\nLimitMEMLOCK=\n") + file("etc/systemd/system.conf", "[Manager]\nDefaultLimitMEMLOCK=1T\n"),
			[]memlock.UnitLimit{dockerUnit("/"+docker, at("/etc/systemd/system.conf", 2, 1<<40))}, nil, nil,
		},
		"docker's default": {
			file(docker, service+"LimitMEMLOCK=64K\n") + file("etc/docker/daemon.json", `{"default-ulimits": {"memlock": {"Name": "memlock", "Hard": -1, "Soft": -1}}}`),
			[]memlock.UnitLimit{dockerUnit("/"+docker, at("/etc/docker/daemon.json", 0, memlock.Unlimited))}, nil, nil,
		},
		"docker's default of others": {
			file(docker, service+"LimitMEMLOCK=64K\n") + file("etc/docker/daemon.json", `{"default-ulimits": {"nofile": {"Name": "nofile", "Hard": 1, "Soft": 1}}}`),
			[]memlock.UnitLimit{dockerUnit("/"+docker, at("/"+docker, 4, 64<<10))}, nil, nil,
		},
		"no size": {
			file(docker, service+"LimitMEMLOCK=much\n"), []memlock.UnitLimit{dockerUnit("/"+docker, nil)}, nil,
			[]string{`/usr/lib/systemd/system/docker.service:4: not a size: "much"`},
		},
		"users": {
			file("etc/security/limits.conf", "* soft memlock 64 # KiB\n* hard memlock unlimited\n@hpc - memlock unlimited\n* soft nofile 1\n") +
				file("etc/security/limits.d/95-rdma.conf", "* soft memlock -1\nslurm soft memlock x\n"),
			nil, []memlock.UserLimit{user("*", *at("/etc/security/limits.d/95-rdma.conf", 1, memlock.Unlimited)), user("@hpc", *at("/etc/security/limits.conf", 3, memlock.Unlimited))},
			[]string{`/etc/security/limits.d/95-rdma.conf:2: neither a number of KiB nor unlimited: "x"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := check.Observe(hosttest.Lay(t, test.tree), nil).Limits
			if diff := cmp.Diff(test.units, l.Units) + cmp.Diff(test.users, l.Domains); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			var errs []string
			for _, err := range l.Errs {
				errs = append(errs, err.Error())
			}
			if diff := cmp.Diff(test.errs, errs); diff != "" {
				t.Errorf("errors (-want +got)\n%s", diff)
			}
		})
	}
}

// TestRxe checks the tree of a real software adapter.
func TestRxe(t *testing.T) {
	t.Parallel()
	root := hosttest.RDMA(t, "../../../integration/testdata/rdma/debian12-rxe.txtar")
	m := check.Observe(root, nil)
	findings, verdict, err := check.Verify(m)
	if err != nil || verdict != check.Ready {
		t.Errorf("%s, %v", verdict, err)
	}
	var got []string
	for _, f := range findings {
		if f.Status != host.NA {
			got = append(got, string(f.Status)+" "+f.Check+" "+f.Seen)
		}
	}
	if diff := cmp.Diff([]string{
		"pass adapters 1 RDMA device",
		"pass modules ib_uverbs, rdma_ucm and ib_umad are loaded",
		"pass abi the kernel has version 6",
		"pass nodes 4 device nodes as the kernel makes them",
		"pass ports 1 port ACTIVE",
		"pass gids 1 port with a RoCE v2 GID",
		"pass netns network namespaces are shared",
		"warn memlock users have no memlock limit of their own: the kernel's default is 8 MiB, before 5.16 64 KiB",
		"pass storage no module of storage over RDMA is loaded",
		"pass smc SMC-R is not loaded (module smc)",
	}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func dockerUnit(file string, limit *memlock.Setting) memlock.UnitLimit {
	return memlock.UnitLimit{Unit: "docker.service", File: file, Limit: limit}
}

func user(domain string, limit memlock.Setting) memlock.UserLimit {
	return memlock.UserLimit{Domain: domain, Setting: limit}
}
