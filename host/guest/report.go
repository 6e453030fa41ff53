package guest

import (
	"time"

	"gpustack/host/pci"
)

// Schema is the form of the reports that this package makes and reads.
const Schema = 1

// Report is what a host shows of its guests, in the form that docs/json.md describes.
// A list is nil where nothing was found and not everything could be looked at.
type Report struct {
	Schema int `json:"schema"`
	// NovaHost is the host as nova-compute's option "host" has it: the name of its
	// rows in Nova's database.
	NovaHost     *string       `json:"nova_host"`
	NovaHostFrom *string       `json:"nova_host_from"` // a file, or "hostname"
	Hostname     *string       `json:"hostname"`
	MachineID    *string       `json:"machine_id"`
	BootID       *string       `json:"boot_id"`
	Collected    time.Time     `json:"collected"`
	Booted       *time.Time    `json:"booted"`
	Complete     bool          `json:"complete"` // every source was read
	NovaCompute  []NovaCompute `json:"nova_compute"`
	Holders      []Holder      `json:"holders"`
	Guests       []Guest       `json:"guests"`
	Domains      []Domain      `json:"domains"`
	Sources      []Source      `json:"sources"`
}

// NovaCompute is a process of nova-compute, of whatever container.
type NovaCompute struct {
	PID     int        `json:"pid"`
	Started *time.Time `json:"started"`
	Command string     `json:"command"` // its arguments up to its name
}

// Holder is a process that has a VFIO group or device open, once for each.
type Holder struct {
	PID       int           `json:"pid"`
	Command   string        `json:"command"` // as the kernel names the process
	UUID      *string       `json:"uuid"`    // of its guest, if it is one's
	Name      *string       `json:"name"`
	Group     *int          `json:"group"`
	Device    *string       `json:"device"`    // vfio0, where it was opened past its group
	Functions []pci.Address `json:"functions"` // nil where they cannot be told
	Asked     []pci.Address `json:"asked"`     // by the process's arguments
}

// Guest is a process that runs a guest, whether it holds functions or not.
type Guest struct {
	PID     int           `json:"pid"`
	Command string        `json:"command"`
	UUID    *string       `json:"uuid"`
	Name    *string       `json:"name"`
	Started *time.Time    `json:"started"`
	Asked   []pci.Address `json:"asked"`
}

// Domain is a guest that libvirt knows.
type Domain struct {
	UUID      string        `json:"uuid"`
	Name      string        `json:"name"`
	Running   bool          `json:"running"` // libvirt keeps a running state of it
	Functions []pci.Address `json:"functions"`
	Files     []string      `json:"files"` // that tell of it
}

// Source is a part of the machine that a report rests on.
type Source struct {
	Name   string `json:"name"`
	State  State  `json:"state"`
	Detail string `json:"detail"` // what was read, or why it was not
}

// State tells what became of looking at a source.
type State string

// A source is read whole or it is not.
const (
	Read       State = "read"
	Absent     State = "absent"
	Unreadable State = "unreadable"
)

// The sources of a report, in their order.
const (
	sourceProcesses = "processes"
	sourceVFIO      = "vfio"
	sourceGroups    = "groups"
	sourceDomains   = "domains"
	sourceNovaConf  = "nova.conf"
	sourceHostname  = "hostname"
	sourceMachineID = "machine_id"
	sourceBootID    = "boot_id"
	sourceBootTime  = "boot_time"
)

func sourceNames() []string {
	return []string{
		sourceProcesses, sourceVFIO, sourceGroups, sourceDomains, sourceNovaConf,
		sourceHostname, sourceMachineID, sourceBootID, sourceBootTime,
	}
}

// Unread returns the sources that were not read.
func (r Report) Unread() []Source {
	var unread []Source
	for _, s := range r.Sources {
		if s.State != Read {
			unread = append(unread, s)
		}
	}
	return unread
}
