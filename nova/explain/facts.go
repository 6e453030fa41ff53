package explain

import (
	"encoding/json"

	"gpustack/nova"
	"gpustack/nova/cloud"
	"gpustack/nova/pools"
)

// Facts are what was read about a cloud, and the guest to build.
type Facts struct {
	Release  nova.Release
	Flavor   cloud.Flavor // with its extra specs
	Projects []string     // that may use the flavor, if it is private; nil: not read
	Image    *cloud.Image // nil: not given
	Volume   bool         // the guest boots from a volume, so that the host needs no root disk
	Group    *ServerGroup // of the server; nil for none, and for a flavor
	Zone     string       // the availability zone that is requested; "" for none
	Project  string       // of the guest; "" if unknown

	Sides      []nova.Side // nova.conf of controllers and compute nodes; none: not given
	Hosts      []Host
	Aggregates []cloud.Aggregate
	Placement  *Placement // nil: not read
	Databases  bool       // whether Nova's databases were read
	Answer     *Answer    // of Nova's own code; nil if it was not asked, or did not answer

	// Unread are the sources that were not read although the command tries to, with the reason.
	Unread map[Source]string
	// Omitted are the links that cannot be judged because a part of the guest could not be read.
	Omitted []Omission
}

// Source is something that facts are read from.
type Source string

// Sources.
const (
	Services   Source = "compute services"
	Nodes      Source = "hypervisors"
	Aggregates Source = "host aggregates"
	Groups     Source = "server groups"
	Candidates Source = "Placement"
	Database   Source = "database"
	Scheduler  Source = "code of nova-scheduler"
)

// Host is a compute node.
type Host struct {
	Name     string                // of nova-compute
	Node     string                // hypervisor_hostname; "" if unknown
	Provider string                // its id in Placement; "" if unknown
	Service  *cloud.ComputeService // nil: not read
	Devices  *nova.Host            // its inventory; nil: not given
	Stock    *Stock                // nil: no database that was read has the host
}

// ServerGroup is the server group of a server.
type ServerGroup struct {
	Name    string         `json:"name"`
	Policy  string         `json:"policy"`
	Most    int            `json:"most"`    // max_server_per_host of anti-affinity; 0 for the default, 1
	Members map[string]int `json:"members"` // by the host of nova-compute: members of the group other than the server
}

// Stock is what Nova's database has of a compute node.
type Stock struct {
	Rows  []Row        // of pci_devices
	Pools []pools.Pool // of compute_nodes.pci_stats; nil: not readable
	Node  *Node        // nil: not readable
}

// Node is what filters of nova-scheduler read of a row of compute_nodes, as the columns have it
// (nova/scheduler/host_manager.py, _update_from_compute_node). JSON that is NULL is nil.
type Node struct {
	PCIStats          json.RawMessage `json:"pci_stats"`
	Topology          json.RawMessage `json:"numa_topology"`
	Supported         json.RawMessage `json:"supported_instances"`
	CPURatio          float64         `json:"cpu_allocation_ratio"`
	RAMRatio          float64         `json:"ram_allocation_ratio"`
	Hypervisor        string          `json:"hypervisor_type"`
	HypervisorVersion int             `json:"hypervisor_version"`
	CPUInfo           string          `json:"cpu_info"`
}

// Row is a live row of pci_devices.
type Row struct {
	Address, Vendor, Product, Type, Status string

	NUMA     *int // nil for none
	Instance string
	Verdict  string // of repair-migration, where it is not legitimate; "" otherwise
	Reason   string // of the verdict
}

// Placement is what Placement has answered.
type Placement struct {
	Steps []Step
	// Shared are the providers that can serve the request with shared CPUs instead of pinned ones,
	// which nova-scheduler accepts as well; nil if it does not ask for them.
	Shared  map[string]bool
	Skipped []string                              // parts of the request that were not asked for
	Details map[string]map[string]cloud.Inventory // of some hosts that a step excludes, by provider and class
	Devices []Devices                             // empty if Placement does not schedule devices
}

// Step is one of several queries, each of which asks for more than the one before.
type Step struct {
	Ask
	Missing string          // the name that Placement does not have; "" if it has all
	Roots   map[string]bool // the providers that can serve all that was asked so far
}

// Devices are the free devices of a resource class.
type Devices struct {
	DeviceAsk
	Missing bool           // Placement does not have the resource class or a trait
	Free    map[string]int // by root provider, counted up to the number that is wanted
	Detail  map[string]cloud.Inventory
	Tree    map[string]int // number of providers of PCI devices, by root provider
}
