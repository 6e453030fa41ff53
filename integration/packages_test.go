package integration

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpustack/host/hosttest"
)

// aptMachine is a folder that apt and dpkg install into, with a repository of its own. apart is
// what .ci/apart gave the tests: none or overlay.
type aptMachine struct {
	root, repository, config, cache, apart string
}

func newAptMachine(t *testing.T) aptMachine {
	t.Helper()
	dir := t.TempDir()
	m := aptMachine{filepath.Join(dir, "root"), filepath.Join(dir, "repository"), filepath.Join(dir, "apt.conf"), filepath.Join(dir, "test-cache"), "none"}
	for _, folder := range []string{
		m.repository, filepath.Join(m.root, "var/lib/dpkg/info"), filepath.Join(m.root, "var/lib/dpkg/updates"),
		filepath.Join(dir, "state/lists/partial"), filepath.Join(dir, "cache/archives/partial"), filepath.Join(dir, "log"), filepath.Join(dir, "etc/preferences.d"), filepath.Join(dir, "etc/apt.conf.d"),
	} {
		hosttest.NoError(t, os.MkdirAll(folder, 0o755))
	}
	for file, text := range map[string]string{
		filepath.Join(m.root, "var/lib/dpkg/status"): "",
		filepath.Join(dir, "etc/sources.list"):       "deb [trusted=yes] copy:" + m.repository + " ./\n",
		m.config: fmt.Sprintf("Dir::State \"%[1]s/state\";\nDir::State::status \"%[2]s/var/lib/dpkg/status\";\nDir::Cache \"%[1]s/cache\";\nDir::Log \"%[1]s/log\";\n"+
			"Dir::Etc \"%[1]s/etc\";\nAPT::Architecture \"amd64\";\nAPT::Sandbox::User \"root\";\n"+
			"DPkg::Options:: \"--root=%[2]s\";\nDPkg::Options:: \"--log=%[1]s/log/dpkg.log\";\n", dir, m.root),
	} {
		hosttest.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	return m
}

// offer puts a package into the repository: its fields beside those that all have, its files,
// those below DEBIAN among them.
func (m aptMachine) offer(t *testing.T, name, fields string, files map[string]string) {
	t.Helper()
	tree := t.TempDir()
	all := map[string]string{"DEBIAN/control": "Package: " + name + "\nVersion: 1\nArchitecture: all\nMaintainer: nobody <nobody@localhost>\nDescription: " + name + "\n" + fields}
	maps.Copy(all, files)
	for file, text := range all {
		path := filepath.Join(tree, file)
		hosttest.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		hosttest.NoError(t, os.WriteFile(path, []byte(text), 0o755))
	}
	deb := filepath.Join(m.repository, name+".deb")
	run(t, "dpkg-deb", "--build", "--root-owner-group", tree, deb)
	// What dpkg-scanpackages would write, which is in a package of its own.
	info, err := os.Stat(deb)
	hosttest.NoError(t, err)
	sum, _, _ := strings.Cut(run(t, "sha256sum", deb), " ")
	list, err := os.OpenFile(filepath.Join(m.repository, "Packages"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	hosttest.NoError(t, err)
	defer list.Close()
	if _, err := fmt.Fprintf(list, "%sFilename: ./%s.deb\nSize: %d\nSHA256: %s\n\n", all["DEBIAN/control"], name, info.Size(), sum); err != nil {
		t.Fatal(err)
	}
}

// install runs .ci/packages on that machine, and returns which packages are installed then.
func (m aptMachine) install(t *testing.T, names ...string) (installed []string, talk string, status int) {
	t.Helper()
	cmd := exec.Command("../.ci/packages", names...)
	admin := filepath.Join(m.root, "var/lib/dpkg")
	cmd.Env = append(os.Environ(), "APT_CONFIG="+m.config, "DPKG_ADMINDIR="+admin, "GPUSTACK_TEST_CACHE="+m.cache, "GPUSTACK_APART="+m.apart)
	_, talk, status = try(t, cmd)
	installed = strings.Fields(run(t, "dpkg-query", "--admindir="+admin, "--show", "--showformat=${Package}\\n"))
	return installed, talk, status
}

// TestPackages runs .ci/packages, which installs packages on the machine itself, with apt and
// dpkg on a machine in a folder: packages that change how a machine boots or what runs on it
// are refused before anything is installed.
func TestPackages(t *testing.T) {
	plain := map[string]string{"usr/bin/plain": "", "usr/share/systemd/system/plain.service": ""}
	for _, test := range []struct {
		name   string
		fields string
		files  map[string]string
		want   string // of the refusal; none where the package is installed
	}{
		{"plain", "", plain, ""},
		{"systemd-boot", "", map[string]string{"DEBIAN/postinst": "#!/bin/sh\n[ \"$1\" != configure ] || bootctl install\n"}, "package: its postinst runs bootctl\n"},
		{"initramfs-tools", "Conflicts: dracut\n", plain, "with package, apt would remove: dracut\n"},
		{"update-initramfs", "", map[string]string{"DEBIAN/postinst": "#!/bin/sh\nupdate-initramfs -u\n"}, "package: its postinst runs update-initramfs\n"},
		{"rabbitmq-server", "", map[string]string{"DEBIAN/postinst": "#!/bin/sh\ninvoke-rc.d rabbitmq-server start\n"}, "package: its postinst runs invoke-rc.d\n"},
		{"a service that ends", "", map[string]string{"DEBIAN/prerm": "#!/bin/sh\ndeb-systemd-invoke stop some.service\n"}, "package: its prerm runs deb-systemd-invoke\n"},
		{"a unit", "", map[string]string{"lib/systemd/system/epmd.socket": ""}, "package: ships /lib/systemd/system/epmd.socket\n"},
		{"a unit in usr", "", map[string]string{"usr/lib/systemd/system/some.timer": ""}, "package: ships /usr/lib/systemd/system/some.timer\n"},
		{"an init script", "", map[string]string{"etc/init.d/iscsid": ""}, "package: ships /etc/init.d/iscsid\n"},
		{"a hook of kernels", "", map[string]string{"etc/kernel/postinst.d/zz-update-grub": ""}, "package: ships /etc/kernel/postinst.d/zz-update-grub\n"},
		{"by what it needs", "Depends: needed\n", plain, "needed: ships /lib/udev/rules.d/some.rules\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := newAptMachine(t)
			m.offer(t, "dracut", "", nil)
			m.offer(t, "needed", "", map[string]string{"lib/udev/rules.d/some.rules": ""})
			m.offer(t, "package", test.fields, test.files)
			// What is there before.
			if _, talk, status := m.install(t, "dracut"); status != 0 {
				t.Fatalf("exit status %d: %s", status, talk)
			}
			installed, talk, status := m.install(t, "package")
			if test.want == "" {
				if status != 0 || !slices.Equal(installed, []string{"dracut", "package"}) || talk != "packages: to be installed on this machine: package\n" {
					t.Errorf("exit status %d, installed: %v\n%s", status, installed, talk)
				}
				if installed, talk, status := m.install(t, "package"); status != 0 || talk != "" {
					t.Errorf("again: exit status %d, installed: %v\n%s", status, installed, talk)
				}
				return
			}
			if !slices.Equal(installed, []string{"dracut"}) {
				t.Errorf("installed: %v", installed)
			}
			if status != 1 || !strings.HasSuffix(talk, test.want) || !strings.Contains(talk, "nothing was installed: ") {
				t.Errorf("exit status %d: %s", status, talk)
			}
			// In an overlay nothing is refused. The downloaded packages are kept for the next one.
			for file := range test.files {
				if strings.HasPrefix(file, "DEBIAN/") {
					return // the folder has no shell to run the script
				}
			}
			m.apart = "overlay"
			for range 2 {
				installed, talk, status = m.install(t, "package")
				if status != 0 || !slices.Contains(installed, "package") || !strings.HasPrefix(talk, "packages: to be installed for this run, not on this machine: ") {
					t.Errorf("in an overlay: exit status %d, installed: %v\n%s", status, installed, talk)
				}
				run(t, "dpkg", "--root="+m.root, "--force-all", "--purge", "package")
				hosttest.NoError(t, errors.Join(
					os.RemoveAll(filepath.Join(m.repository, "package.deb")),
					os.RemoveAll(filepath.Join(m.repository, "needed.deb"))))
			}
		})
	}
}
