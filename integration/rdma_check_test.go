package integration

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/host/rdma"
)

// TestRDMALibraries compares what rdma check reads of Debian's rdma-core with the libraries
// themselves: the private ABI that dpkg's package and the dynamic linker show, and the versions of
// drivers' interfaces that each library accepts.
func TestRDMALibraries(t *testing.T) {
	root := hosttest.Root(t, "/")
	verbs := rdma.ReadVerbs(root)
	if verbs.Err != nil || len(verbs.Folders) != 1 {
		t.Fatalf("%+v", verbs)
	}
	folder := verbs.Folders[0]
	out, err := exec.Command("readelf", "--version-info", folder.Library).Output()
	if err != nil || !strings.Contains(string(out), fmt.Sprintf("Name: IBVERBS_PRIVATE_%d\n", folder.Private)) {
		t.Errorf("%s: private ABI %d, %v", folder.Library, folder.Private, err)
	}
	drivers := map[string]string{
		"bnxt_re": "bnxt_en", "cxgb4": "cxgb4", "efa": "efa", "erdma": "erdma", "hfi1verbs": "hfi1", "hns": "hns3", "ionic": "ionic", "ipathverbs": "ib_qib", "irdma": "ice",
		"mana": "mana", "mlx4": "mlx4_core", "mlx5": "mlx5_core", "mthca": "ib_mthca", "ocrdma": "be2net", "qedr": "qede", "vmw_pvrdma": "vmw_pvrdma",
	}
	judged := 0
	for _, p := range folder.Providers {
		if p.Private != folder.Private {
			t.Errorf("%+v does not fit %d", p, folder.Private)
		}
		d := pci.Device{Driver: ptr(drivers[p.Name])}
		a := rdma.Adapter{Address: &d.Address, Function: &d, Name: "ib0", Driver: d.DriverName(), NodeType: "CA", Verbs: &rdma.Node{Name: "uverbs0"}}
		switch {
		case p.Name == "rxe", p.Name == "siw":
			a.Address, a.Function, a.NodeType = nil, nil, map[string]string{"rxe": "CA", "siw": "RNIC"}[p.Name]
			a.Parent = "eth0"
		case drivers[p.Name] == "":
			t.Errorf("%s: no driver of functions is known", p.File)
			continue
		}
		if why, _ := verbs.Refuses(a); why != "" {
			t.Errorf("%s: %s", p.Name, why)
		}
		refused := func(abi uint32) string {
			a.Verbs.ABI = ptr(int(abi))
			why, _ := verbs.Refuses(a)
			return why
		}
		accepted, ok := readABI(t, p)
		if !ok || accepted[1] > 1000 { // any
			continue
		}
		judged++
		hosttest.EqualIn(t, fmt.Sprintf("%s accepts %v", p.Name, accepted), "", refused(accepted[0])+refused(accepted[1]))
		if refused(accepted[1]+1) == "" || accepted[0] > 0 && refused(accepted[0]-1) == "" {
			t.Errorf("%s accepts %v: no failure outside", p.Name, accepted)
		}
	}
	if judged < 12 {
		t.Errorf("%d libraries judged", judged)
	}
}

func ptr[T any](v T) *T { return &v }

// readABI returns the smallest and the largest version that a library accepts: the numbers after
// the pointer to the driver's name in its struct verbs_device_ops (rdma-core, libibverbs/driver.h).
func readABI(t *testing.T, p rdma.Provider) (accepted [2]uint32, ok bool) {
	t.Helper()
	file, err := filepath.EvalSymlinks(p.File)
	hosttest.NoError(t, err)
	f, err := elf.Open(file)
	hosttest.NoError(t, err)
	defer f.Close()
	at := func(address uint64, n int) []byte {
		for _, s := range f.Sections {
			if s.Type == elf.SHT_PROGBITS && s.Addr > 0 && address >= s.Addr && address+uint64(n) <= s.Addr+s.Size {
				data := make([]byte, n)
				if _, err := s.ReadAt(data, int64(address-s.Addr)); err != nil {
					t.Fatal(err)
				}
				return data
			}
		}
		return nil
	}
	name := strings.TrimPrefix(p.Name, "vmw_") // the library of vmw_pvrdma calls itself pvrdma
	for _, s := range f.Sections {
		if s.Type != elf.SHT_RELA { //nolint:misspell // relocations with addends
			continue
		}
		data, err := s.Data()
		hosttest.NoError(t, err)
		for ; len(data) >= 24; data = data[24:] {
			place, addend := binary.LittleEndian.Uint64(data), binary.LittleEndian.Uint64(data[16:])
			if text := at(addend, len(name)+1); !bytes.Equal(text, append([]byte(name), 0)) {
				continue
			}
			if numbers := at(place+8, 8); numbers != nil {
				return [2]uint32{binary.LittleEndian.Uint32(numbers), binary.LittleEndian.Uint32(numbers[4:])}, true
			}
		}
	}
	return accepted, false
}
