package pci

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"gpustack/host"
)

// Tags of the resources in vital product data (PCI Local Bus Specification 3.0, appendix I;
// Linux, drivers/pci/vpd.c).
const (
	vpdLarge    = 0x80 // the tag is followed by a length of two bytes
	vpdReadOnly = 0x90
	vpdWritable = 0x91
	vpdEnd      = 0x0f // small resource, its tag shifted by the length
)

var errVPD = errors.New("not vital product data")

// ParseVPD returns the values of the fields of the read-only and the writable resource of vital
// product data. Data without an end tag is an error: fields may be missing.
func ParseVPD(data []byte) ([][]byte, error) {
	var fields [][]byte
	for at := 0; at < len(data); {
		tag := data[at]
		header, length := 1, int(tag&7)
		switch {
		case tag&vpdLarge != 0 && at+3 > len(data):
			return fields, fmt.Errorf("%w: cut off at byte %d", errVPD, at)
		case tag&vpdLarge != 0:
			header, length = 3, int(binary.LittleEndian.Uint16(data[at+1:]))
		case tag>>3 == vpdEnd:
			return fields, nil
		}
		if at+header+length > len(data) {
			return fields, fmt.Errorf("%w: resource %#x at byte %d is longer than the data", errVPD, tag, at)
		}
		content := data[at+header : at+header+length]
		if tag == vpdReadOnly || tag == vpdWritable {
			more, err := parseVPDFields(content)
			fields = append(fields, more...)
			if err != nil {
				return fields, fmt.Errorf("%w in the resource at byte %d", err, at)
			}
		}
		at += header + length
	}
	return fields, fmt.Errorf("%w: no end tag", errVPD)
}

func parseVPDFields(content []byte) ([][]byte, error) {
	var fields [][]byte
	for at := 0; at < len(content); {
		const header = 3 // the keyword of two characters, and a length of one byte
		if at+header > len(content) || at+header+int(content[at+2]) > len(content) {
			return fields, fmt.Errorf("%w: field at byte %d is longer than its resource", errVPD, at)
		}
		end := at + header + int(content[at+2])
		fields = append(fields, content[at+header:end])
		at = end
	}
	return fields, nil
}

// nvswitchManager is the text in the vital product data of the ConnectX-7 functions that manage
// the NVSwitches of an HGX B200 or B300 board (NVIDIA Fabric Manager User Guide, "NVLink Subnet
// Manager": SMDL=SW_MNG). Vendor fields contain settings separated by colons.
const nvswitchManager = "SMDL=SW_MNG"

// managesNVSwitches reports whether vital product data is that of such a function.
func managesNVSwitches(data []byte) (bool, error) {
	fields, err := ParseVPD(data)
	if slices.ContainsFunc(fields, func(value []byte) bool { return bytes.Contains(value, []byte(nvswitchManager)) }) {
		return true, nil
	}
	return false, err
}

// reduceVPD returns only the part of vital product data that managesNVSwitches needs: the rest
// contains serial numbers.
func reduceVPD(data []byte) []byte {
	manages, err := managesNVSwitches(data)
	switch {
	case err != nil:
		return nil
	case manages:
		field := append([]byte{'V', '0', byte(len(nvswitchManager))}, nvswitchManager...)
		return append(append([]byte{vpdReadOnly, byte(len(field)), 0}, field...), vpdEnd<<3)
	}
	return []byte{vpdEnd << 3}
}

// mellanox is the vendor id of ConnectX adapters, which differs from NVIDIA's own.
const mellanox ID = 0x15b3

// connectX7 is the product of which some manage the NVSwitches of HGX B200 and B300, whose GPUs are
// hgxBlackwell (NVIDIA, Fabric Manager User Guide).
const connectX7 ID = 0x1021

var hgxBlackwell = []ID{0x2901, 0x2909, 0x3182}

// mayManageNVSwitches reports whether the vital product data is needed to determine what a
// function is.
func (d *Device) mayManageNVSwitches() bool {
	return d.IsVendor(mellanox) && (d.Class == nil || d.Class.base() == 0x02) && d.SRIOV.PF == nil
}

// hidesNVSwitches reports whether a machine's NVSwitches may be managed by ConnectX functions: it
// has GPUs of a board with NVSwitches, and no NVSwitch is a PCI function. A 3D controller that is
// newer than the tables of names may be such a GPU.
func hidesNVSwitches(devices []Device) bool {
	hides := false
	for i := range devices {
		d := &devices[i]
		if d.IsNVSwitch() {
			return false
		}
		product := host.Value(d.Product)
		isName := func(board string) bool { return strings.Contains(product, board) }
		hides = hides || d.IsBoardGPU() && (product == "" || slices.ContainsFunc([]string{"SXM", "B100", "B200", "B300"}, isName))
	}
	return hides
}

// readNVSwitchManagers determines which functions manage NVSwitches.
func (s *scanner) readNVSwitchManagers() {
	if !hidesNVSwitches(s.devices) {
		return
	}
	s.complete((*Device).mayManageNVSwitches)
	// The kernel waits for the device at every four bytes, so the devices are read concurrently.
	var group sync.WaitGroup
	for i := range s.devices {
		if s.devices[i].mayManageNVSwitches() {
			group.Go(func() {
				r := reader{devices: s.dir, buf: make([]byte, host.MaxAttribute+1)}
				r.readVPD(&s.devices[i])
			})
		}
	}
	group.Wait()
	// The board always has one that manages them: a tree without their data was copied without it.
	isHGX := func(d Device) bool {
		return d.IsBoardGPU() && d.ProductID != nil && slices.Contains(hgxBlackwell, *d.ProductID)
	}
	if !slices.ContainsFunc(s.devices, isHGX) || slices.ContainsFunc(s.devices, func(d Device) bool { return d.IsNVSwitch() || d.vpdUnread }) {
		return
	}
	for i := range s.devices {
		if d := &s.devices[i]; d.vpdAbsent && d.ProductID != nil && *d.ProductID == connectX7 {
			d.NVSwitchManager, d.vpdUnread = host.Unknown, true
		}
	}
}

// readVPD reads the vital product data of one function. The kernel reads it from the device, up to
// its end tag, and lets only root read the file.
func (r *reader) readVPD(d *Device) {
	r.d = d
	dir, _, err := r.devices.Enter(d.Address.String())
	if err == nil {
		defer dir.Close() //nolint:errcheck // only read from
		var data []byte
		if data, err = dir.ReadReduced("vpd", r.buf, reduceVPD); err == nil {
			var manages bool
			if manages, err = managesNVSwitches(data); err == nil {
				d.NVSwitchManager = host.BoolOf(manages)
				return
			}
		}
	}
	if host.IsAbsent(err) {
		d.NVSwitchManager, d.vpdAbsent = host.No, true // the function has no vital product data
		return
	}
	d.vpdUnread = true
	r.warn("vpd", fmt.Errorf("cannot determine whether the function manages NVSwitches: %w", host.Cause(err)))
}
