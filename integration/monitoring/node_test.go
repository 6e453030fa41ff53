package monitoring

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gpustack/host/hosttest"
	"gpustack/integration/db"
	"gpustack/nova/cloud/cloudtest"
)

// node is a machine whose commands write metrics into a folder.
type node struct {
	t         testing.TB
	root      string // of the machine; "" for a controller
	collector string // the folder
	env       []string
}

func newNode(t testing.TB) node {
	n := node{t: t, root: filepath.Join(t.TempDir(), "node"), collector: filepath.Join(t.TempDir(), "collector")}
	hosttest.NoError(t, os.Mkdir(n.collector, 0o755))
	return n
}

// prepared returns a compute node with two K4200 that host prepare has prepared.
func prepared(t testing.TB) node {
	t.Helper()
	n := newNode(t)
	run(t, 0, "", gpustack, "host", "unpack", "../../examples/talk-2xk4200.txtar", n.root)
	n.shell(`rm boot/initrd.img-*; rm -r etc/nova; echo "btime 1000000000" >proc/stat; sed -i "s/ intel_iommu=on iommu=pt//" proc/cmdline`)
	run(t, 0, "", gpustack, "host", "prepare", "--root", n.root, "--yes")
	n.shell(`sed -i "s/ quiet\$/ quiet intel_iommu=on iommu=pt/" boot/grub/grub.cfg`)
	return n
}

// ready returns one that was booted since.
func ready(t testing.TB) node {
	t.Helper()
	n := prepared(t)
	n.shell(`sed -i "s/\$/ intel_iommu=on iommu=pt/" proc/cmdline; echo "btime 9000000000" >proc/stat
		for d in sys/bus/pci/devices/0000:8[48]:00.?; do
			ln -sfn /sys/bus/pci/drivers/vfio-pci $d/driver
			for kind in correctable:COR nonfatal:NONFATAL fatal:FATAL; do echo "TOTAL_ERR_${kind#*:} 0" >$d/aer_dev_${kind%:*}; done
		done`)
	return n
}

// controller returns a controller of the cloud, whose rows are in order. Keystone and Placement are
// imitated: the rows are what the tests are about.
func controller(t testing.TB) node {
	t.Helper()
	hosttest.NoError(t, database.Reset(t.Context()))
	n := newNode(t)
	c := cloudtest.New(95)
	c.PCI = &cloudtest.Devices{Class: "CUSTOM_PCI_10DE_11B4", Total: 1}
	t.Cleanup(c.Close)
	for name, value := range c.Env() {
		n.env = append(n.env, name+"="+value)
	}
	conf := hosttest.Read(t, database.Conf())
	hosttest.NoError(t, os.MkdirAll(filepath.Join(n.root, "etc/nova"), 0o755))
	hosttest.NoError(t, os.WriteFile(filepath.Join(n.root, "etc/nova/nova.conf"), []byte(conf), 0o640))
	return n
}

// shell runs a script in the machine's root.
func (n node) shell(script string) {
	n.t.Helper()
	run(n.t, 0, "", "sh", "-euc", "cd \"$0\"\n"+script, n.root)
}

// writes runs a command that writes metrics, and returns their file.
func (n node) writes(status int, command string) (file string) {
	n.t.Helper()
	file = filepath.Join(n.collector, "gpustack-"+strings.ReplaceAll(command, " ", "-")+".prom")
	run(n.t, status, "", "env", append(append(slices.Clone(n.env), gpustack), append(strings.Fields(command), "--root", n.root, "--metrics", file)...)...)
	return file
}

// lastRun is the line that says when a command completed.
var lastRun = regexp.MustCompile(`(?m)^(gpustack_last_run_timestamp_seconds\{.*\}) \d+$`)

// silent has metrics say that their command completed a while ago, which is all that a timer leaves
// that no longer runs.
func (n node) silent(file string, ago time.Duration) {
	n.t.Helper()
	text := hosttest.Read(n.t, file)
	if n := len(lastRun.FindAllString(text, -1)); n != 1 {
		panic(fmt.Sprintf("%s has %d times", file, n))
	}
	text = lastRun.ReplaceAllString(text, fmt.Sprintf("$1 %d", time.Now().Add(-ago).Unix()))
	hosttest.NoError(n.t, os.WriteFile(file, []byte(text), 0o644))
}

// stale adds a row that is taken by an instance that does not exist.
func stale(t testing.TB) {
	t.Helper()
	cell := database.Cell1
	gpu1 := cell.Compute(t, "gpu1")
	cell.Card(t, gpu1, "0000:84:00.0", "allocated", db.UUID(1))
}
