package driver

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/pci"
)

// The sysfs folders of functions and drivers (Linux, Documentation/ABI/testing/sysfs-bus-pci).
const (
	devicesDir = "/sys/bus/pci/devices"
	driversDir = "/sys/bus/pci/drivers"
	probeFile  = "/sys/bus/pci/drivers_probe"
)

// Name is the name of a driver. "" means none, which is null in JSON.
type Name string

// MarshalJSON writes null for none.
func (n Name) MarshalJSON() ([]byte, error) {
	if n == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(n))
}

func (n Name) String() string {
	if n == "" {
		return "no driver"
	}
	return string(n)
}

// State is the driver that a function is bound to, and its driver_override, which permits only one
// driver to bind it.
type State struct {
	Driver Name `json:"driver" null:"zero"` // the bound driver; null for none
	// the only driver that may bind it; null for any that matches
	Override Name `json:"driver_override" null:"zero"`
}

// ErrGone means that a function no longer exists.
var ErrGone = host.WithHint(errors.New("is not there"), host.Textf("'%s' lists all functions", host.NewCommand("host scan").Flag("all")))

// Read reads the driver of a function and its driver_override.
func Read(root host.Root, a pci.Address) (State, error) {
	dir, err := root.OpenDir(path.Join(devicesDir, a.String()))
	if host.IsAbsent(err) {
		return State{}, fmt.Errorf("%s: %w", a, ErrGone)
	}
	if err != nil {
		return State{}, fmt.Errorf("%s: %w", a, host.Cause(err))
	}
	defer dir.Close() //nolint:errcheck // only read from
	var s State
	target, err := dir.Readlink("driver")
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return State{}, fmt.Errorf("%s: driver: %w", a, err)
	}
	if err == nil {
		s.Driver = Name(path.Base(target))
	}
	text, err := dir.ReadAttribute("driver_override", make([]byte, host.MaxAttribute+1))
	if err != nil {
		return State{}, fmt.Errorf("%s: driver_override: %w", a, err)
	}
	// The kernel shows an unset driver_override as "(null)".
	if override := strings.TrimSuffix(string(text), "\n"); override != "(null)" {
		s.Override = Name(override)
	}
	return s, nil
}

// stateOf returns the state that a scan has read.
func stateOf(d *pci.Device) State {
	return State{Driver: Name(host.Value(d.Driver)), Override: Name(host.Value(d.DriverOverride))}
}
