package nova_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/hosttest"
	"gpustack/nova"
)

// TestSpecLines: the lines of device_spec that a plan leaves, for an alias of 10de:11b4
// with a resource class. What Nova makes of them is tested in integration.
func TestSpecLines(t *testing.T) {
	const ours = `{"vendor_id": "10de", "product_id": "11b4", "resource_class": "CUSTOM_K"}`
	for _, test := range []struct{ name, before, after string }{
		{"in a list, before a broader one", "device_spec = [" + ours + ", {\"vendor_id\": \"10de\"}]\n", ""},
		{"in a list, with the talk's name", "device_spec = [{\"vendor_id\": \"8086\"}, {\"name\": \"K\", \"vendor_id\": \"10DE\", \"product_id\": \"11b4\", \"resource_class\": \"CUSTOM_K\"}]\n", ""},
		{"between others", "device_spec = {\"vendor_id\": \"8086\"}\ndevice_spec=" + ours + "\ndevice_spec = {\"vendor_id\": \"10de\"}\n", ""},
		{"in a list, behind a broader one", "device_spec = [{\"vendor_id\": \"10de\"}, " + ours + ", {\"product_id\":\"1\"}]\n",
			"device_spec = " + ours + "\ndevice_spec = [{\"vendor_id\": \"10de\"}, {\"product_id\":\"1\"}]\n"},
		{"in a list, without the tag", "device_spec = [{\"vendor_id\":\t\"8086\"}, {\"vendor_id\": \"10de\", \"product_id\": \"11b4\"}]\n",
			"device_spec = " + ours + "\ndevice_spec = [{\"vendor_id\": \"8086\"}]\n"},
		{"tabs and lines that move", "device_spec = {\"vendor_id\": \"10de\"}\npassthrough_whitelist = {\n \t\"vendor_id\":\t\"8086\"}\n",
			"device_spec = {\n \t\"vendor_id\":\t\"8086\"}\ndevice_spec = " + ours + "\ndevice_spec = {\"vendor_id\": \"10de\"}\n"},
		{"the older one in its place", "device_spec   =   {\"vendor_id\": \"0x10DE\", \"product_id\": \"11B4\"}\n", "device_spec   =   " + ours + "\n"},
		{"a faulty one does not count", "device_spec = {\"address\": \"4*:00.0\", \"x\": \"y\"}\n", "device_spec = {\"address\": \"4*:00.0\", \"x\": \"y\"}\ndevice_spec = " + ours + "\n"},
		{"a pattern for everything", "device_spec = {\"address\": {\"domain\": \".*\", \"bus\": \"\"}}\n", "device_spec = " + ours + "\ndevice_spec = {\"address\": {\"domain\": \".*\", \"bus\": \"\"}}\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, err := nova.ParseAlias("K=10de:11b4,resource_class=CUSTOM_K")
			if err != nil {
				t.Fatal(err)
			}
			o := nova.Options{Role: nova.Compute, Release: 27, Aliases: []nova.Alias{a}, Placement: true}
			w, err := nova.New(o)
			if err != nil {
				t.Fatal(err)
			}
			const rest = "report_in_placement = true\nalias = {\"name\": \"K\", \"vendor_id\": \"10de\", \"product_id\": \"11b4\", \"resource_class\": \"CUSTOM_K\"}\n"
			root := hosttest.Lay(t, "-- etc/nova/nova.conf --\n")
			if err := os.WriteFile(root.Path("etc/nova/nova.conf"), []byte("[pci]\n"+test.before+rest), 0o640); err != nil {
				t.Fatal(err)
			}
			p, err := nova.NewPlan(root, o, w, nova.Place{File: "/etc/nova/nova.conf"})
			if err != nil {
				t.Fatal(err)
			}
			want := test.after
			if want == "" {
				want = test.before
			}
			if diff := cmp.Diff("[pci]\n"+want+rest, string(p.Files[0].After.Content)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestSameDevices: two aliases of one product get one spec, if they can.
func TestSameDevices(t *testing.T) {
	for _, test := range []struct{ second, want string }{
		{"B=10de:20b2,device_type=type-VF", ""},
		{"B=10de:20b2,device_type=type-VF,resource_class=CUSTOM_B", `alias B: another alias names the same devices with other tags, and Nova gives a device those of one device_spec: {"vendor_id": "10de", "product_id": "20b2"}, {"vendor_id": "10de", "product_id": "20b2", "resource_class": "CUSTOM_B"}`},
	} {
		var aliases []nova.Alias
		for _, text := range []string{"A=10de:20b2,device_type=type-PF", test.second} {
			a, err := nova.ParseAlias(text)
			if err != nil {
				t.Fatal(err)
			}
			aliases = append(aliases, a)
		}
		w, err := nova.New(nova.Options{Role: nova.Compute, Release: 27, Aliases: aliases, Placement: true})
		got := ""
		if err != nil {
			got = strings.TrimSpace(err.Error())
		}
		if got != test.want || err == nil && len(w.Specs) != 1 {
			t.Errorf("%s: %d specs, %q", test.second, len(w.Specs), got)
		}
	}
}
