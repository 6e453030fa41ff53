package rdma

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"gpustack/host"
	"gpustack/host/pci"
)

// addVFs adds the virtual functions of a physical one, by index. Their identity is read where a
// driver shows it: in MLNX_OFED's sriov folder, or in the RDMA device of a VF that is bound to its
// host driver. Netlink, the only other source, is not asked.
func (s *Stack) addVFs(root host.Root, a *Adapter, devices pci.Devices) {
	d := a.Function
	if d == nil || d.SRIOV.Role == nil || *d.SRIOV.Role != pci.RolePF || d.SRIOV.NumVFs == nil {
		return
	}
	r := reader{root: root}
	folder := path.Join("/sys/bus/pci/devices", d.Address.String())
	for index := range *d.SRIOV.NumVFs {
		link := path.Join(folder, "virtfn"+strconv.Itoa(index))
		at, err := root.Real(link)
		if err == nil {
			var ok bool
			if ok, err = root.Exists(at); err == nil && !ok {
				err = fmt.Errorf("absent, although sriov_numvfs is %d", *d.SRIOV.NumVFs)
			}
		}
		address, parseErr := pci.ParseAddress(path.Base(at))
		if err == nil {
			err = parseErr
		}
		if err != nil {
			r.warn(link, err)
			continue
		}
		v := VF{Index: index, Address: address}
		if f := devices.At(address); f != nil {
			v.Driver = f.DriverName()
		}
		if own := s.At(address); own != nil && own.Name != "" {
			v.Name, v.NodeGUID = own.Name, own.NodeGUID
			if len(own.Ports) > 0 {
				v.PortGUID = own.Ports[0].GUID
			}
		}
		r.identity(path.Join(folder, "sriov", strconv.Itoa(index)), &v)
		a.VFs = append(a.VFs, v)
	}
	a.Warnings = append(a.Warnings, r.warnings...)
}

// identity reads what MLNX_OFED's driver shows of a VF (sriovnet, mofed_ib_helper.go).
func (r *reader) identity(dir string, v *VF) {
	if g := r.guid(dir, "node"); g != nil {
		v.NodeGUID = g
	}
	if g := r.guid(dir, "port"); g != nil {
		v.PortGUID = g
	}
	if text, ok := r.text(dir, "policy"); ok {
		v.Policy = strings.TrimSpace(text)
	}
}
