package nova_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/nova"
)

// TestHCA: what --hca offers of a physical function with one VF, of one that is whole, and of one
// without VFs.
func TestHCA(t *testing.T) {
	const dir = "sys/bus/pci/devices/0000:"
	function := func(address, device, total, num string) string {
		text := "-- " + dir + address + "/vendor --\n0x15b3\n-- " + dir + address + "/device --\n" + device + "\n-- " + dir + address + "/class --\n0x020700\n"
		if total != "" {
			text += "-- " + dir + address + "/sriov_totalvfs --\n" + total + "\n-- " + dir + address + "/sriov_numvfs --\n" + num + "\n"
		}
		return text
	}
	devices := hosttest.Devices(t, hosttest.Lay(t, "symlink "+dir+"0c:00.1/physfn -> ../0000:0c:00.0\nsymlink "+dir+"62:00.1/physfn -> ../0000:62:00.0\n"+
		function("0c:00.0", "0x101b", "8", "1")+function("0c:00.1", "0x101c", "", "")+
		function("12:00.0", "0x101b", "8", "0")+function("54:00.0", "0x101b", "8", "0")+
		function("60:00.0", "0x101b", "8", "0")+function("61:00.0", "0x101b", "8", "0")+
		function("64:00.0", "0x101b", "8", "0")+function("65:00.0", "0x101b", "8", "0")+
		function("62:00.0", "0x101b", "8", "1")+function("62:00.1", "0x101c", "", "")))
	address := func(s string) pci.Address {
		return hosttest.Address(t, s)
	}
	vf, err := pci.ParseID("101c")
	hosttest.NoError(t, err)
	adapters := []nova.Adapter{
		{Address: address("0000:0c:00.0"), LinkLayer: nova.LinkInfiniBand},
		{Address: address("0000:54:00.0"), LinkLayer: nova.LinkEthernet, Whole: true},
		{Address: address("0000:60:00.0"), LinkLayer: nova.LinkEthernet, VFs: []nova.AdapterVF{{Address: address("0000:60:00.2"), ProductID: vf}}},
		{Address: address("0000:62:00.0"), LinkLayer: nova.LinkInfiniBand, Whole: true},
		{Address: address("0000:64:00.0"), Whole: true},
		{Address: address("0000:65:00.0"), VFs: []nova.AdapterVF{{Address: address("0000:65:00.2"), ProductID: vf}}},
		{Address: address("0000:61:00.0"), Containers: true, VFs: []nova.AdapterVF{{Address: address("0000:61:00.2"), ProductID: vf}}},
	}
	ofContainers := []pci.Address{address("0000:64:00.0"), address("0000:65:00.2")}
	const spec = `{"address":"0000:0c:00.1","vendor_id":"15b3","product_id":"101c"`
	for _, test := range []struct {
		name, hca string
		specs     string
		aliases   string // NAME/product/type
		warning   string
		err       error
	}{
		{"VFs of a PF", "0000:0c:00.0=alias:CX6VF", spec + "}", "CX6VF/101c/type-VF", "", nil},
		{"one VF", "0000:0c:00.1=alias:CX6VF", spec + "}", "CX6VF/101c/type-VF", "", nil},
		{"InfiniBand by port", "0000:0c:00.0=port:ib", spec + `,"physical_network":"ib"}`, "", "dead port", nil},
		{"tunnels", "0000:0c:00.0=port", spec + `,"physical_network":null}`, "", "ebrctl", nil},
		{"whole", "0000:54:00.0=port:x", `{"address":"0000:54:00.0","vendor_id":"15b3","product_id":"101b","physical_network":"x"}`, "", "", nil},
		{"RoCE by alias", "0000:54:00.0=alias:CX6", `{"address":"0000:54:00.0","vendor_id":"15b3","product_id":"101b"}`, "CX6/101b/type-PF", "=port:PHYSNET is recommended", nil},
		{"recorded VFs", "0000:60:00.0=port:x", `{"address":"0000:60:00.2","vendor_id":"15b3","product_id":"101c","physical_network":"x"}`, "", "", nil},
		{"a recorded VF", "0000:60:00.2=port:x", `{"address":"0000:60:00.2","vendor_id":"15b3","product_id":"101c","physical_network":"x"}`, "", "", nil},
		{"no VFs", "0000:12:00.0=alias:CX6VF", "", "", "", nova.ErrNoVFs},
		{"containers", "0000:61:00.0=alias:CX6VF", "", "", "", nova.ErrForContainers},
		{"a VF for containers", "0000:61:00.2=alias:CX6VF", "", "", "", nova.ErrForContainers},
		{"a PF recorded for containers", "0000:64:00.0=alias:CX6", "", "", "", nova.ErrRecordedForContainers},
		{"a VF recorded for containers, by its PF", "0000:65:00.0=alias:CX6VF", "", "", "", nova.ErrRecordedForContainers},
		{"unknown", "0000:ff:00.0=alias:CX6VF", "", "", "", nova.ErrNoAdapter},
		{"whole and a VF of it", "0000:62:00.0=alias:CX6 0000:62:00.1=alias:CX6VF", "", "", "", nova.ErrWholeAndVFs},
		{"a VF that the host needs", "0000:62:00.1=alias:CX6VF", "", "", "", nova.ErrNeeded},
		{"a VF that the host may need, by port", "0000:62:00.1=port:x", `{"address":"0000:62:00.1","vendor_id":"15b3","product_id":"101c","physical_network":"x"}`, "", "dead port", nil},
		{"twice", "0000:0c:00.0=alias:A 0000:0c:00.1=alias:B", "", "", "", nova.ErrOfferedTwice},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := nova.Options{Role: nova.Compute, Release: 26,
				ComputeNode: nova.ComputeNode{Devices: devices, Recorded: nova.Recorded{Containers: ofContainers, Needed: []pci.Address{address("0000:62:00.1")}}}, Adapters: adapters}
			for _, text := range strings.Fields(test.hca) {
				h, err := nova.ParseHCA(text)
				hosttest.NoError(t, err)
				o.HCAs = append(o.HCAs, h)
			}
			w, err := nova.NewWant(o)
			if !errors.Is(err, test.err) {
				t.Fatal(err)
			}
			var specs, aliases []string
			for _, s := range w.Specs {
				text, err := json.Marshal(s)
				hosttest.NoError(t, err)
				specs = append(specs, string(text))
			}
			for _, a := range w.Aliases {
				aliases = append(aliases, a.Name+"/"+a.ProductID.String()+"/"+a.DeviceType)
			}
			if diff := cmp.Diff([]string{test.specs, test.aliases}, []string{strings.Join(specs, " "), strings.Join(aliases, " ")}); diff != "" && err == nil {
				t.Error(diff)
			}
			if got := strings.Join(w.Warnings, "\n"); (got == "") != (test.warning == "") || !strings.Contains(got, test.warning) {
				t.Errorf("warnings %q, want %q", got, test.warning)
			}
		})
	}
}

// TestParseHCA: what --hca rejects.
func TestParseHCA(t *testing.T) {
	for _, text := range []string{"", "0000:0c:00.0", "0000:0c:00.0=", "0000:0c:00.0=alias", "0000:0c:00.0=alias:", "0000:0c:00.0=alias:a:b",
		"0000:0c:00.0=port:", "0000:0c:00.0=vf:x", "0c=alias:x"} {
		if h, err := nova.ParseHCA(text); err == nil {
			t.Errorf("%q: %v", text, h)
		}
	}
}
