// Package evidence writes what compute hosts report of their guests, for tests whose
// hosts have no guests.
package evidence

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpustack/host/guest"
	"gpustack/host/pci"
)

// Report is a complete report of a host, of now: nova-compute has been running for
// twenty minutes, and there are no guests. Changes make it another.
func Report(host string, changes ...func(*guest.Report)) guest.Report {
	now := time.Now().UTC()
	booted, started := now.Add(-100*time.Hour), now.Add(-20*time.Minute)
	id := strings.Repeat("0", 31) + host[len(host)-1:]
	r := guest.Report{
		Schema: guest.Schema, NovaHost: &host, NovaHostFrom: &host, Hostname: &host, MachineID: &id, BootID: &id, Collected: now, Booted: &booted, Complete: true,
		NovaCompute: []guest.NovaCompute{{PID: 1, Started: &started, Command: "nova-compute"}}, Holders: []guest.Holder{}, Guests: []guest.Guest{},
		Domains: []guest.Domain{},
	}
	for _, name := range []string{"processes", "vfio", "groups", "domains", "nova.conf", "hostname", "machine_id", "boot_id", "boot_time"} {
		r.Sources = append(r.Sources, guest.Source{Name: name, State: guest.Read})
	}
	for _, change := range changes {
		change(&r)
	}
	return r
}

// Stopped is a host without nova-compute.
func Stopped(r *guest.Report) {
	r.NovaCompute = []guest.NovaCompute{}
}

// RunningFor is a host whose nova-compute was started a while ago.
func RunningFor(ago time.Duration) func(*guest.Report) {
	return func(r *guest.Report) {
		started := r.Collected.Add(-ago)
		for k := range r.NovaCompute {
			r.NovaCompute[k].Started = &started
		}
	}
}

// Holds is a host with a guest that has a device.
func Holds(t testing.TB, address, uuid string) func(*guest.Report) {
	t.Helper()
	a, err := pci.ParseAddress(address)
	if err != nil {
		t.Fatal(err)
	}
	return func(r *guest.Report) {
		group := 0
		r.Holders = append(r.Holders, guest.Holder{PID: 7, Command: "qemu-system-x86", UUID: &uuid, Group: &group, Functions: []pci.Address{a},
			Asked: []pci.Address{}})
		r.Guests = append(r.Guests, guest.Guest{PID: 7, Command: "qemu-system-x86_64", UUID: &uuid, Asked: []pci.Address{a}})
	}
}

// Defines is a host whose libvirt has a domain defined that has a device and does not run, as a
// resize leaves it on its source.
func Defines(t testing.TB, address, uuid string) func(*guest.Report) {
	t.Helper()
	a, err := pci.ParseAddress(address)
	if err != nil {
		t.Fatal(err)
	}
	return func(r *guest.Report) {
		r.Domains = append(r.Domains, guest.Domain{UUID: uuid, Name: "instance-00000001", Functions: []pci.Address{a},
			Files: []string{"/etc/libvirt/qemu/instance-00000001.xml"}})
	}
}

// Write writes a report as host guests prints it, and returns the file.
func Write(t testing.TB, r guest.Report) string {
	t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), *r.NovaHost+".json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
