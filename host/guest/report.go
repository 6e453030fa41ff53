package guest

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"gpustack/host/pci"
)

// Schema is the version of the reports that this package makes and reads.
const Schema = 1

// Report is a guest report: the guests of one host and the functions they use, in the form that
// docs/json.md describes. A list is nil if it found nothing and not all of its sources could be
// read.
type Report struct {
	Schema int `json:"schema"`
	// NovaHost is the name of the host in Nova's database, from nova-compute's option "host".
	NovaHost     *string    `json:"nova_host"`
	NovaHostFrom *string    `json:"nova_host_from"` // a file, or "hostname"
	Hostname     *string    `json:"host"`
	MachineID    *string    `json:"machine_id"`
	BootID       *string    `json:"boot_id"`
	Collected    time.Time  `json:"time"` // by the host's clock
	Booted       *time.Time `json:"booted"`
	Clock        *Clock     `json:"clock" old:"lacks"` // nil: unknown
	// Token is a token of the database's time (NewToken), which the report was made after; nil:
	// none was given.
	Token       *string       `json:"token" old:"lacks"`
	Complete    bool          `json:"complete"` // every source was read
	NovaCompute []NovaCompute `json:"nova_compute" null:"zero"`
	Holders     []Holder      `json:"holders" null:"zero"`
	Guests      []Guest       `json:"guests" null:"zero"`
	Domains     []Domain      `json:"domains" null:"zero"`
	// VirtualFunctions lists the physical functions that have virtual functions; nil: unknown.
	VirtualFunctions []PhysicalFunction `json:"virtual_functions" null:"zero" old:"lacks"`
	Sources          []Source           `json:"sources"`
}

// Clock is the state of the host's clock when the report was made (adjtimex(2)).
type Clock struct {
	Synchronized bool `json:"synchronized"`
	// MaxErrorUS is the largest difference from the true time in microseconds, as the program that
	// synchronizes the clock has set it.
	MaxErrorUS int64 `json:"max_error_us"`
}

// NovaCompute is a process of nova-compute, in a container or not.
type NovaCompute struct {
	PID     int        `json:"pid"`
	Started *time.Time `json:"started"`
	Command string     `json:"command"` // its arguments up to the name of nova-compute
	// AgeSeconds is how long it had been running, by the time since boot, rounded down; nil:
	// unknown.
	AgeSeconds *int `json:"age_seconds" old:"lacks"`
}

// Holder is a process that has a VFIO group, a VFIO device or a vDPA device open. A process with
// several of them is listed once for each.
type Holder struct {
	PID       int           `json:"pid"`
	Command   string        `json:"command"` // as the kernel names the process
	UUID      *string       `json:"uuid"`    // of its guest; nil: it runs none
	Name      *string       `json:"name"`
	Group     *int          `json:"iommu_group"`
	Device    *string       `json:"vfio_device"`             // "vfio0", if opened without its group
	VDPA      *string       `json:"vdpa_device" old:"lacks"` // "vhost-vdpa-0"
	Functions []pci.Address `json:"functions" null:"zero"`   // nil: unknown
	Asked     []pci.Address `json:"asked"`                   // named in the process's arguments
}

// Guest is a process that runs a guest, with or without functions of the host.
type Guest struct {
	PID     int           `json:"pid"`
	Command string        `json:"command"`
	UUID    *string       `json:"uuid"`
	Name    *string       `json:"name"`
	Started *time.Time    `json:"started"`
	Asked   []pci.Address `json:"asked"`
}

// Domain is a guest that libvirt has defined or runs.
type Domain struct {
	UUID      string        `json:"uuid"`
	Name      string        `json:"name"`
	Running   bool          `json:"running"` // libvirt keeps a running state of it
	Functions []pci.Address `json:"functions"`
	Files     []string      `json:"files"` // its definition and state
}

// PhysicalFunction is a physical function with its virtual functions.
type PhysicalFunction struct {
	Address   pci.Address   `json:"address"`
	Functions []pci.Address `json:"functions"`
}

// Source is a part of the machine that a report is based on.
type Source struct {
	Name   string `json:"name"`
	State  State  `json:"state"`
	Detail string `json:"detail"` // what was read, or why it was not
	Denied bool   `json:"-"`      // a lack of permission has prevented reading it
}

// Err returns why a source was not read whole, or nil. It is [fs.ErrPermission] for errors.Is if a
// lack of permission has prevented that.
func (s Source) Err() error {
	switch err := errors.New(s.Name + ": " + s.Detail); {
	case s.State == Read:
		return nil
	case s.Denied:
		return denied{err}
	default:
		return err
	}
}

// denied is an error from a lack of permission.
type denied struct{ error }

// Is implements what errors.Is calls.
func (denied) Is(target error) bool { return target == fs.ErrPermission }

// State is how reading a source went.
type State string

// States of sources. A source that was read in part is Unreadable.
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
	sourceSRIOV     = "sriov"
	sourceVDPA      = "vdpa"
)

func sourceNames() []string {
	return append(oldSourceNames(), sourceSRIOV, sourceVDPA)
}

// oldSourceNames returns the sources of reports up to commit 47ed7fd, which also lack the fields
// with the tag "old".
func oldSourceNames() []string {
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

// Users returns what uses each function: "guest UUID", or "pid PID (COMMAND)" of a process that is
// not known to run a guest. Functions without a user are not in it.
func (r Report) Users() map[pci.Address]string {
	users := map[pci.Address]string{}
	for _, d := range r.Domains {
		for _, a := range d.Functions {
			users[a] = "guest " + d.UUID
		}
	}
	for _, h := range r.Holders {
		for _, a := range h.Functions {
			if users[a] == "" {
				users[a] = fmt.Sprintf("pid %d (%s)", h.PID, h.Command)
			}
			if h.UUID != nil {
				users[a] = "guest " + *h.UUID
			}
		}
	}
	return users
}
