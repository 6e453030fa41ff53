// Package evidence writes what compute hosts report of their guests, for tests whose
// hosts have no guests.
package evidence

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gpustack/host/document"
	"gpustack/host/guest"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
)

// Report is a complete report of a host, of now and without a token: its clock is synchronized,
// nova-compute has been running for twenty minutes, and there are no guests and no virtual
// functions. Changes make it another.
//
// Without a token such a report proves nothing about rows that changed within the last 32 seconds.
func Report(host string, changes ...func(*guest.Report)) guest.Report {
	now := time.Now().UTC()
	booted := now.Add(-100 * time.Hour)
	id := fmt.Sprintf("%032x", host[len(host)-1])
	r := guest.Report{
		Schema: guest.Schema, NovaHost: &host, NovaHostFrom: &host, Hostname: &host, MachineID: &id, BootID: &id, Collected: now, Booted: &booted, Complete: true,
		NovaCompute: []guest.NovaCompute{{PID: 1, Command: "nova-compute"}}, Holders: []guest.Holder{}, Guests: []guest.Guest{},
		Domains: []guest.Domain{}, VirtualFunctions: []guest.PhysicalFunction{}, Clock: &guest.Clock{Synchronized: true, MaxErrorUS: 1000},
	}
	for _, name := range []string{"processes", "vfio", "groups", "domains", "nova.conf", "hostname", "machine_id", "boot_id", "boot_time", "sriov", "vdpa"} {
		r.Sources = append(r.Sources, guest.Source{Name: name, State: guest.Read})
	}
	RunningFor(20 * time.Minute)(&r)
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
		started, age := r.Collected.Add(-ago), int(ago/time.Second)
		for k := range r.NovaCompute {
			r.NovaCompute[k].Started, r.NovaCompute[k].AgeSeconds = &started, &age
		}
	}
}

// Token is a report that was made with a token of the database's time.
func Token(token string) func(*guest.Report) {
	return func(r *guest.Report) { r.Token = &token }
}

// ClockAhead is a host whose clock is ahead of the database's, behind it if ahead is negative, and
// synchronized all the same, as far as its kernel can tell.
func ClockAhead(ahead time.Duration) func(*guest.Report) {
	return func(r *guest.Report) {
		r.Collected = r.Collected.Add(ahead)
		times := []**time.Time{&r.Booted}
		for k := range r.NovaCompute {
			times = append(times, &r.NovaCompute[k].Started)
		}
		for k := range r.Guests {
			times = append(times, &r.Guests[k].Started)
		}
		for _, t := range times {
			if *t != nil {
				later := (*t).Add(ahead)
				*t = &later
			}
		}
	}
}

// VFs is a host with a physical function that has virtual functions.
func VFs(t testing.TB, pf string, vfs ...string) func(*guest.Report) {
	t.Helper()
	f := guest.PhysicalFunction{Address: hosttest.Address(t, pf), Functions: []pci.Address{}}
	for _, vf := range vfs {
		f.Functions = append(f.Functions, hosttest.Address(t, vf))
	}
	return func(r *guest.Report) { r.VirtualFunctions = append(r.VirtualFunctions, f) }
}

// Holds is a host with a guest that has a device.
func Holds(t testing.TB, function, uuid string) func(*guest.Report) {
	t.Helper()
	a := hosttest.Address(t, function)
	return func(r *guest.Report) {
		group := 0
		r.Holders = append(r.Holders, guest.Holder{PID: 7, Command: "qemu-system-x86", UUID: &uuid, Group: &group, Functions: []pci.Address{a},
			Asked: []pci.Address{}})
		r.Guests = append(r.Guests, guest.Guest{PID: 7, Command: "qemu-system-x86_64", UUID: &uuid, Asked: []pci.Address{a}})
	}
}

// Defines is a host whose libvirt has a domain defined that has a device and does not run, as a
// resize leaves it on its source.
func Defines(t testing.TB, function, uuid string) func(*guest.Report) {
	t.Helper()
	a := hosttest.Address(t, function)
	return func(r *guest.Report) {
		r.Domains = append(r.Domains, guest.Domain{UUID: uuid, Name: "instance-00000001", Functions: []pci.Address{a},
			Files: []string{"/etc/libvirt/qemu/instance-00000001.xml"}})
	}
}

// Printed returns a report as host guests prints it.
func Printed(r guest.Report) ([]byte, error) {
	return json.Marshal(struct {
		Kind document.Kind `json:"kind"`
		guest.Report
	}{document.HostGuests, r})
}

// Write writes a report as host guests prints it, and returns the file.
func Write(t testing.TB, r guest.Report) string {
	t.Helper()
	text, err := Printed(r)
	hosttest.NoError(t, err)
	file := filepath.Join(t.TempDir(), *r.NovaHost+".json")
	hosttest.NoError(t, os.WriteFile(file, text, 0o600))
	return file
}
