package gate

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"

	"gpustack/host"
	"gpustack/host/pci"
)

// Refusal is the error for a function that must not be assigned to guests, with the reason.
type Refusal struct {
	Address  pci.Address
	Function *pci.Address // that leaves the host, if it is a part of the one at Address; nil for that
	Reason   string
	Absolute bool      // --allow cannot lift it
	Err      error     // the error that it wraps, or nil
	Code     host.Code // "" for that of Err
	File     string    // on the machine, that shows the use; "" for none
}

func (r *Refusal) Error() string {
	return fmt.Sprintf("%s: %s", r.Address, r.Reason)
}

// Unwrap returns Err.
func (r *Refusal) Unwrap() error {
	return r.Err
}

// Refusal returns the code of the reason, and the option that lifts the refusal or "".
func (r *Refusal) Refusal() (code host.Code, allow string) {
	code = r.Code
	var wrapped interface {
		Refusal() (host.Code, string)
	}
	if errors.As(r.Err, &wrapped) {
		reason, option := wrapped.Refusal()
		code, allow = cmp.Or(code, reason), option
	}
	if !r.Absolute {
		allow = "--allow " + r.Address.String()
	}
	return code, allow
}

// function returns the function that leaves the host.
func (r *Refusal) function() pci.Address {
	return *cmp.Or(r.Function, &r.Address)
}

// Refuse returns the absolute refusal of a function for a known reason.
func Refuse(a pci.Address, err error) *Refusal {
	return &Refusal{Address: a, Reason: err.Error(), Absolute: true, Err: err}
}

// Separation is the error for a selection that contains only some of the GPUs and NVSwitches of a
// board, which work only together.
type Separation struct {
	Go, Remain []pci.Address // the selected functions of the board, and the others
	Unread     bool          // the NVSwitches could not be determined: none can be chosen for guests
}

func (s *Separation) Error() string {
	if s.Unread {
		return fmt.Sprintf("NVSwitches of the selected GPUs may be managed by %s, whose vital product data cannot be read: choose which side gets the NVSwitches",
			pci.Joined(s.Remain, " "))
	}
	return fmt.Sprintf("GPUs and NVSwitches of one board would be separated: %s selected, %s not: choose which side gets the NVSwitches",
		Shortened(s.Go), Shortened(s.Remain))
}

// Refusal returns the code, and the option that chooses a side.
func (s *Separation) Refusal() (code host.Code, allow string) {
	return host.CodeNVSwitch, "--nvswitch"
}

// errClaimed is the error of a disk that the kernel calls claimed, as far as files or open(2) show.
var errClaimed = host.WithHint(host.WithCode(errors.New("is claimed"), host.CodeDisk, ""), "end this use first; 'lsblk' and 'fuser -v' show what uses a disk")

// ErrStays is the error of --allow for a function that it has nothing to allow.
var ErrStays = errors.New("--allow names a function that does not leave the host")

// Errors of functions of hosts that share a GPU between guests.
var (
	ErrVFs = host.WithHint(host.WithCode(errors.New("has virtual functions enabled"), host.CodeVirtualFunctions, ""),
		"once no guest has one, write 0 to the function's sriov_numvfs")
	errMediated = host.WithHint(host.WithCode(errors.New("has mediated devices"), host.CodeMediated, ""),
		"remove its mediated devices first: /sys/bus/mdev/devices/UUID/remove")
	// ErrRegion is the refusal of a function in whose group the firmware wants memory mapped 1:1.
	ErrRegion = host.WithHint(host.WithCode(errors.New("the firmware requires memory mapped 1:1 for its IOMMU group, which the kernel assigns to no guest then"),
		host.CodeRegion, ""), FreeRegion)
	// ErrForContainers is the refusal of a function that container prepare has recorded.
	ErrForContainers = host.WithHint(host.WithCode(errors.New("is for containers"), host.CodeRole, ""),
		host.Textf("take it from containers first: %s", host.NewCommand("container prepare").Flag("remove", "ADDRESS")))
	errVF       = host.WithCode(errors.New("is a virtual function of a GPU"), host.CodeVirtualFunctions, "")
	ErrSRIOV    = host.WithCode(errors.New("cannot determine whether it has virtual functions or is one"), host.CodeVirtualFunctions, "")
	ErrSwitches = host.WithCode(errors.New("is an NVSwitch, and --nvswitch host keeps it with the host"), host.CodeNVSwitch, "--nvswitch guest")
	// ErrSwitchManager is the refusal of an adapter that manages the NVSwitches of its board.
	ErrSwitchManager = host.WithHint(host.WithCode(errors.New("manages the NVSwitches of this machine, and NVIDIA's fabric manager needs it"), host.CodeNVSwitch, ""),
		host.Textf("'%s' assigns all GPUs and NVSwitches of the board to one guest", host.NewCommand("host prepare").Flag("nvswitch", "guest")))
	errVPDUnread = host.WithCode(errors.New("may manage the NVSwitches of this machine: its vital product data cannot be read"), host.CodeNVSwitch, "")
)

// FreeRegion says how the firmware ceases to require a 1:1 mapping.
const FreeRegion = "no option lifts this: in the firmware's setup, " +
	"exclude the slot from shared memory (RMRR; HPE: conrep, RMRDS_SlotN Endpoints_Excluded), " +
	"or ask the vendor of the machine for a firmware without the mapping"

// Shortened returns a text with the first few addresses.
func Shortened(addresses []pci.Address) string {
	const some = 3
	if len(addresses) <= some+1 {
		return pci.Joined(addresses, " ")
	}
	return pci.Joined(addresses[:some], " ") + " and " + strconv.Itoa(len(addresses)-some) + " more"
}
