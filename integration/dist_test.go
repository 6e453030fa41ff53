package integration

import (
	"bufio"
	"compress/gzip"
	"debug/buildinfo"
	"debug/elf"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/hosttest"
)

// What the test's release is made of, and what its packages are named for that.
const (
	distDescribe = "v1.2.3-rc1-4-g0a1b2c3"
	distVersion  = "1.2.3~rc1+4.g0a1b2c3"
	distSemantic = "1.2.3-rc1+4.g0a1b2c3"
)

// A dist is a release that make dist has made from a copy of the checkout.
type dist struct {
	dir     string
	program string // as make build has made it in the copy
}

// file returns the path of the release's only file that matches a pattern.
func (d dist) file(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(d.dir, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %q, %v", pattern, found, err)
	}
	return found[0]
}

// checkout copies the checkout, with the tool that make dist needs.
func checkout(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "checkout")
	// With their times, since make compares them.
	run(t, "sh", "-c", `mkdir -p "$1/build/tools" && cd .. && for file in * .ci; do
		case $file in build | integration) ;; *) cp -a "$file" "$1" ;; esac
	done && cp -a build/tools/nfpm "$1/build/tools" && cp -a --parents integration/*/README.md "$1"`, "sh", dir)
	return dir
}

// makeDist runs make dist in a copy of the checkout, in a shell that script prepares.
func makeDist(t *testing.T, dir, script string, args ...string) dist {
	t.Helper()
	cmd := exec.Command("unshare", append([]string{"--uts", "sh", "-euc", script + "\nexec make -C \"$@\"", "sh", dir, "dist",
		"VERSION=" + distDescribe, "MAINTAINER=The releaser <releaser@gpustack.example>"}, args...)...)
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1700000000")
	if out, talk, status := try(t, cmd); status != 0 {
		t.Fatalf("make dist: exit status %d\n%s%s", status, out, talk)
	}
	return dist{filepath.Join(dir, "build/dist"), filepath.Join(dir, "build/gpustack")}
}

// TestDist makes a release twice, and installs and judges its packages with the programs of Debian
// and of rpm.
func TestDist(t *testing.T) {
	t.Setenv("GNUPGHOME", t.TempDir())
	const key = "The releaser"
	run(t, "gpg", "--batch", "--quiet", "--passphrase", "", "--quick-generate-key", key, "ed25519", "sign")
	t.Cleanup(func() { run(t, "gpgconf", "--kill", "all") })
	copies := [2]string{checkout(t), checkout(t)} // before anybody edits it
	first := makeDist(t, copies[0], "umask 022", "SIGN="+key)

	t.Run("made twice", func(t *testing.T) {
		t.Parallel()
		second := makeDist(t, copies[1], "umask 077; hostname elsewhere; export TZ=Asia/Tokyo USER=other LANG=C; find \"$1\" -name '*.md' -exec touch {} +")
		hosttest.EqualIn(t, "first and second", hosttest.Read(t, filepath.Join(first.dir, "SHA256SUMS")),
			hosttest.Read(t, filepath.Join(second.dir, "SHA256SUMS")))
	})
	t.Run("sums", func(t *testing.T) {
		cmd := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
		cmd.Dir = first.dir
		out, talk, status := try(t, cmd)
		if lines := strings.Count(out, ": OK\n"); status != 0 || talk != "" || lines != 9 {
			t.Errorf("exit status %d\n%s%s", status, out, talk)
		}
		entries, err := os.ReadDir(first.dir)
		if err != nil || len(entries) != 9+len([]string{"SHA256SUMS", "SHA256SUMS.asc"}) {
			t.Errorf("%q, %v", entries, err)
		}
		run(t, "gpg", "--verify", filepath.Join(first.dir, "SHA256SUMS.asc"), filepath.Join(first.dir, "SHA256SUMS"))
	})
	t.Run("version", func(t *testing.T) {
		hosttest.ContainsIn(t, "--version", distDescribe, run(t, first.program, "--version"))
		// Both package managers sort the versions of .ci/dist/main_test.go alike.
		versions := []string{"0~20261122170509.g4d2234a", "1.2.3~rc1", distVersion, "1.2.3", "1.2.3+5.g0a1b2c3", "1.2.4"}
		for i, older := range versions[:len(versions)-1] {
			newer := versions[i+1]
			run(t, "dpkg", "--compare-versions", older+"-1", "lt", newer+"-1")
			if out := run(t, "rpm", "--eval", fmt.Sprintf(`%%{lua: print(rpm.vercmp("%s", "%s"))}`, older, newer)); out != "-1\n" {
				t.Errorf("rpm compares %s with %s: %s", older, newer, out)
			}
		}
	})
	t.Run("install lines", func(t *testing.T) { // of the README: each names one file
		_, line, _ := strings.Cut(hosttest.Read(t, "../README.md"), "\n- **Install**: ")
		line, _, _ = strings.Cut(line, "\n")
		patterns := strings.Split(line, "build/dist/")[1:]
		if len(patterns) != 3 {
			t.Errorf("%q", line)
		}
		for _, pattern := range patterns {
			pattern, _, _ = strings.Cut(pattern, "`")
			first.file(t, pattern)
		}
	})
	t.Run("deb", func(t *testing.T) { testDeb(t, first) })
	t.Run("rpm", func(t *testing.T) { testRPM(t, first) })
	t.Run("tarball", func(t *testing.T) {
		t.Parallel()
		prefix := t.TempDir()
		run(t, "tar", "-xzf", first.file(t, "*-linux-"+runtime.GOARCH+".tar.gz"), "-C", prefix, "--strip-components=1")
		for _, file := range []string{"sbin/gpustack", "share/man/man8/gpustack.8", "share/doc/gpustack-nova/LICENSE", "share/zsh/site-functions/_gpustack"} {
			if _, err := os.Stat(filepath.Join(prefix, file)); err != nil {
				t.Error(err)
			}
		}
		doMainJob(t, filepath.Join(prefix, "sbin/gpustack"), filepath.Join(prefix, "share/doc/gpustack-nova/examples/talk-2xk4200.txtar"))
	})
	t.Run("collection", func(t *testing.T) { testCollection(t, first) })
	t.Run("bill of materials", func(t *testing.T) { testSBOM(t, first) })
	t.Run("arm64", func(t *testing.T) { testARM64(t, first) })
}

// testCollection: ansible-galaxy installs the collection without a network, and the packages have
// the same files where Ansible finds them without a configuration.
func testCollection(t *testing.T, d dist) {
	t.Parallel()
	dir := t.TempDir()
	env := append(os.Environ(), "HOME="+dir, "ANSIBLE_LOCAL_TEMP="+dir+"/tmp", "ANSIBLE_GALAXY_CACHE_DIR="+dir+"/cache", "PYTHONDONTWRITEBYTECODE=1")
	galaxy := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("unshare", append([]string{"--net", "ansible-galaxy", "collection"}, args...)...)
		cmd.Env = env
		out, talk, status := try(t, cmd)
		if status != 0 {
			t.Fatalf("ansible-galaxy %q: exit status %d\n%s%s", args, status, out, talk)
		}
		return out
	}
	file := d.file(t, "gpustack-nova-"+distSemantic+".tar.gz")
	if out := galaxy("install", file, "--collections-path", dir+"/collections"); !strings.Contains(out,
		"gpustack.nova:"+distSemantic+" was installed successfully") {
		t.Errorf("ansible-galaxy: %s", out)
	}
	const below = "ansible_collections/gpustack/nova"
	want := content(t, filepath.Join(dir, "collections", below))
	if len(want) < 20 || !strings.Contains(want["MANIFEST.json"], `"version": "`+distSemantic+`"`) ||
		want["plugins/modules/prepare.py"] != hosttest.Read(t, "../ansible/plugins/modules/prepare.py") {
		t.Errorf("installed: %q", slices.Sorted(maps.Keys(want)))
	}
	for _, format := range []struct{ name, pattern, unpack string }{
		{"deb", "*_arm64.deb", `dpkg-deb --extract "$0" "$1"`},
		{"rpm", "*.aarch64.rpm", `mkdir "$1" && cp "$0" "$1.rpm" && rpm2archive "$1.rpm" && tar -xzf "$1.rpm.tgz" -C "$1"`},
	} {
		root := filepath.Join(dir, format.name)
		run(t, "sh", "-ec", format.unpack, d.file(t, format.pattern), root)
		hosttest.EqualIn(t, format.name, want, content(t, filepath.Join(root, "usr/share/ansible/collections", below)))
	}
	// Ansible accepts the files as those of the release, and each sum of them.
	cmd := exec.Command("ansible-galaxy", "collection", "verify", "--offline", "gpustack.nova", "--collections-path", dir+"/deb/usr/share/ansible/collections")
	cmd.Env = env
	out, talk, status := try(t, cmd)
	if status != 0 || !strings.Contains(out, "Successfully verified that checksums for 'gpustack.nova:"+distSemantic+"' are internally consistent") {
		t.Errorf("ansible-galaxy verify: exit status %d\n%s%s", status, out, talk)
	}
}

// content returns the files below a folder.
func content(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			files[strings.TrimPrefix(path, dir+"/")] = hosttest.Read(t, path)
		}
		return err
	})
	hosttest.NoError(t, err)
	return files
}

// newMachine returns the root of a machine: the talk's node, where dpkg and rpm have installed
// nothing.
func newMachine(t *testing.T) (root string) {
	t.Helper()
	root = unpack(t, examples(t)["talk-2xk4200.txtar"])
	makeDpkgFolders(t, root)
	hosttest.NoError(t, os.MkdirAll(filepath.Join(root, "var/lib/rpm"), 0o755))
	return root
}

// makeDpkgFolders makes what dpkg needs in a root where it has installed nothing.
func makeDpkgFolders(t *testing.T, root string) {
	t.Helper()
	for _, dir := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates"} {
		hosttest.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	hosttest.NoError(t, os.WriteFile(filepath.Join(root, "var/lib/dpkg/status"), nil, 0o644))
}

// holds returns the files and folders of a machine, each with its mode, apart from those of the
// package managers.
func holds(t *testing.T, root string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, root)
		if name == "/var/lib/dpkg" || name == "/var/lib/rpm" {
			return fs.SkipDir
		}
		info, err := entry.Info()
		paths = append(paths, info.Mode().String()+" "+name)
		return err
	})
	hosttest.NoError(t, err)
	return paths
}

// added returns what a machine has now and had not before.
func added(before, now []string) (paths []string) {
	for _, path := range now {
		if !slices.Contains(before, path) {
			paths = append(paths, path)
		}
	}
	return paths
}

// testDeb: lintian has nothing to say; the package is installed, works and is purged, and nothing
// of it is left, but for all that gpustack has made of the node.
func testDeb(t *testing.T, d dist) {
	t.Parallel()
	// lintian takes seconds for each: the other package has the same files.
	out, talk, status := try(t, exec.Command("lintian", "--allow-root", "--no-cfg", "--fail-on", "error,warning", d.file(t, "*_"+runtime.GOARCH+".deb")))
	if status != 0 || out+talk != "" {
		t.Errorf("lintian: exit status %d\n%s%s", status, out, talk)
	}
	contents := map[string]string{}
	for _, arch := range []string{"amd64", "arm64"} {
		deb := d.file(t, "*_"+arch+".deb")
		// Without sizes, as the binaries differ.
		contents[arch] = regexp.MustCompile(`root/root +\d+`).ReplaceAllString(run(t, "dpkg-deb", "--contents", deb), "root/root")
		for field, want := range map[string]string{"Package": "gpustack-nova", "Version": distVersion + "-1", "Architecture": arch, "Depends": "", "Conflicts": ""} {
			hosttest.EqualIn(t, field, want, strings.TrimSpace(run(t, "dpkg-deb", "--field", deb, field)))
		}
		if control := strings.Fields(run(t, "sh", "-c", `dpkg-deb --ctrl-tarfile "$0" | tar -t`, deb)); !slices.Equal(control, []string{"./control", "./md5sums"}) {
			t.Errorf("control files: %q", control)
		}
	}
	if diff := cmp.Diff(contents["amd64"], contents["arm64"]); diff != "" || !strings.Contains(contents["amd64"], "./usr/sbin/gpustack\n") {
		t.Errorf("(-amd64 +arm64):\n%s", diff)
	}
	root := newMachine(t)
	dpkg := func(args ...string) string {
		t.Helper()
		// The tests' Debian tree excludes documents and manual pages.
		return run(t, "dpkg", append([]string{"--root=" + root, "--log=/dev/null", "--path-include=/usr/share/*"}, args...)...)
	}
	before := holds(t, root)
	dpkg("-i", d.file(t, "*_"+runtime.GOARCH+".deb"))
	hosttest.EqualIn(t, "dpkg --verify", "", dpkg("--verify"))
	checkInstalled(t, root, before, []string{"usr/sbin/gpustack", "usr/bin/gpustack", "usr/share/man/man8/gpustack.8.gz",
		"usr/share/bash-completion/completions/gpustack",
		"usr/share/zsh/vendor-completions/_gpustack", "usr/share/fish/vendor_completions.d/gpustack.fish",
		"usr/lib/systemd/system/gpustack-host-check.timer", "usr/share/doc/gpustack-nova/copyright", "usr/share/doc/gpustack-nova/third-party-licenses.txt",
		"usr/share/doc/gpustack-nova/changelog.Debian.gz", "usr/share/ansible/collections/ansible_collections/gpustack/nova/MANIFEST.json"})
	prepared := prepareInstalled(t, root)
	dpkg("--purge", "gpustack-nova")
	checkRemoved(t, root, before, prepared)
}

// testRPM does the same with rpm and rpmlint.
func testRPM(t *testing.T, d dist) {
	t.Parallel()
	machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}
	for _, arch := range []string{"amd64", "arm64"} {
		file := d.file(t, "*."+machine[arch]+".rpm")
		out, talk, status := try(t, exec.Command("rpmlint", "--config", "../.ci/dist/rpmlint.toml", file))
		if status != 0 || talk != "" || !strings.Contains(out, "; 0 errors, 0 warnings,") {
			t.Errorf("rpmlint: exit status %d\n%s%s", status, out, talk)
		}
		hosttest.EqualIn(t, "rpm -K", file+": digests OK\n", run(t, "rpm", "-K", file))
		for _, line := range strings.Fields(run(t, "rpm", "-qp", "--queryformat", "[%{REQUIRENAME}\n]", file)) {
			if !strings.HasPrefix(line, "rpmlib(") {
				t.Errorf("requires %s", line)
			}
		}
		want := "gpustack-nova " + distVersion + " 1 " + machine[arch] + " localhost 1700000000 Apache-2.0"
		hosttest.Equal(t, want, run(t, "rpm", "-qp", "--queryformat", "%{NAME} %{VERSION} %{RELEASE} %{ARCH} %{BUILDHOST} %{BUILDTIME} %{LICENSE}", file))
		hosttest.EqualIn(t, "scripts or configuration files", "", run(t, "rpm", "-qp", "--scripts", "--triggers", "--configfiles", file))
	}
	root := newMachine(t)
	rpm := func(args ...string) string {
		t.Helper()
		return run(t, "rpm", append([]string{"--root", root, "--dbpath", "/var/lib/rpm"}, args...)...)
	}
	before := holds(t, root)
	rpm("-i", d.file(t, "*."+machine[runtime.GOARCH]+".rpm"))
	hosttest.EqualIn(t, "rpm -V", "", rpm("-V", "gpustack-nova"))
	checkInstalled(t, root, before, []string{"usr/sbin/gpustack", "usr/share/man/man8/gpustack.8.gz", "usr/share/bash-completion/completions/gpustack",
		"usr/share/zsh/site-functions/_gpustack", "usr/share/fish/vendor_completions.d/gpustack.fish", "usr/lib/systemd/system/gpustack-host-check.timer",
		"usr/share/licenses/gpustack-nova/LICENSE",
		"usr/share/licenses/gpustack-nova/third-party-licenses.txt"})
	prepared := prepareInstalled(t, root)
	rpm("-e", "gpustack-nova")
	checkRemoved(t, root, before, prepared)
}

// checkInstalled: these files and the documents are installed, with usual modes and only below
// /usr, and the binary does its main job in a root that has nothing else to run.
func checkInstalled(t *testing.T, root string, before, want []string) {
	t.Helper()
	for _, file := range []string{"README.md", "CHANGELOG.md", "docs/json.md", "docs/repair.md", "examples/hgx-8xa100.txtar"} {
		want = append(want, "usr/share/doc/gpustack-nova/"+file)
	}
	for _, file := range want {
		if _, err := os.Stat(filepath.Join(root, file)); err != nil {
			t.Error(err)
		}
	}
	for _, path := range added(before, holds(t, root)) {
		mode, name, _ := strings.Cut(path, " ")
		if wanted := map[bool]string{true: "drwxr-xr-x", false: "-rw-r--r--"}[mode[0] == 'd']; mode != wanted && path != "-rwxr-xr-x /usr/sbin/gpustack" &&
			path != "Lrwxrwxrwx /usr/bin/gpustack" && (mode != "-rwxr-xr-x" || !strings.HasSuffix(name, ".sh")) ||
			name != "/usr" && !strings.HasPrefix(name, "/usr/") {
			t.Errorf("installed: %s", path)
		}
	}
	hosttest.ContainsIn(t, "--version", distDescribe, run(t, "chroot", root, "/usr/sbin/gpustack", "--version"))
	doMainJob(t, filepath.Join(root, "usr/sbin/gpustack"), filepath.Join(root, "usr/share/doc/gpustack-nova/examples/talk-2xk4200.txtar"))
}

// doMainJob: an installed binary and an installed example.
func doMainJob(t *testing.T, program, example string) {
	t.Helper()
	node := filepath.Join(t.TempDir(), "node")
	run(t, program, "host", "unpack", example, node)
	hosttest.ContainsIn(t, "host scan", "2 of 2 GPUs can be prepared for guests", run(t, program, "host", "scan", "--root", node))
	out, talk, status := try(t, exec.Command(program, "host", "prepare", "--root", node, "--dry-run", "--diff"))
	if status != 2 || !strings.Contains(out, "options vfio-pci ids=10de:11b4,10de:0e0a") {
		t.Errorf("host prepare: exit status %d\n%s%s", status, out, talk)
	}
}

// prepareInstalled prepares the node that the package is installed on, and returns the node's
// files then, apart from the package's.
func prepareInstalled(t *testing.T, root string) (files map[string]string) {
	t.Helper()
	installed := holds(t, root)
	run(t, filepath.Join(root, "usr/sbin/gpustack"), "host", "prepare", "--root", root, "--yes")
	files = map[string]string{}
	for _, path := range added(installed, holds(t, root)) {
		if mode, name, _ := strings.Cut(path, " "); mode[0] == '-' {
			files[name] = hosttest.Read(t, root+name)
		}
	}
	for _, name := range []string{"/etc/modprobe.d/zz-gpustack.conf", "/var/lib/gpustack/contract.json"} {
		if files[name] == "" {
			t.Errorf("host prepare has not made %s", name)
		}
	}
	return files
}

// checkRemoved: of the package nothing is left, and the node is as gpustack has prepared it.
func checkRemoved(t *testing.T, root string, before []string, prepared map[string]string) {
	t.Helper()
	for _, path := range added(before, holds(t, root)) {
		mode, name, _ := strings.Cut(path, " ")
		// rpm leaves folders that elsewhere belong to the distribution's own package.
		if _, ok := prepared[name]; mode[0] != 'd' && !ok || strings.HasPrefix(name, "/usr") && strings.Contains(name, "gpustack") {
			t.Errorf("left after removal: %s", path)
		}
	}
	for name, text := range prepared {
		if diff := cmp.Diff(text, hosttest.Read(t, root+name)); diff != "" {
			t.Errorf("%s (-prepared +package removed):\n%s", name, diff)
		}
	}
	// Another binary, from an archive or a later package, undoes the node.
	run(t, gpustack, "undo", "--root", root, "--yes")
	if _, err := os.Stat(root + "/etc/modprobe.d/zz-gpustack.conf"); !os.IsNotExist(err) {
		t.Errorf("undone: %v", err)
	}
}

// testSBOM compares the bill of materials with what Go says of the binary, and with go.sum.
func testSBOM(t *testing.T, d dist) {
	sums := map[string]string{}
	lines := bufio.NewScanner(strings.NewReader(hosttest.Read(t, "../go.sum")))
	for lines.Scan() {
		if f := strings.Fields(lines.Text()); !strings.HasSuffix(f[1], "/go.mod") {
			h1, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(f[2], "h1:"))
			hosttest.NoError(t, err)
			sums[f[0]+" "+f[1]] = hex.EncodeToString(h1)
		}
	}
	type component struct {
		Type, Name, Version, PURL string
		Hashes                    []struct{ Alg, Content string }
		Licenses                  []struct{ License struct{ ID string } }
	}
	var bom struct {
		BOMFormat, SpecVersion string
		Metadata               struct {
			Timestamp string
			Component component
		}
		Components []component
	}
	hosttest.NoError(t, json.Unmarshal([]byte(hosttest.Read(t, d.file(t, "*-linux-"+runtime.GOARCH+".cdx.json"))), &bom))
	root := t.TempDir()
	run(t, "tar", "-xzf", d.file(t, "*-linux-"+runtime.GOARCH+".tar.gz"), "-C", root, "--strip-components=1")
	program := filepath.Join(root, "sbin/gpustack")
	info, err := buildinfo.ReadFile(program)
	hosttest.NoError(t, err)
	want := []string{"std " + strings.TrimPrefix(info.GoVersion, "go") + " pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go") + " "}
	// The binary carries cudaprobe, the one program of purego's.
	text := ""
	for rest := hosttest.Read(t, program); !strings.Contains(text, "path\tgpustack/cmd/cudaprobe\n"); {
		at := strings.Index(rest, "\x1f\x8b\x08\x00") // gzip(1)
		if at < 0 {
			break
		}
		rest = rest[at+1:]
		if r, err := gzip.NewReader(strings.NewReader("\x1f" + rest)); err == nil {
			r.Multistream(false)
			unpacked, _ := io.ReadAll(r) // an error of other bytes
			text = string(unpacked)
		}
	}
	carried := regexp.MustCompile(`\ndep\t(github\.com/ebitengine/purego)\t(v[0-9.]+)\t`).FindStringSubmatch(text)
	if !strings.Contains(text, "path\tgpustack/cmd/cudaprobe\n") || carried == nil {
		t.Fatal("the binary does not carry cudaprobe")
	}
	info.Deps = append(info.Deps, &debug.Module{Path: carried[1], Version: carried[2]})
	slices.SortFunc(info.Deps, func(a, b *debug.Module) int { return strings.Compare(a.Path, b.Path) })
	for _, module := range info.Deps {
		name := module.Path + " " + module.Version
		want = append(want, name+" pkg:golang/"+module.Path+"@"+module.Version+" "+sums[name])
	}
	var got []string
	for _, c := range bom.Components {
		sum := ""
		for _, h := range c.Hashes {
			sum += h.Content
		}
		got = append(got, strings.Join([]string{c.Name, c.Version, c.PURL, sum}, " "))
		if len(c.Licenses) == 0 || c.Licenses[0].License.ID == "" {
			t.Errorf("%s has no license", c.Name)
		}
		if text := hosttest.Read(t, filepath.Join(root, "share/doc/gpustack-nova/third-party-licenses.txt")); c.Name != "std" &&
			!strings.Contains(text, "\n==== "+c.Name+" "+c.Version+": ") {
			t.Errorf("no license of %s", c.Name)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" || len(want) < 10 {
		t.Errorf("%d modules (-binary +bill of materials):\n%s", len(want), diff)
	}
	sum, _, _ := strings.Cut(run(t, "sha256sum", program), " ")
	subject := bom.Metadata.Component
	if bom.BOMFormat != "CycloneDX" || bom.SpecVersion != "1.6" || bom.Metadata.Timestamp != "2023-11-14T22:13:20Z" ||
		subject.Name != "gpustack" || subject.Version != distVersion || len(subject.Hashes) != 1 || subject.Hashes[0].Content != sum {
		t.Errorf("%+v", bom.Metadata)
	}
}

// testARM64: the binary is one for arm64 that needs no library, and it does its main job in QEMU's
// user mode emulation.
func testARM64(t *testing.T, d dist) {
	t.Parallel()
	prefix := t.TempDir()
	run(t, "tar", "-xzf", d.file(t, "*-linux-arm64.tar.gz"), "-C", prefix, "--strip-components=1")
	program := filepath.Join(prefix, "sbin/gpustack")
	file, err := elf.Open(program)
	hosttest.NoError(t, err)
	defer file.Close()
	if file.Machine != elf.EM_AARCH64 || slices.ContainsFunc(file.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC }) {
		t.Errorf("%s, %v", file.Machine, file.Progs)
	}
	wrapper := filepath.Join(prefix, "gpustack")
	hosttest.NoError(t, os.WriteFile(wrapper, []byte("#!/bin/sh\nexec qemu-aarch64 "+program+" \"$@\"\n"), 0o755))
	hosttest.ContainsIn(t, "--version", distDescribe, run(t, wrapper, "--version"))
	doMainJob(t, wrapper, filepath.Join(prefix, "share/doc/gpustack-nova/examples/talk-2xk4200.txtar"))
}

// TestRelease makes a release of a copy of the checkout that is a repository of its own: all that a
// release lacks is said at once, and what is to be published has been built twice.
func TestRelease(t *testing.T) {
	t.Parallel()
	dir := checkout(t)
	run(t, "cp", "-a", ".", filepath.Join(dir, "integration"))
	git := func(args ...string) {
		t.Helper()
		run(t, "git", append([]string{"-C", dir, "-c", "user.name=The releaser", "-c", "user.email=releaser@gpustack.example"}, args...)...)
	}
	release := func(version string) (string, string, int) {
		t.Helper()
		cmd := exec.Command("make", "--no-print-directory", "-C", dir, "release", "VERSION="+version)
		cmd.Env = append(os.Environ(), "MAINTAINER=The releaser <releaser@gpustack.example>")
		return try(t, cmd)
	}
	git("init", "--quiet", "--initial-branch", "main")
	git("add", "--all")
	git("commit", "--quiet", "--message", "all")

	for _, c := range []struct{ name, version, says string }{
		{"no version", "next", `release: error: version "next" is not one like 1.2.3`},
		{"not tagged", "7.8.9", "release: error: this commit does not have the tag v7.8.9: git tag --annotate v7.8.9"},
		{"not in the changelog", "7.8.9", `release: error: CHANGELOG.md has no line "## 7.8.9 (DATE)"`},
		{"called unreleased", "7.8.9", "release: error: CHANGELOG.md says that this version is not released"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if out, talk, status := release(c.version); status == 0 || out != "" || !strings.Contains(talk, c.says) {
				t.Errorf("exit status %d\n%s%s", status, out, talk)
			}
		})
	}

	changelog := filepath.Join(dir, "CHANGELOG.md")
	const text = "# Changelog\n\n## 7.8.9 (2026-12-24)\n\nWhat it does.\n\n## 7.8.8 (2026-12-23)\n\nWhat it did.\n"
	hosttest.NoError(t, os.WriteFile(changelog, []byte(text), 0o644))
	t.Run("changed", func(t *testing.T) {
		git("tag", "v7.8.9")
		if _, talk, status := release("7.8.9"); status == 0 || strings.Count(talk, "release: error: ") != 1 ||
			!strings.Contains(talk, "release: error: the checkout has changes; git status lists them\n") {
			t.Errorf("exit status %d\n%s", status, talk)
		}
		git("commit", "--quiet", "--all", "--message", "changelog")
		git("tag", "--force", "v7.8.9")
	})
	t.Run("made", func(t *testing.T) {
		out, talk, status := release("7.8.9")
		for _, says := range []string{
			"has the same bytes", "git push origin v7.8.9\n", "\n  build/dist/gpustack-nova-7.8.9-linux-amd64.tar.gz\n", "\n  build/dist/SHA256SUMS\n", "\nWhat it does.\n",
		} {
			hosttest.Contains(t, says, out)
		}
		if status != 0 || strings.Contains(out, "What it did") {
			t.Errorf("exit status %d\n%s%s", status, out, talk)
		}
	})
}
