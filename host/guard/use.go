package guard

// Use is the type of a use of a function. The code that decides which uses prevent a function from
// leaving the host has an answer for each of Uses. No type says that a need cannot be waived:
// Need.Absolute does.
type Use string

// The types of uses by file systems and disks.
const (
	UseMount          Use = "mount"           // a mounted file system, also through files and layers of others
	UseMountNamespace Use = "mount_namespace" // a file system that is mounted in another mount namespace only
	UseSwap           Use = "swap"
	UseHolder         Use = "holder"      // an active disk above: LVM, md, dm-crypt, multipath, bcache, a loop device
	UsePool           Use = "zfs_pool"    // an imported ZFS pool
	UseTarget         Use = "disk_target" // a disk that LIO or the NVMe target offers
	UseResume         Use = "resume"      // of resume= on the kernel command line
	UseTable          Use = "disk_table"  // a line of fstab or crypttab that is not active now
	UseSignature      Use = "signature"   // content of a disk that nothing uses now
)

// The types of uses by networks.
const (
	UseDefaultRoute        Use = "default_route"
	UseSession             Use = "ssh_session"
	UseAddress             Use = "address"
	UseConfigured          Use = "network_configuration"        // a file that gives an interface an address, which has none now, or puts another interface on it
	UseConfigurationUnread Use = "network_configuration_unread" // a file that may give an interface an address, and cannot be read
	UseUpperLink           Use = "upper_link"                   // an interface above: a bridge, Open vSwitch, a bond, VLAN, macvlan, VRF
	UseNetworkNamespace    Use = "network_namespace"            // an interface in another network namespace
	UseXDP                 Use = "xdp"                          // a program or a socket of XDP
	UseNetconsole          Use = "netconsole"
	UseKdump               Use = "kdump"     // the network of the crash kernel
	UsePTP                 Use = "ptp_clock" // a process that has a PTP clock open, or a service that is to have it
)

// The types of other uses.
const (
	UseConsole           Use = "console"
	UseManagementConsole Use = "management_console"
	UseRDMAFileSystem    Use = "rdma_file_system"
	UseRDMADisk          Use = "rdma_disk"
	UseRDMAProtocol      Use = "rdma_protocol" // sockets of RDS, LNet
	UseRDMAProcess       Use = "rdma_process"  // a process that has a node uverbsN open
	UseSubnetManager     Use = "subnet_manager"
	UseRDMAUnread        Use = "rdma_unread" // the uses of an adapter by RDMA cannot be read
)

// Unread reports whether a use of this type means that it cannot be determined whether there is
// one.
func (u Use) Unread() bool { return u == UseConfigurationUnread || u == UseRDMAUnread }

// Uses returns all types.
func Uses() []Use {
	return []Use{
		UseMount, UseMountNamespace, UseSwap, UseHolder, UsePool, UseTarget, UseResume, UseTable, UseSignature,
		UseDefaultRoute, UseSession, UseAddress, UseConfigured, UseConfigurationUnread, UseUpperLink, UseNetworkNamespace, UseXDP, UseNetconsole, UseKdump, UsePTP,
		UseConsole, UseManagementConsole, UseRDMAFileSystem, UseRDMADisk, UseRDMAProtocol, UseRDMAProcess, UseSubnetManager, UseRDMAUnread,
	}
}
