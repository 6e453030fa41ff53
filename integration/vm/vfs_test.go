package vm

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpustack/host"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/host/rdma"
	"gpustack/host/steps"
	"gpustack/integration/vm/agent"
)

// aboutVFs is what the steps of a boot change of a function with SR-IOV: of the one that QEMU has,
// an NVMe controller. Its VFs come and go as those of an adapter do; identity they have none.
type aboutVFs struct {
	Count, Autoprobe string
	Drivers          map[string]string // of the VFs
	Overrides        map[string]string
}

func (m machine) aboutVFs(card string) aboutVFs {
	m.t.Helper()
	const script = `
cd /sys/bus/pci/devices/$1
cat sriov_numvfs sriov_drivers_autoprobe
for v in virtfn*; do
	[ -e $v ] || continue
	driver=$(readlink $v/driver) || driver=
	echo "$(basename $(readlink $v)) ${driver##*/} $(cat $v/driver_override)"
done
`
	lines := strings.Split(strings.TrimSpace(m.run("sh", "-ec", script, "sh", card)), "\n")
	if len(lines) < 2 {
		m.t.Fatalf("%q", lines)
	}
	about := aboutVFs{Count: lines[0], Autoprobe: lines[1], Drivers: map[string]string{}, Overrides: map[string]string{}}
	for _, line := range lines[2:] {
		words := strings.Split(line, " ")
		about.Drivers[words[0]], about.Overrides[words[0]] = words[1], words[2]
	}
	return about
}

// recordVFs records VFs of a card for guests, as rdma prepare records those of an adapter, and
// returns what a boot makes of them.
func (m machine) recordVFs(card string, n int) aboutVFs {
	m.t.Helper()
	number := func(file string) int {
		v, err := strconv.Atoi(strings.TrimSpace(m.run("cat", path.Join("/sys/bus/pci/devices", card, file))))
		hosttest.NoError(m.t, err)
		return v
	}
	address := func(text string) pci.Address {
		return hosttest.Address(m.t, text)
	}
	pf := m.scan("--all").device(m.t, strings.TrimPrefix(card, "0000:"))
	adapter := rdma.Prepared{
		Address: pf.Address, VendorID: *pf.VendorID, ProductID: *pf.ProductID, Driver: "nvme", Use: rdma.ForGuests, Path: []pci.Address{},
	}
	place := path.Dir(strings.TrimSpace(m.run("readlink", "/sys/bus/pci/devices/"+card)))
	for _, bridge := range addresses.FindAllString(place, -1) {
		adapter.Path = append(adapter.Path, address(bridge))
	}
	wanted := aboutVFs{Count: fmt.Sprint(n), Autoprobe: "0", Drivers: map[string]string{}, Overrides: map[string]string{}}
	offset, stride := number("sriov_offset"), number("sriov_stride")
	for i := range n {
		// On this bus there is nothing else: function and slot count on from the card's.
		at := offset + i*stride
		vf := fmt.Sprintf("%s:%02x.%d", card[:len("0000:00")], at>>3, at&7)
		adapter.VFs = append(adapter.VFs, rdma.PreparedVF{Index: i, Address: address(vf), ProductID: *pf.ProductID, Driver: vfioPCI})
		wanted.Drivers[vf], wanted.Overrides[vf] = vfioPCI, vfioPCI
	}
	text, err := rdma.Record{Schema: host.Schema, Kind: rdma.RecordKind, Adapters: []rdma.Prepared{adapter}, Files: []rdma.File{}}.Text()
	hosttest.NoError(m.t, err)
	m.write(rdma.RecordFile, string(text))
	return wanted
}

var addresses = regexp.MustCompile(`[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]`)

// steps returns the outcome of each step of this boot.
func (m machine) steps() map[string]steps.Status {
	m.t.Helper()
	var result steps.Result
	hosttest.NoError(m.t, json.Unmarshal([]byte(m.run("cat", steps.ResultFile)), &result))
	if result.BootID != m.boot() || result.Ended == nil {
		m.t.Errorf("boot %s, ended %v", result.BootID, result.Ended)
	}
	outcomes := map[string]steps.Status{}
	for _, s := range result.Steps {
		outcomes[s.ID] = s.Status
	}
	return outcomes
}

// stepsOfTheBoot: gpustack boot creates recorded VFs, which the driver of their card never has,
// binds them to vfio-pci by address, and changes nothing when it runs again. Killed at any moment,
// it is completed by the next run. With the record gone, all is as before, unless a VF is in use.
func stepsOfTheBoot(m machine) {
	const vfCard = "0000:02:00.0"
	m.run("modprobe", "vfio_pci")
	m.run("modprobe", "vfio_iommu_type1")
	m.run("sh", "-ec", "echo 0 >/sys/bus/pci/devices/$1/sriov_numvfs", "sh", vfCard)
	m.driverIs(vfCard, "nvme")
	first := m.aboutVFs(vfCard)
	wanted := m.recordVFs(vfCard, 2)
	vfs := slices.Sorted(maps.Keys(wanted.Drivers))
	is := func(want aboutVFs, when string) {
		m.t.Helper()
		if diff := cmp.Diff(want, m.aboutVFs(vfCard)); diff != "" {
			m.t.Fatalf("%s (-want +got):\n%s", when, diff)
		}
	}
	boot := func(outcome steps.Status, when string) time.Duration {
		m.t.Helper()
		reply := m.try("gpustack", "boot")
		if reply.Status != 0 {
			m.t.Fatalf("%s: exit status %d\n%s%s", when, reply.Status, reply.Stdout, reply.Stderr)
		}
		is(wanted, when)
		want := map[string]steps.Status{"vfs " + vfCard: outcome}
		for _, vf := range vfs {
			want["driver "+vf] = outcome
		}
		got := m.steps()
		if outcome == "" { // of runs that were killed, some steps are left to do
			for id, status := range got {
				if status == steps.Done || status == steps.Unchanged {
					want[id] = status
				}
			}
		}
		hosttest.EqualIn(m.t, when+": steps", want, got)
		return reply.Took
	}
	revert := func(when string) {
		m.t.Helper()
		m.run("busybox", "rm", rdma.RecordFile)
		m.run("gpustack", "boot", "--revert")
		is(first, when)
	}

	printed := len(m.Console())
	takes := boot(steps.Done, "at first")
	m.t.Logf("gpustack boot takes %.1f s", takes.Seconds())
	for _, vf := range vfs {
		if strings.Contains(m.Console()[printed:], "pci function "+vf) {
			m.t.Errorf("nvme has probed %s, which it must never see", vf)
		}
		hosttest.EqualIn(m.t, vf, taken, m.take(vf))
	}
	boot(steps.Unchanged, "again")

	// A guest has a VF: whether the record stays or goes, the VF does not.
	release := m.hold("/dev/vfio/" + m.group(vfs[1]))
	inUse := "VF " + vfs[1] + " of " + vfCard + " is in use: assigned to guest"
	boot(steps.Unchanged, "again, with a VF in use")
	m.recordVFs(vfCard, 1)
	if reply := m.try("gpustack", "boot"); reply.Status != 1 || !strings.Contains(reply.Stdout, inUse) {
		m.t.Errorf("fewer VFs: exit status %d\n%s%s", reply.Status, reply.Stdout, reply.Stderr)
	}
	is(wanted, "fewer VFs, while one is in use")
	m.run("busybox", "mv", rdma.RecordFile, rdma.RecordFile+".away")
	m.refused(inUse, "boot", "--revert")
	is(wanted, "reverted while a VF is in use")
	release()
	m.recordVFs(vfCard, 2)
	revert("reverted")

	const rounds = 2
	for i := range rounds {
		m.recordVFs(vfCard, 2)
		moment := takes * time.Duration(2*i+1) / (2 * rounds)
		when := fmt.Sprintf("killed after %.2f s", moment.Seconds())
		reply, err := m.Ask(m.t.Context(), agent.Request{Argv: []string{"gpustack", "boot"}, Kill: moment})
		hosttest.NoError(m.t, err)
		m.t.Logf("%s: exit status %d", when, reply.Status)
		boot("", when)
		revert(when + ", and reverted")
	}
}

// driverIs waits until a driver has a function.
func (m machine) driverIs(address, driver string) {
	m.t.Helper()
	m.run("sh", "-ec", `modprobe $2; i=0; while [ ! -e /sys/bus/pci/drivers/$2/$1 ]; do [ $i -lt 100 ]; i=$((i+1)); sleep 0.1; done`, "sh", address, driver)
}

// nvmeCard is the function with SR-IOV of the Debian machine.
const nvmeCard = "0000:05:00.0"

// bootUnit records two VFs and installs the unit that makes them at every boot, and one of a daemon
// of libvirt's that notes who had the first VF when it started. It returns the drivers of VFs after
// a boot.
func (m machine) bootUnit() map[string]string {
	m.t.Helper()
	m.run("mkdir", "-p", path.Dir(rdma.RecordFile), path.Dir(steps.WantsFile))
	wanted := m.recordVFs(nvmeCard, 2)
	m.run("install", "-m", "755", "/lab/gpustack", "/usr/local/sbin/gpustack")
	root := hosttest.Lay(m.t, "-- usr/lib/systemd/systemd --\n-- usr/local/sbin/gpustack --\n")
	plan, err := steps.ObserveUnitOf(root, "/lab/gpustack").Put()
	hosttest.NoError(m.t, err)
	for _, c := range plan {
		m.write(c.Name, string(c.After.Content))
	}
	m.write("/etc/systemd/system/virtnodedevd.service", fmt.Sprintf(`[Service]
Type=oneshot
ExecStart=sh -c 'readlink /sys/bus/pci/devices/%s/virtfn1/driver >/run/saw'
[Install]
WantedBy=multi-user.target
`, nvmeCard))
	m.run("chmod", "644", steps.UnitFile, steps.WantsFile, "/etc/systemd/system/virtnodedevd.service")
	m.run("systemctl", "--quiet", "enable", "virtnodedevd.service")
	return wanted.Drivers
}

// bootUnitEnds waits until the unit has ended, after which the daemon starts.
func (m machine) bootUnitEnds() {
	m.t.Helper()
	m.run("sh", "-ec", `i=0; while [ ! -e /run/saw ]; do [ $i -lt 600 ]; i=$((i+1)); sleep 0.2; done`)
}

// bootUnitRan: the unit has made the recorded VFs before those start that give them to guests, and
// changes nothing when it is restarted.
func (m machine) bootUnitRan(count int) {
	m.t.Helper()
	all := func(outcome steps.Status) {
		m.t.Helper()
		steps := m.steps()
		hosttest.EqualIn(m.t, "steps", count, len(steps))
		for id, status := range steps {
			hosttest.EqualIn(m.t, id, outcome, status)
		}
	}
	all(steps.Done)
	if saw := strings.TrimSpace(m.run("cat", "/run/saw")); path.Base(saw) != vfioPCI {
		m.t.Errorf("virtnodedevd saw the driver %q", saw)
	}
	m.run("systemctl", "restart", steps.Unit)
	all(steps.Unchanged)
}

// withoutBootUnit forgets the record and the unit, and reverts what this boot has made of it.
func (m machine) withoutBootUnit() {
	m.t.Helper()
	m.run("rm", rdma.RecordFile)
	m.run("gpustack", "boot", "--revert")
	m.run("systemctl", "--quiet", "disable", "virtnodedevd.service")
	m.run("rm", steps.UnitFile, steps.WantsFile, "/usr/local/sbin/gpustack")
	if about := m.aboutVFs(nvmeCard); about.Count != "0" || about.Autoprobe != "1" {
		m.t.Errorf("reverted: %+v", about)
	}
}
