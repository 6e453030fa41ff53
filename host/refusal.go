package host

// Code is the stable word for the reason of a refusal, for programs that read it (docs/json.md).
type Code string

// The codes of all refusals, each with what is refused.
const (
	// VFs of a slave of a bond, whose RDMA device they remove.
	CodeBondedRDMA Code = "bonded_rdma"
	// a bridge, which no guest can have.
	CodeBridge Code = "bridge"
	// a function that is not the recorded one.
	CodeChanged Code = "changed"
	// the console of the firmware or the management controller.
	CodeConsole Code = "console"
	// a file of Nova that a deployment tool generates.
	CodeDeploymentTool Code = "deployment_tool"
	// a controller of a disk that the kernel has claimed (mounted, swap, LVM, RAID, encryption, ZFS).
	CodeDisk Code = "disk"
	// the undo of a file or object that was changed since.
	CodeEdited Code = "edited"
	// a function that is no GPU and no part of its card: --allow lets it leave.
	CodeGroup Code = "iommu_group"
	// a change of drivers while it is unknown which guests use the functions.
	CodeGuestsUnknown Code = "guests_unknown"
	// pci-stub for one of several identical devices.
	CodeIdentical Code = "identical_devices"
	// a repair in a database that does not look like that of a running deployment.
	CodeImplausible Code = "implausible"
	// a function or flavor that is in use.
	CodeInUse Code = "in_use"
	// the undo of an entry whose files a later entry changed.
	CodeLaterEntry Code = "later_entry"
	// a change while another gpustack makes one.
	CodeLocked Code = "locked"
	// unbinding a driver that may hang.
	CodeMayHang Code = "may_hang"
	// a GPU with mediated devices.
	CodeMediated Code = "mediated_devices"
	// an interface that the host boots with, or that is in use where an adapter or VF would go.
	CodeNetwork Code = "network"
	// a function without an IOMMU group.
	CodeNoGroup Code = "no_iommu_group"
	// a function whose ids cannot be read.
	CodeNoIDs Code = "no_ids"
	// pci_in_placement while a compute node does not report its devices to Placement.
	CodeNotReporting Code = "not_reporting"
	// a configuration with which nova-compute does not start.
	CodeNotStartable Code = "not_startable"
	// NVSwitches apart from their GPUs.
	CodeNVSwitch Code = "nvswitch"
	// a test of devices that stay reserved after their first guest.
	CodeOneTimeUse Code = "one_time_use"
	// what another program's file, setting or operator has: ids=, a CDI kind, a disabled service.
	CodeOtherOwner Code = "other_owner"
	// unbinding a GPU in persistence mode.
	CodePersistence Code = "persistence_mode"
	// a function in another command's record: that of host prepare or of rdma prepare.
	CodeRecorded Code = "recorded"
	// a function in whose IOMMU group the firmware requires memory mapped 1:1.
	CodeRegion Code = "reserved_region"
	// a device_spec that offers a device which remains with the host.
	CodeRemains Code = "remains_with_host"
	// a function that is recorded for containers and was asked for guests, or the other way round.
	CodeRole Code = "role"
	// a function that /, /usr, /boot, /boot/efi, /etc or /var needs, or may need.
	CodeRootDisk Code = "root_disk"
	// stopping a service that cannot be stopped, or not be started again.
	CodeService Code = "service"
	// a device_spec that conflicts with another one.
	CodeSpecConflict Code = "device_spec"
	// the undo of a repair after Nova has gone on.
	CodeTooLate Code = "too_late"
	// more repairs than --max.
	CodeTooMany Code = "too_many"
	// a plan that was not confirmed.
	CodeUnconfirmed Code = "unconfirmed"
	// pci_in_placement while it is unknown whether all compute nodes report.
	CodeUnverified Code = "unverified"
	// a GPU with virtual functions, or one of them.
	CodeVirtualFunctions Code = "virtual_functions"
)

// refusal is an error that says that gpustack refuses to do something which it could do.
type refusal struct {
	error
	code  Code
	allow string
}

// WithCode returns err as a refusal: gpustack could do what was asked, and does not, because of its
// effects. Programs find the reason by the code. allow is the flag that lifts the refusal
// ("--live"), or "". The error has a method Refusal, by which a caller finds both with errors.As;
// its text and its hint are those of err.
func WithCode(err error, code Code, allow string) error {
	return &refusal{err, code, allow}
}

// Unwrap returns the error without its code.
func (r *refusal) Unwrap() error { return r.error }

// Refusal returns the code, and the flag that lifts the refusal or "".
func (r *refusal) Refusal() (code Code, allow string) { return r.code, r.allow }
