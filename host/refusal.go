package host

// Code is the stable word for the reason of a refusal, for programs that read it (docs/json.md).
type Code string

// The codes of all refusals. docs/json.md describes each.
const (
	CodeBondedRDMA       Code = "bonded_rdma"
	CodeBridge           Code = "bridge"
	CodeChanged          Code = "changed"
	CodeConsole          Code = "console"
	CodeDeploymentTool   Code = "deployment_tool"
	CodeDisk             Code = "disk"
	CodeEdited           Code = "edited"
	CodeGroup            Code = "iommu_group"
	CodeGuestsUnknown    Code = "guests_unknown"
	CodeIdentical        Code = "identical_devices"
	CodeImplausible      Code = "implausible"
	CodeInUse            Code = "in_use"
	CodeLaterEntry       Code = "later_entry"
	CodeLocked           Code = "locked"
	CodeMayHang          Code = "may_hang"
	CodeMediated         Code = "mediated_devices"
	CodeNetwork          Code = "network"
	CodeNoGroup          Code = "no_iommu_group"
	CodeNoIDs            Code = "no_ids"
	CodeNotReporting     Code = "not_reporting"
	CodeNotStartable     Code = "not_startable"
	CodeNVSwitch         Code = "nvswitch"
	CodeOneTimeUse       Code = "one_time_use"
	CodeOtherOwner       Code = "other_owner"
	CodePersistence      Code = "persistence_mode"
	CodeRecorded         Code = "recorded"
	CodeRemains          Code = "remains_with_host"
	CodeRole             Code = "role"
	CodeRootDisk         Code = "root_disk"
	CodeService          Code = "service"
	CodeSpecConflict     Code = "device_spec"
	CodeSSHSession       Code = "ssh_session"
	CodeSubnetManager    Code = "subnet_manager"
	CodeTooLate          Code = "too_late"
	CodeTooMany          Code = "too_many"
	CodeUnconfirmed      Code = "unconfirmed"
	CodeUnverified       Code = "unverified"
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

// Lift is a refusal that --allow has lifted, as records have it: of one function, because of one
// use.
type Lift struct {
	Function string `json:"function"` // its PCI address
	Use      string `json:"use"`
}
