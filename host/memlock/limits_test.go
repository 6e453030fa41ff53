package memlock_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host"
	"gpustack/host/hosttest"
	"gpustack/host/memlock"
	"gpustack/host/snapshot"
)

// TestRead: which setting of the limit of locked memory counts.
func TestRead(t *testing.T) {
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
		"an empty value, which returns to the default": {
			file(docker, service+"LimitMEMLOCK=1\nLimitMEMLOCK=\n"), []memlock.UnitLimit{dockerUnit("/"+docker, nil)}, nil, nil,
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
		"no section, and another key": {
			file(docker, "LimitMEMLOCK=1M\n[Service]\nLimitMEMLOCKS=1M\n#LimitMEMLOCK=1M\nLimitMEMLOCK\n"), []memlock.UnitLimit{dockerUnit("/"+docker, nil)}, nil, nil,
		},
		"spaces": {file(docker, "[Service]\n LimitMEMLOCK = 64 K:1 G \n"), []memlock.UnitLimit{dockerUnit("/"+docker, at("/"+docker, 2, 64<<10))}, nil, nil},
		"the largest size": {
			file(docker, "[Service]\nLimitMEMLOCK=15E\nLimitMEMLOCK=16E\n"), []memlock.UnitLimit{dockerUnit("/"+docker, at("/"+docker, 2, 15<<60))}, nil,
			[]string{`/usr/lib/systemd/system/docker.service:3: not a size: "16E"`},
		},
		"an empty unit is masked": {"-- " + docker + " --\n", nil, nil, nil},
		"a file that is left out": {
			file(docker, service+"LimitMEMLOCK=64M\n") + file("etc/systemd/system/docker.service.d/except.conf", "[Service]\nLimitMEMLOCK=1\n"),
			[]memlock.UnitLimit{dockerUnit("/"+docker, at("/"+docker, 4, 64<<20))}, nil, nil,
		},
		"a folder in place of a drop-in, and a link to itself": {
			"mkdir etc/systemd/system/docker.service.d/10.conf\nsymlink etc/security/limits.conf -> limits.conf\n" + file(docker, service+"LimitMEMLOCK=64M\n"),
			[]memlock.UnitLimit{dockerUnit("/"+docker, at("/"+docker, 4, 64<<20))}, nil,
			[]string{"/etc/systemd/system/docker.service.d/10.conf: not a regular file", "/etc/security/limits.conf: too many levels of symbolic links"},
		},
		"a malformed daemon.json": {
			file(docker, service+"LimitMEMLOCK=64M\n") + file("etc/docker/daemon.json", "{"),
			[]memlock.UnitLimit{dockerUnit("/"+docker, at("/"+docker, 4, 64<<20))}, nil,
			[]string{"/etc/docker/daemon.json: malformed JSON: unexpected end of JSON input"},
		},
		"users, in any case, with words that pam_limits ignores": {
			file("etc/security/limits.conf", "root SOFT MemLock Unlimited and more\n* soft memlock\n* sofft memlock 1\n* soft memlock MUCH\n"), nil,
			[]memlock.UserLimit{user("root", *at("/etc/security/limits.conf", 1, memlock.Unlimited))},
			[]string{`/etc/security/limits.conf:4: neither a number of KiB nor unlimited: "MUCH"`},
		},
		"users, the largest number": {
			file("etc/security/limits.conf", "a soft memlock 18014398509481983\nb soft memlock 18014398509481984\n"), nil,
			[]memlock.UserLimit{user("a", *at("/etc/security/limits.conf", 1, 18014398509481983<<10))},
			[]string{`/etc/security/limits.conf:2: neither a number of KiB nor unlimited: "18014398509481984"`},
		},
		"users": {
			file("etc/security/limits.conf", "* soft memlock 64 # KiB\n* hard memlock unlimited\n@hpc - memlock unlimited\n* soft nofile 1\n") +
				file("etc/security/limits.d/95-rdma.conf", "* soft memlock -1\nslurm soft memlock x\n"),
			nil, []memlock.UserLimit{user("*", *at("/etc/security/limits.d/95-rdma.conf", 1, memlock.Unlimited)),
				user("@hpc", *at("/etc/security/limits.conf", 3, memlock.Unlimited))},
			[]string{`/etc/security/limits.d/95-rdma.conf:2: neither a number of KiB nor unlimited: "x"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := memlock.Read(hosttest.Lay(t, test.tree), "/etc/systemd/system/docker.service.d/except.conf")
			if diff := cmp.Diff(test.units, l.Units) + cmp.Diff(test.users, l.Domains); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			var errs []string
			for _, err := range l.Errs {
				errs = append(errs, err.Error())
			}
			hosttest.EqualIn(t, "errors", test.errs, errs)
		})
	}
}

func dockerUnit(file string, limit *memlock.Setting) memlock.UnitLimit {
	return memlock.UnitLimit{Unit: "docker.service", File: file, Limit: limit}
}

func user(domain string, limit memlock.Setting) memlock.UserLimit {
	return memlock.UserLimit{Domain: domain, Setting: limit}
}

// FuzzUnit: of any text of a unit, the limit stands in a line that names it, and a snapshot of the
// unit, which has only such lines, gives the same limit.
func FuzzUnit(f *testing.F) {
	for _, seed := range []string{"[Service]\nLimitMEMLOCK=64M:infinity\n", "[Service]\n LimitMEMLOCK = 1 G\nLimitMEMLOCK=\n",
		"[Unit]\nLimitMEMLOCK=1\n[Service]\nLimitMEMLOCK=x",
		"", "[Service]\r\nLimitMEMLOCK=K\r\n", "[[Service]]\nLimitMEMLOCK=:1\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		read(t, "usr/lib/systemd/system/docker.service", text, "LimitMEMLOCK")
	})
}

// FuzzUsers: as FuzzUnit, of any text of limits.conf.
func FuzzUsers(f *testing.F) {
	for _, seed := range []string{"* soft memlock 64 # KiB\n@hpc - memlock unlimited\n", "a hard memlock 1\na SOFT memlock -1\n", "* soft memlock x",
		"\x00 - memlock 1\n", "# memlock\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		read(t, "etc/security/limits.conf", text, "memlock")
	})
}

// read reads a file with a text on a machine, and on one that a snapshot was unpacked to.
func read(t *testing.T, name, text, key string) {
	t.Helper()
	root, tree := folder(t), snapshot.Tree{}
	place := root.Path("/" + name)
	hosttest.NoError(t, os.MkdirAll(filepath.Dir(place), 0o755))
	hosttest.NoError(t, os.WriteFile(place, []byte(text), 0o644))
	limits := memlock.Read(root.Recorded(&tree))
	lines := strings.Split(text, "\n")
	var settings []memlock.Setting
	for _, u := range limits.Units {
		if u.Limit != nil {
			settings = append(settings, *u.Limit)
		}
	}
	for _, d := range limits.Domains {
		settings = append(settings, d.Setting)
	}
	for _, s := range settings {
		if s.File != "/"+name || s.Line < 1 || s.Line > len(lines) || !strings.Contains(strings.ToLower(lines[s.Line-1]), strings.ToLower(key)) {
			t.Errorf("%q: %+v", text, s)
		}
	}
	replay := folder(t)
	hosttest.NoError(t, tree.Unpack(replay.Path("/")))
	if diff := cmp.Diff(limits, memlock.Read(replay), cmp.Transformer("text", func(err error) string { return err.Error() })); diff != "" {
		t.Errorf("%q: (-machine +snapshot)\n%s", text, diff)
	}
}

func folder(t *testing.T) host.Root {
	t.Helper()
	return hosttest.Root(t, t.TempDir())
}
