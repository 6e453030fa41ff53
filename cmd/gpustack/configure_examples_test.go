package main

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/nova"
)

// configureTree makes the talk's node with a release of Nova (RELEASE and VERSION), prepared for
// guests, its inventories and the nova.conf of a controller of its cloud, and ctl and gpu, a
// controller and a compute node that are not configured.
const configureTree = `
gpustack host unpack examples/talk-2xk4200.txtar node
rm -rf node/var/lib/dpkg node/usr/lib/python3/dist-packages
metadata=node/usr/lib/python3/dist-packages/nova-$VERSION.0.0.dist-info
mkdir -p $metadata
printf 'Metadata-Version: 2.1\nName: nova\nVersion: %s.0.0\n' $VERSION > $metadata/METADATA
printf '[DEFAULT]\n' > node/etc/nova/nova.conf
gpustack host scan --root node -o json > gpu1.json
sed s/gpu1/gpu2/ gpu1.json > gpu2.json
cp -a node ctl
gpustack host prepare --root node --yes
for f in node/sys/bus/pci/devices/0000:8[48]:00.0; do # as after the reboot
	ln -sfn /sys/bus/pci/drivers/vfio-pci $(readlink -f $f)/driver
done
cp -a node gpu
cp -a ctl named
gpustack nova configure --root named --role controller --inventory gpu1.json --yes
cp named/etc/nova/nova.conf controller.conf
`

// onTree returns an example of nova configure as it is run on one tree, or "" if it is for another:
// with a question answered, for the release of the tree, and without asking databases.
func onTree(line string, r nova.Release) string {
	words := strings.Fields(line)
	placement, isController := slices.Contains(words, "--placement"), slices.Contains(words, "controller")
	switch {
	case slices.Contains(words, "--hca"), // of a machine with adapters
		placement && r < nova.Zed:
		return ""
	case placement && isController && r >= nova.Antelope:
		words = append(words, "--computes-report")
	}
	if i := slices.Index(words, "--release"); i >= 0 {
		words = slices.Delete(words, i, i+2)
	}
	words = slices.DeleteFunc(words, func(w string) bool { return w == "--dry-run" })
	if !slices.Contains(words, "--render") {
		words = append(words, "--yes")
	}
	return strings.Join(words, " ")
}

// TestConfigureExamples runs the examples of nova configure's help one after the other on one tree,
// for every release: nova check then finds nothing. The same holds for the first command of each
// side, a controller with --alias and a compute node by its hardware, each on its own machine.
func TestConfigureExamples(t *testing.T) {
	folder, err := filepath.Abs("../../examples")
	hosttest.NoError(t, err)
	lines := examples(newNovaConfigureCommand(testUI(t)))
	first := func(role, option string) string {
		i := slices.IndexFunc(lines, func(l string) bool {
			return strings.Contains(l, "--role "+role) && strings.Contains(l, option) && !strings.Contains(l, "--remove-alias")
		})
		if i < 0 {
			t.Fatalf("no example for %s with %q", role, option)
		}
		return lines[i]
	}
	// The others' options are those of the release before.
	changes := []nova.Release{nova.Mitaka, nova.Ocata, nova.Xena, nova.Zed, nova.Antelope, nova.Epoxy, nova.Flamingo, nova.Newest}
	for i, name := range nova.ReleaseNames() {
		release, test := nova.Mitaka+nova.Release(i), name
		if !slices.Contains(changes, release) {
			test = path.Join("as before", name)
		}
		t.Run(test, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			hosttest.NoError(t, os.Symlink(folder, filepath.Join(dir, "examples")))
			env := []string{"VERSION=" + strconv.Itoa(int(release)), "HOME=" + dir}
			succeeds := func(line string) (stdout string) {
				t.Helper()
				o := runProgram(t, dir, env, strings.Fields(line)[1:]...)
				if o.status != 0 {
					t.Fatalf("%s: %+v", line, o)
				}
				return o.stdout
			}
			run := func(root, line string) {
				t.Helper()
				if line = onTree(line, release); line != "" {
					succeeds(strings.Replace(line, "configure", "configure --root "+root, 1))
				}
			}
			hosttest.NoError(t, bash(dir, append(os.Environ(), env...), configureTree))
			run("ctl", first("controller", "--alias"))
			run("gpu", first("compute", ""))
			for _, check := range []string{
				"gpustack nova check --root gpu --conf controller=ctl/etc/nova/nova.conf --conf compute=gpu/etc/nova/nova.conf --release " + name,
				"gpustack nova check --root gpu --conf controller=ctl/etc/nova/nova.conf --conf compute=gpu/etc/nova/nova.conf --inventory gpu1.json --release " + name,
			} {
				hosttest.ContainsIn(t, check, "no problems found", succeeds(check))
			}
			for _, line := range lines {
				run("node", line)
			}
			run("node", first("compute", "")) // an example has removed the alias with its device_spec
			hosttest.ContainsIn(t, "nova check after all examples", "no problems found", succeeds("gpustack nova check --root node"))
		})
	}
}
