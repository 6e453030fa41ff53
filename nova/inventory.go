package nova

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"gopkg.in/yaml.v3"

	"gpustack/host"
	"gpustack/host/pci"
)

// inventorySchema is the schema of host scan's output (docs/json.md) that ReadInventory reads.
const inventorySchema = 1

// ErrInventory is the error of a file that is not the output of host scan.
var ErrInventory = host.WithHint(errors.New("not the output of host scan"), "on the compute node, run: gpustack host scan -o json > FILE")

// inventory is what ReadInventory needs of host scan's output. Other fields are ignored.
type inventory struct {
	Schema int `json:"schema"`
	Host   struct {
		Hostname *string `json:"hostname"`
	} `json:"host"`
	Devices []pci.Device `json:"devices"`
}

// ReadInventories reads the output of host scan on several compute nodes.
//
// Errors: those of [ReadInventory], of all files at once.
func ReadInventories(files []string) (hosts []Host, err error) {
	var errs []error
	for _, file := range files {
		h, err := ReadInventory(file)
		errs = append(errs, err)
		hosts = append(hosts, h)
	}
	return hosts, errors.Join(errs...)
}

// ReadInventory reads the output of host scan on a compute node, as JSON or YAML. The host has the
// name of the file if the output does not contain a host name.
//
// Errors: ErrInventory.
func ReadInventory(file string) (Host, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return Host{}, fmt.Errorf("%s: %w", file, host.Cause(err))
	}
	var document any
	var scanned inventory
	err = yaml.Unmarshal(text, &document) // JSON is a subset of YAML
	if err == nil {
		if text, err = json.Marshal(document); err == nil {
			err = json.Unmarshal(text, &scanned)
		}
	}
	switch {
	case err != nil || scanned.Schema == 0:
		return Host{}, fmt.Errorf("%s: %w", file, ErrInventory)
	case scanned.Schema != inventorySchema:
		return Host{}, fmt.Errorf("%s: schema %d is not supported: it was written by another version of gpustack", file, scanned.Schema)
	case len(scanned.Devices) == 0:
		return Host{}, fmt.Errorf("%s: contains no devices", file)
	}
	h := Host{Name: file, Devices: scanned.Devices}
	if scanned.Host.Hostname != nil {
		h.Name = *scanned.Host.Hostname
	}
	return h, nil
}
