package startup_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gpustack/host/change"
	"gpustack/host/driver"
	"gpustack/host/gate"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/host/rdma"
	"gpustack/host/startup"
	"gpustack/host/steps"
)

// TestResizedAlone: with the VFs that are created again, nothing is carried out that waits for the
// next boot.
func TestResizedAlone(t *testing.T) {
	t.Parallel()
	k, record := server(t, rdma.ForGuests)
	_, err := k.run()
	hosttest.NoError(t, err)
	k.taken()
	other := record.Adapters[0]
	other.Address, other.VFs = hosttest.Address(t, "0000:0d:00.0"), []rdma.PreparedVF{{Address: hosttest.Address(t, "0000:0d:00.1"), Driver: "vfio-pci"}}
	record.Adapters[0].VFs = record.Adapters[0].VFs[:1]
	record.Adapters, record.Netns = append(record.Adapters, other), rdma.NetnsExclusive
	k.record(&record)
	if err := k.revert(); err != nil {
		t.Error(err)
	}
	if log := k.taken(); len(log) < 7 || log[1] != devices+"sriov_numvfs=1" {
		t.Errorf("%q", log)
	}
	r, err := steps.ReadResult(k.root)
	hosttest.NoError(t, err)
	hosttest.Equal(t, "vfs 0000:0c:00.0 done,identity 0000:0c:00.1 done,driver 0000:0c:00.1 done", strings.Join(statuses(*r), ","))
}

// TestRevertNetns: where containers have network namespaces, the mode stays until the next boot,
// and all else is reverted.
func TestRevertNetns(t *testing.T) {
	t.Parallel()
	k, record := server(t, rdma.ForGuests)
	mode := k.root.Path("/sys/module/ib_core/parameters")
	hosttest.NoError(t, os.MkdirAll(mode, 0o755))
	hosttest.NoError(t, os.WriteFile(mode+"/netns_mode", []byte("Y\n"), 0o600))
	record.Netns = rdma.NetnsExclusive
	k.record(&record)
	k.fail = func(request string) error {
		if strings.HasPrefix(request, "rdma system") {
			return os.WriteFile(mode+"/netns_mode", []byte("N\n"), 0o600)
		}
		return nil
	}
	_, err := k.run()
	hosttest.NoError(t, err)
	k.taken()
	k.record(nil)
	k.fail = func(request string) error {
		if strings.HasPrefix(request, "rdma system") {
			return unix.EBUSY
		}
		return nil
	}
	hosttest.NoError(t, k.revert())
	if log := k.taken(); len(log) != 3 || log[0] != back[0] {
		t.Errorf("%q", log)
	}
}

func permit(k *kernel, record *rdma.Record) error {
	_, err := startup.Permit(k.machine(), record)
	return err
}

// TestAllowedRevert: what --allow lifts of a revert is returned before anything changes. From an
// open entry of the journal the revert honours it, also after the run that wrote it was killed.
func TestAllowedRevert(t *testing.T) {
	t.Parallel()
	k, record := server(t, rdma.ForContainers)
	_, err := k.run()
	hosttest.NoError(t, err)
	const vf = "0000:0c:00.1"
	k.route(vf)
	k.taken()
	// Another GUID: the number of VFs, their use and their drivers are the same.
	record.Adapters[0].VFs[0].NodeGUID = guidOf(t, "0e:42:a1:00:00:0c:00:77")
	const refused = "its VF 0000:0c:00.1 has a network interface in use: ib1 is up"
	hosttest.ContainsIn(t, "without --allow", refused, fmt.Sprint(permit(k, &record)))
	m := k.machine()
	m.Allowed = gate.Allowed{Functions: []pci.Address{hosttest.Address(t, vf)}}
	lifted, err := startup.Permit(m, &record)
	if err != nil || len(lifted) != 1 || lifted[0].Address != hosttest.Address(t, vf) {
		t.Errorf("%v, %v, want %v", lifted, err, vf)
	}
	k.record(&record)
	hosttest.ContainsIn(t, "not recorded", refused, fmt.Sprint(k.revert()))
	if log := k.taken(); len(log) > 0 {
		t.Errorf("%q", log)
	}
	entry, err := json.Marshal(change.Entry{Schema: 1, Kind: "journal entry", ID: 1, Changes: change.KindFiles, Command: "rdma prepare", About: &change.Topic{Subject: change.OfAdapters}, Status: change.Unbuilding, Allowed: lifted})
	k.must(err)
	k.must(os.MkdirAll(k.root.Path(change.Dir+"/journal"), 0o700))
	k.must(os.WriteFile(k.root.Path(change.Dir+"/journal/0001.json"), entry, 0o600))
	hosttest.NoError(t, k.revert())
	hosttest.EqualIn(t, "node GUID", "0e:42:a1:00:00:0c:00:77", k.vfs[0].NodeGUID)
}

// TestReidentified: VFs whose recorded GUIDs changed in the same boot get them, unless one is in
// use: before anything changes, that is known.
func TestReidentified(t *testing.T) {
	t.Parallel()
	k, record := server(t, rdma.ForGuests)
	_, err := k.run()
	hosttest.NoError(t, err)
	k.taken()
	first := k.vfs[0].NodeGUID
	other := guidOf(t, "0e:42:a1:00:00:0c:00:77")
	former := record.Adapters[0].VFs[0].NodeGUID
	record.Adapters[0].VFs[0].NodeGUID = other
	hosttest.NoError(t, permit(k, &record))
	k.record(&record)
	hosttest.NoError(t, k.revert())
	if k.vfs[0].NodeGUID != other.String() || len(k.taken()) != 1 {
		t.Errorf("%+v", k.vfs)
	}
	record.Adapters[0].VFs[0].NodeGUID = former
	k.hold("0000:0c:00.1", 7)
	hosttest.Contains(t, "VF 0000:0c:00.1 of 0000:0c:00.0 is in use", fmt.Sprint(permit(k, &record)))
	k.must(os.RemoveAll(k.root.Path("/proc/7")))
	k.record(&record)
	hosttest.NoError(t, k.revert())
	if k.vfs[0].NodeGUID != first {
		t.Errorf("%+v", k.vfs)
	}
	k.record(nil)
	k.taken()
	hosttest.NoError(t, k.revert())
	hosttest.Equal(t, back, k.taken())
}

// TestByHand: a number of VFs that was changed by hand stays while the record does, and prevents a
// change of the record before anything changes.
func TestByHand(t *testing.T) {
	t.Parallel()
	k, record := server(t, rdma.ForGuests)
	_, err := k.run()
	hosttest.NoError(t, err)
	k.must(k.write(driver.Write{File: "/sys/bus/pci/" + devices + "sriov_numvfs", Value: "5"}))
	k.taken()
	hosttest.NoError(t, permit(k, &record))
	hosttest.NoError(t, k.revert())
	record.Adapters[0].VFs = record.Adapters[0].VFs[:1]
	for _, after := range []*rdma.Record{nil, &record} {
		if err := permit(k, after); !errors.Is(err, startup.ErrChangedSince) {
			t.Error(err)
		}
	}
	if log := k.taken(); len(log) > 0 {
		t.Errorf("%q", log)
	}
}
