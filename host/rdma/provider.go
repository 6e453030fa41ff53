package rdma

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Provider returns the name of the library for the adapter's driver, as rdma-core names it, such as
// mlx5, or "" if none is known.
func (a Adapter) Provider() string {
	switch {
	case a.Address != nil:
	case a.NodeType == "RNIC": // software for iWARP
		return "siw"
	case a.Parent != "":
		return "rxe"
	default:
		return "" // of a subfunction, for example
	}
	return map[string]string{
		"mlx4_core": "mlx4", "mlx5_core": "mlx5", "hfi1": "hfi1verbs", "ib_qib": "ipathverbs", "ib_mthca": "mthca", "efa": "efa",
		"erdma": "erdma", "vmw_pvrdma": "vmw_pvrdma", "ice": "irdma", "i40e": "irdma", "bnxt_en": "bnxt_re", "qede": "qedr",
		"cxgb4": "cxgb4", "hns3": "hns", "mana": "mana", "be2net": "ocrdma", "ionic": "ionic",
	}[a.Driver]
}

// serves reports whether the folder's libibverbs finds the library of a driver, and if not, why.
func (f VerbsFolder) serves(name string) (found bool, why string) {
	var others []string
	for _, p := range f.Providers {
		switch {
		case p.Name != name:
		case p.Private == f.Private:
			return true, ""
		default:
			others = append(others, p.File)
		}
	}
	if others != nil {
		return false, fmt.Sprintf("%s has private ABI %d, which %s does not fit", f.Library, f.Private, strings.Join(others, ", "))
	}
	return false, fmt.Sprintf("%s/libibverbs has no lib%s-rdmav%d.so", f.Dir, name, f.Private)
}

// Mixed returns the libraries of several releases of rdma-core, as text of a finding, and one of
// them; "" if all are of one release. A program loads those of one release only.
func (v Verbs) Mixed() (seen, file string) {
	first, abis, texts := "", []int{}, []string{}
	add := func(private int, file string) {
		if private > 0 && !slices.Contains(abis, private) {
			first, abis, texts = cmp.Or(first, file), append(abis, private), append(texts, fmt.Sprintf("%d in %s", private, file))
		}
	}
	for _, folder := range v.Folders {
		add(folder.Private, folder.Library)
		for _, p := range folder.Providers {
			add(p.Private, p.File)
		}
	}
	if len(abis) < 2 {
		return "", ""
	}
	return "libraries of several releases of rdma-core, with private ABIs " + strings.Join(texts, ", "), first
}

// core44 is the private ABI of rdma-core 44, whose libraries have the versions of [AcceptedABI].
const core44 = 34

// accepted are the versions of a driver's interface, from the first to the last, that its library of
// rdma-core 44 accepts, as its files in Debian 12 show them (struct verbs_device_ops). Libraries
// that accept any are not listed.
var accepted = map[string][2]int{
	"bnxt_re": {1, 1}, "efa": {1, 1}, "erdma": {0, 1}, "irdma": {0, 5}, "mana": {1, 1}, "mlx4": {2, 4}, "mlx5": {1, 1},
	"mthca": {0, 1}, "ocrdma": {2, 2}, "qedr": {8, 8}, "rxe": {1, 2}, "siw": {1, 1}, "vmw_pvrdma": {3, 3},
}

// accepts reports whether the library of a release of rdma-core with a private ABI accepts a version:
// older libraries accept nothing newer than those of rdma-core 44, and newer ones nothing older.
func accepts(provider string, private, abi int) bool {
	versions, ok := accepted[provider]
	refused := abi > versions[1] && private <= core44 || abi < versions[0] && private >= core44
	return !ok || !refused
}

// Refuses returns why programs with these libraries do not see an adapter, with the message that
// they print, or "" if they see it. Libraries of a driver that is not known are not judged, and
// neither is a root without libibverbs, or a libibverbs that does not show its private ABI.
func (v Verbs) Refuses(a Adapter) (why, message string) {
	const noDevices = `"No IB devices found" (ibv_devinfo)`
	name, libraries := a.Provider(), v.Libraries()
	switch {
	case name == "", len(libraries) == 0:
		return "", ""
	case !slices.Contains(v.Drivers, name):
		return fmt.Sprintf("no file in %s has the line \"driver %s\"", DriverDir, name), noDevices
	}
	for _, folder := range libraries {
		if folder.Private == 0 {
			continue
		}
		if found, reason := folder.serves(name); !found {
			return reason, fmt.Sprintf(`"libibverbs: Warning: couldn't load driver 'lib%s-rdmav%d.so': …: cannot open shared object file", `,
				name, folder.Private) + noDevices
		}
		if a.Verbs != nil && a.Verbs.ABI != nil && !accepts(name, folder.Private, *a.Verbs.ABI) {
			return fmt.Sprintf("its library for %s does not accept version %d of the driver's interface", name, *a.Verbs.ABI),
				fmt.Sprintf(`"Driver %s does not support the kernel ABI of %d"`, name, *a.Verbs.ABI)
		}
	}
	return "", ""
}
