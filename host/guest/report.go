package guest

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"gpustack/host"
	"gpustack/host/pci"
)

// Schema is the version of the reports that this package makes and reads.
const Schema = 1

// Report is a guest report: the guests of one host and the functions they use, in the form that
// docs/json.md describes. A list is nil if it found nothing and not all of its sources could be
// read.
type Report struct {
	Schema int `json:"schema"`
	// the host's name in Nova: the option host of nova.conf, by default the hostname
	NovaHost     *string    `json:"nova_host"`
	NovaHostFrom *string    `json:"nova_host_from"` // the file that sets it, or "hostname"
	Hostname     *string    `json:"host"`
	MachineID    *string    `json:"machine_id"` // the content of /etc/machine-id
	BootID       *string    `json:"boot_id"`    // different after each boot
	Collected    time.Time  `json:"time"`       // when the report was made, by the host's clock
	Booted       *time.Time `json:"booted"`     // when the machine was booted
	// the state of the host's clock; nil unless the report was made on the running machine
	Clock *Clock `json:"clock"`
	// the token of --token: a time of the database that the report was made after; nil without one
	Token *string `json:"token"`
	// Complete is whether every source was read. An incomplete report does not prove that anything
	// is absent. A list is null if nothing was found, but not all its sources could be read; only
	// an empty list means that there is none.
	Complete bool `json:"complete"`
	// processes of nova-compute, including those in containers
	NovaCompute []NovaCompute `json:"nova_compute" null:"zero"`
	// Holders are the processes that have a VFIO group, a VFIO device or a vDPA device open, one
	// element for each group or device.
	Holders []Holder `json:"holders" null:"zero"`
	// QEMU processes, with or without functions of the host
	Guests []Guest `json:"guests" null:"zero"`
	// libvirt's domains, by UUID
	Domains []Domain `json:"domains" null:"zero"`
	// the physical functions that have virtual functions
	VirtualFunctions []PhysicalFunction `json:"virtual_functions" null:"zero"`
	// network functions that a guest may use, as one of its network interfaces could not be mapped
	// to its function; nil for none
	Doubtful *Doubtful `json:"doubtful"`
	// the parts of the machine that the report is based on
	Sources []Source `json:"sources"`
}

// Doubtful are functions that are neither proved to be in use nor not to be.
type Doubtful struct {
	Functions []pci.Address `json:"functions"` // all network functions of the host, by their class
	Because   []string      `json:"because"`   // the interfaces, and which domain names them
}

// Clock is the state of the host's clock when the report was made (adjtimex(2)).
type Clock struct {
	// whether a program synchronizes the clock, as timedatectl shows it
	Synchronized bool `json:"synchronized"`
	// the largest difference from the true time, as the program that synchronizes the clock has set
	// it
	MaxErrorUS int64 `json:"max_error_us"`
}

// NovaCompute is a process of nova-compute, in a container or not.
type NovaCompute struct {
	PID     int        `json:"pid"`     // the process id in the host's PID namespace
	Started *time.Time `json:"started"` // when the process was started
	Command string     `json:"command"` // its arguments up to the name of nova-compute
	// how long it had been running, by the time since boot, rounded down; nil if unknown
	AgeSeconds *int `json:"age_seconds"`
}

// Holder is a process that has a VFIO group, a VFIO device or a vDPA device open. A process with
// several of them is listed once for each.
type Holder struct {
	PID     int    `json:"pid"`     // the process id
	Command string `json:"command"` // as the kernel names the process
	// the guest's UUID; nil if the process runs none
	UUID *string `json:"uuid"`
	// the guest's name; nil if the process runs none
	Name *string `json:"name"`
	// the VFIO group that is open, which has the number of the IOMMU group
	Group *int `json:"iommu_group"`
	// the VFIO device that is open without its group: "vfio0"
	Device *string `json:"vfio_device"`
	// the vDPA device that is open: "vhost-vdpa-0"
	VDPA      *string       `json:"vdpa_device"`
	Functions []pci.Address `json:"functions" null:"zero"` // its functions; nil if unknown
	// the functions in the process's arguments
	Asked []pci.Address `json:"asked"`
}

// Guest is a process that runs a guest, with or without functions of the host.
type Guest struct {
	PID     int           `json:"pid"`     // the process id
	Command string        `json:"command"` // as the kernel names the process
	UUID    *string       `json:"uuid"`    // the guest's UUID; nil if the arguments do not have one
	Name    *string       `json:"name"`    // the guest's name; nil if the arguments do not have one
	Started *time.Time    `json:"started"` // when the process was started
	Asked   []pci.Address `json:"asked"`   // the functions in the process's arguments
}

// Domain is a guest that libvirt has defined or runs.
type Domain struct {
	UUID string `json:"uuid"` // the guest's UUID
	Name string `json:"name"` // the guest's name in libvirt
	// whether libvirt has a state file for it as a running domain
	Running   bool          `json:"running"`
	Functions []pci.Address `json:"functions"` // its functions
	// its definition and state; /proc/PID/root is the root directory of a container
	Files []string `json:"files"`
}

// PhysicalFunction is a physical function with its virtual functions.
type PhysicalFunction struct {
	Address   pci.Address   `json:"address"`   // the physical function
	Functions []pci.Address `json:"functions"` // its virtual functions
}

// Source is a part of the machine that a report is based on.
type Source struct {
	// "processes", "vfio", "groups", "domains", "nova.conf", "hostname", "machine_id", "boot_id",
	// "boot_time", "sriov" or "vdpa"
	Name   string `json:"name"`
	State  State  `json:"state"`  // whether it was read
	Detail string `json:"detail"` // what was read, or why it could not be read, for people
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
	return []string{
		sourceProcesses, sourceVFIO, sourceGroups, sourceDomains, sourceNovaConf,
		sourceHostname, sourceMachineID, sourceBootID, sourceBootTime, sourceSRIOV, sourceVDPA,
	}
}

// Unread returns the sources that were not read.
func (r Report) Unread() []Source {
	return host.Filter(r.Sources, func(s Source) bool { return s.State != Read })
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
