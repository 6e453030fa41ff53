package integration

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gpustack/host/hosttest"

	"github.com/google/go-cmp/cmp"
)

// pciDevice is a PCI device, in the words of Nova's libvirt driver.
type pciDevice struct {
	Address string `json:"address"`
	Vendor  string `json:"vendor_id"`
	Product string `json:"product_id"`
	Type    string `json:"dev_type"`
	Parent  string `json:"parent_addr,omitempty"`
	VFs     int    `json:"sriov_totalvfs,omitempty"`
	class   string
}

// machine is a compute node's functions: two K4200, an A100 with two VFs of the same
// product, a DPU and a network card.
func machine() []pciDevice {
	return []pciDevice{
		{Address: "0000:84:00.0", Vendor: "10de", Product: "11b4", Type: "type-PCI", class: "0x030000"},
		{Address: "0000:88:00.0", Vendor: "10de", Product: "11b4", Type: "type-PCI", class: "0x030000"},
		{Address: "0000:a1:00.0", Vendor: "10de", Product: "20b2", Type: "type-PF", VFs: 2, class: "0x030200"},
		{Address: "0000:a1:00.4", Vendor: "10de", Product: "20b2", Type: "type-VF", Parent: "0000:a1:00.0", class: "0x030200"},
		{Address: "0000:a1:00.5", Vendor: "10de", Product: "20b2", Type: "type-VF", Parent: "0000:a1:00.0", class: "0x030200"},
		{Address: "0000:b1:00.0", Vendor: "15b3", Product: "a2d6", Type: "type-PF", VFs: 1, class: "0x020000"},
		{Address: "0000:b1:00.1", Vendor: "15b3", Product: "101e", Type: "type-VF", Parent: "0000:b1:00.0", class: "0x020000"},
		{Address: "0000:0a:00.0", Vendor: "8086", Product: "154d", Type: "type-PCI", class: "0x020000"},
	}
}

// layMachine makes a root with the functions of a machine and files of Nova.
func layMachine(t *testing.T, devices []pciDevice, files map[string]string) (root string) {
	t.Helper()
	root = t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		hosttest.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		hosttest.NoError(t, os.WriteFile(path, []byte(text), 0o640))
	}
	for _, d := range devices {
		dir := "sys/bus/pci/devices/" + d.Address + "/"
		write(dir+"class", d.class+"\n")
		write(dir+"vendor", "0x"+d.Vendor+"\n")
		write(dir+"device", "0x"+d.Product+"\n")
		if d.VFs > 0 {
			write(dir+"sriov_totalvfs", fmt.Sprintln(d.VFs))
			write(dir+"sriov_numvfs", fmt.Sprintln(d.VFs))
		}
		if d.Parent != "" {
			hosttest.NoError(t, os.Symlink("../"+d.Parent, filepath.Join(root, dir, "physfn")))
		}
	}
	for name, text := range files {
		write(name, text)
	}
	return root
}

// firstMatches asks Nova for the tags of each device, and what keeps it from starting.
func firstMatches(t *testing.T, peer *answerer, file string, devices []pciDevice) (map[string]map[string]any, string) {
	t.Helper()
	text, err := json.Marshal(devices)
	hosttest.NoError(t, err)
	var answer struct {
		Errors map[string]string
		First  map[string]map[string]any
	}
	peer.ask(t, file+"\t"+string(text), &answer)
	return answer.First, answer.Errors["first"]
}

// TestSpecOrder: whatever stands in nova.conf before, Nova gives each device that was
// asked for the tags that were asked for, or the command refuses and shows both specs.
func TestSpecOrder(t *testing.T) {
	peer := startAnswerer(t, "ask_nova.py")
	const tagged = "K4200=10de:11b4,resource_class=CUSTOM_K4200"
	refused := func(specs string, words ...string) string {
		return "^gpustack: error: " + specs + ".* conflicts with the planned device_spec .*" + strings.Join(words, ".*")
	}
	for _, test := range []struct {
		name, alias string
		pci         string            // of nova.conf
		files       map[string]string // beside it
		args        []string
		want        string // a pattern of the refusal; "" for none
	}{
		{name: "nothing there", alias: tagged},
		{name: "behind the vendor's", alias: tagged, pci: `device_spec = {"vendor_id": "10de"}`},
		{name: "behind the product's, without a vendor", alias: tagged, pci: `device_spec = {"product_id": "0x11B4"}`},
		{name: "behind wildcards", alias: tagged, pci: `device_spec = {"vendor_id": "*", "product_id": "*", "address": "*:*:*.*"}`},
		{name: "behind everything", alias: tagged, pci: `device_spec = {}`},
		{name: "behind another and the vendor's", alias: tagged, pci: "device_spec = {\"vendor_id\": \"8086\", \"physical_network\": \"a\"}\ndevice_spec = {\"vendor_id\": \"10de\"}"},
		{name: "in a list", alias: tagged, pci: `device_spec = [{"vendor_id": "8086", "physical_network": "a"}, {"vendor_id": "10de"}]`},
		{name: "the same in a list, without tags", alias: tagged, pci: `device_spec = [{"vendor_id": "8086", "physical_network": "a"}, {"vendor_id": "10de", "product_id": "11b4"}]`},
		{name: "ours stands behind the vendor's", alias: tagged, pci: "device_spec = {\"vendor_id\": \"10de\"}\ndevice_spec = {\"vendor_id\": \"10de\", \"product_id\": \"11b4\", \"resource_class\": \"CUSTOM_K4200\"}"},
		{name: "an older one of ours behind the vendor's", alias: tagged, pci: "device_spec = {\"vendor_id\": \"10de\"}\ndevice_spec = {\"vendor_id\": \"10de\", \"product_id\": \"11b4\"}"},
		{name: "the old name below", alias: tagged, pci: "device_spec = {\"vendor_id\": \"8086\"}\npassthrough_whitelist = {\"vendor_id\": \"10de\"}"},
		{name: "old names in two sections", alias: tagged, pci: "device_spec = {\"vendor_id\": \"8086\", \"a\": \"1\"}\npassthrough_whitelist = {\"vendor_id\": \"8086\", \"product_id\": \"154d\", \"a\": \"2\"}\n[DEFAULT]\npci_passthrough_whitelist = {\"vendor_id\": \"10de\"}"},
		{name: "the old name over several lines", alias: tagged, pci: "device_spec = {\"vendor_id\": \"8086\"}\npassthrough_whitelist = [\n  {\"vendor_id\": \"8086\", \"a\": \"1\"},\n  {\"vendor_id\": \"10de\"}\n  ]"},
		{name: "behind a glob", alias: tagged, pci: `device_spec = {"vendor_id": "10de", "address": "*:*:00.*"}`},
		{name: "behind a regular expression", alias: tagged, pci: `device_spec = {"vendor_id": "10de", "address": {"domain": ".*", "bus": "8[48]", "slot": "00", "function": "[0-7]"}}`},
		{name: "behind a function's address alone", alias: tagged, pci: `device_spec = {"address": "0000:84:00.0"}`},
		{name: "beside a network card's address", alias: tagged, pci: `device_spec = {"address": "*:0a:00.*", "physical_network": "physnet1"}`},
		{name: "beside an interface's name", alias: tagged, pci: `device_spec = {"devname": "ens99", "physical_network": "physnet1"}`},
		{name: "by address, behind the product's", alias: tagged, pci: `device_spec = {"vendor_id": "10de", "product_id": "11b4"}`, args: []string{"--by-address"}},
		{name: "in the file that is read next", alias: tagged, files: map[string]string{"nova-compute.conf": "[pci]\ndevice_spec = {\"vendor_id\": \"10de\"}\n"}},
		{name: "in a drop-in", alias: tagged, files: map[string]string{"nova.conf.d/50-site.conf": "[pci]\ndevice_spec = {\"vendor_id\": \"10de\"}\n"}},
		{name: "without tags, behind the vendor's", alias: "K4200=10de:11b4", pci: `device_spec = {"vendor_id": "10de"}`},
		{name: "the talk's", alias: tagged, pci: `passthrough_whitelist = {"name":"K4200","vendor_id":"10de","product_id":"11b4"}`},
		{name: "the same tags in parts", alias: tagged, pci: `device_spec = {"vendor_id": "10de", "product_id": "11b4", "address": "0000:88:00.0", "resource_class": "CUSTOM_K4200"}`},

		{name: "the same with another value of a tag", alias: tagged, pci: `device_spec = {"vendor_id": "10de", "product_id": "11b4", "resource_class": "CUSTOM_GPU"}`},
		{name: "ours, and a broader one with tags behind it", alias: tagged, pci: "device_spec = {\"vendor_id\": \"10de\", \"product_id\": \"11b4\"}\ndevice_spec = {\"product_id\": \"11b4\", \"resource_class\": \"CUSTOM_REST\"}"},
		{name: "all functions by address", alias: tagged, pci: "device_spec = {\"address\": \"0000:84:00.0\", \"vendor_id\": \"10de\", \"product_id\": \"11b4\"}\ndevice_spec = {\"address\": \"0000:88:00.0\", \"vendor_id\": \"10de\", \"product_id\": \"11b4\"}"},

		{name: "the vendor's with tags", alias: tagged, pci: `device_spec = {"vendor_id": "10de", "managed": "no"}`,
			want: refused(`/etc/nova/nova.conf:2: \{"managed": "no", "vendor_id": "10de"\}`, `\{"vendor_id": "10de", "product_id": "11b4", "resource_class": "CUSTOM_K4200"\}: devices that both specs match would lose its managed`)},
		{name: "the vendor's with tags, ours without", alias: "K4200=10de:11b4", pci: `device_spec = {"vendor_id": "10de", "managed": "no"}`, want: refused(`/etc/nova/nova.conf:2: `, "managed")},
		{name: "the same with a tag that gpustack does not write", alias: tagged, pci: `device_spec = {"vendor_id": "10de", "product_id": "11b4", "x": "1"}`, want: refused(`/etc/nova/nova.conf:2: `, "x")},
		{name: "narrower, with a tag", alias: tagged, pci: `device_spec = {"vendor_id": "10de", "product_id": "11b4", "address": "0000:84:00.0", "managed": "no"}`, want: refused(`/etc/nova/nova.conf:2: `, "managed")},
		{name: "narrower, without", alias: tagged, pci: `device_spec = {"vendor_id": "10de", "product_id": "11b4", "address": "0000:84:00.0"}`, want: refused(`/etc/nova/nova.conf:2: `, "would not get resource_class")},
		{name: "narrower, in a list", alias: tagged, pci: `device_spec = [{"vendor_id": "8086"}, {"vendor_id": "10de", "product_id": "11b4", "address": "0000:84:00.0", "managed": "no"}]`, want: refused(`/etc/nova/nova.conf:2: `, "managed")},
		{name: "a function's address, with a tag", alias: tagged, pci: `device_spec = {"address": "84:00.0", "managed": "no"}`, want: refused(`/etc/nova/nova.conf:2: `, "managed")},
		{name: "a pattern that Go lacks", alias: tagged, pci: `device_spec = {"vendor_id": "10de", "address": {"bus": "(?!84).*"}}`, want: refused(`/etc/nova/nova.conf:2: `, "its address cannot be evaluated")},
		{name: "in two files of unknown order", alias: tagged, pci: `device_spec = {"vendor_id": "10de"}`, files: map[string]string{"nova.conf.d/50-site.conf": "[pci]\ndevice_spec = {\"product_id\": \"11b4\"}\n"},
			want: "^gpustack: error: /etc/nova/nova.conf:2 and /etc/nova/nova.conf.d/50-site.conf:2: both match devices of the planned device_spec .*the order in which Nova reads these files depends on how nova-compute is started"},
		{name: "as a drop-in", alias: tagged, pci: `device_spec = {"vendor_id": "10de"}`, args: []string{"--drop-in"},
			want: "^gpustack: error: /etc/nova/nova.conf:2: shadows the planned device_spec .*depends on how nova-compute is started"},
	} {
		t.Run(test.name, func(t *testing.T) {
			text := "[pci]\n" + test.pci + "\n"
			files := map[string]string{"etc/nova/nova.conf": text}
			for name, text := range test.files {
				files["etc/nova/"+name] = text
			}
			devices := machine()
			root := layMachine(t, devices, files)
			// One file after the other, as their order is where the command line names them,
			// and the other way round, as oslo.config finds them by itself.
			read := func() (orders []string) {
				var main, dropIns string
				for _, name := range []string{"nova.conf", "nova-compute.conf", "nova.conf.d/50-site.conf", "nova.conf.d/zz-gpustack.conf"} {
					b, err := os.ReadFile(filepath.Join(root, "etc/nova", name))
					if os.IsNotExist(err) {
						continue
					}
					hosttest.NoError(t, err)
					// Old names of one file do not come before values of another.
					if into := map[bool]*string{true: &dropIns, false: &main}[strings.Contains(name, "/")]; *into == "" {
						*into = string(b)
					} else {
						*into += string(b)
					}
				}
				return []string{main + dropIns, dropIns + main}
			}
			argv := append([]string{"nova", "configure", "--root", root, "--role", "compute", "--release", "2023.1", "--alias", test.alias, "--placement", "--yes"}, test.args...)
			if test.want != "" {
				out, err := exec.Command(gpustack, argv...).CombinedOutput()
				if err == nil || !regexp.MustCompile("(?m)"+test.want).Match(out) {
					t.Errorf("%v\n%s", err, out)
				}
				if got, err := os.ReadFile(filepath.Join(root, "etc/nova/nova.conf")); err != nil || string(got) != text {
					t.Errorf("nova.conf was changed: %v\n%s", err, got)
				}
				return
			}
			if strings.Contains(test.pci, "devname") { // Nova itself refuses it with Placement
				argv = slices.DeleteFunc(argv, func(arg string) bool { return arg == "--placement" })
			}
			if strings.Contains(test.pci+fmt.Sprint(test.files), `"10de"}`) || strings.Contains(test.pci, "{}") || strings.Contains(test.pci, "*:00") || strings.Contains(test.pci, `"*"`) {
				devices = slices.DeleteFunc(devices, func(d pciDevice) bool { return d.Parent != "" }) // nor a PF with its VFs
				root = layMachine(t, devices, files)
				argv[3] = root
			}
			before, problem := firstMatches(t, peer, filepath.Join(root, "etc/nova/nova.conf"), devices)
			if problem != "" {
				t.Fatal(problem)
			}
			run(t, gpustack, argv...)
			for _, text := range read() {
				file := filepath.Join(t.TempDir(), "nova.conf")
				hosttest.NoError(t, os.WriteFile(file, []byte(text), 0o600))
				after, problem := firstMatches(t, peer, file, devices)
				if problem != "" {
					t.Fatalf("Nova: %s\n%s", problem, text)
				}
				for _, d := range devices {
					want := before[d.Address]
					if d.Product == "11b4" {
						if want = map[string]any{}; strings.Contains(test.alias, "resource_class") && slices.Contains(argv, "--placement") {
							want["resource_class"] = "CUSTOM_K4200"
						}
					} else if len(test.files) > 0 {
						continue // before was read from nova.conf alone
					}
					delete(after[d.Address], "name")
					if diff := cmp.Diff(want, after[d.Address]); diff != "" {
						t.Errorf("%s (-want +got):\n%s\n%s", d.Address, diff, text)
					}
				}
			}
			hosttest.ContainsIn(t, "again", "nothing to do", run(t, gpustack, argv...))
			check, _ := exec.Command(gpustack, "nova", "check", "--root", root, "--conf", "compute=/etc/nova/nova.conf", "--release", "2023.1").CombinedOutput()
			if regexp.MustCompile(`fail.* "11b4".*is shadowed by`).Match(check) {
				t.Errorf("nova check:\n%s", check)
			}
		})
	}
}

// TestSpecsAtRandom: of any specs in any form, the command either refuses, or Nova gives
// the devices of the planned spec its tags, and all others what they had.
func TestSpecsAtRandom(t *testing.T) {
	peer := startAnswerer(t, "ask_nova.py")
	const seed = 15
	random := rand.New(rand.NewPCG(seed, seed))
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	spec := func() string {
		var keys []string
		add := func(key string, values ...string) {
			if v := pick(values...); v != "" {
				keys = append(keys, fmt.Sprintf("%q: %s", key, v))
			}
		}
		add("vendor_id", "", `"10de"`, `"10DE"`, `"0x10de"`, `"8086"`, `"*"`)
		add("product_id", "", "", `"11b4"`, `"20b2"`, `"*"`, `"154d"`)
		add("address", "", "", "", `"*:84:00.*"`, `"84:00.0"`, `"0000:a1:00.0"`, `":00.0"`, `"0000:88:00.0"`, `".5"`,
			`{"bus": "8[0-9]"}`, `{"domain": "0", "slot": "0", "function": "[4-7]"}`, `{"domain": "0000", "bus": "a1", "slot": "00", "function": "0"}`, `{"bus": "(84|88)$", "function": "0"}`, `{"bus": "(?i)A"}`)
		add("x", "", "", `"1"`)
		return "{" + strings.Join(keys, ", ") + "}"
	}
	accepted := 0
	for i := range 80 {
		var text strings.Builder
		for _, name := range slices.Sorted(slices.Values([]string{"device_spec", pick("device_spec", "passthrough_whitelist"), pick("device_spec", "passthrough_whitelist")})) {
			value := spec()
			if random.IntN(3) == 0 {
				value = "[" + value + ", " + spec() + "]"
			}
			fmt.Fprintf(&text, "%s = %s\n", name, value)
		}
		before := "[pci]\n" + text.String()
		devices := machine()
		root := layMachine(t, devices, map[string]string{"etc/nova/nova.conf": before})
		file := filepath.Join(root, "etc/nova/nova.conf")
		had, problem := firstMatches(t, peer, file, devices)
		if problem != "" {
			t.Fatalf("run %d: %s\n%s", i, problem, before)
		}
		alias, tags := "A=10de:11b4", map[string]any{}
		argv := []string{"nova", "configure", "--root", root, "--role", "compute", "--release", "2025.1", "--yes", "--alias", alias}
		if random.IntN(3) > 0 {
			argv, tags["managed"] = append(argv, "--managed", "yes"), "yes"
		}
		out, err := exec.Command(gpustack, argv...).CombinedOutput()
		if err != nil {
			hosttest.ContainsIn(t, fmt.Sprintf("run %d: %v\n%s", i, err, before), "conflicts with the planned device_spec", string(out))
			continue
		}
		accepted++
		has, problem := firstMatches(t, peer, file, devices)
		if problem != "" {
			t.Fatalf("run %d: %s", i, problem)
		}
		for _, d := range devices {
			want := had[d.Address]
			if d.Product == "11b4" {
				want = tags
			}
			if diff := cmp.Diff(want, has[d.Address]); diff != "" {
				t.Errorf("run %d, %s (-want +got):\n%s\nbefore:\n%s\nafter:\n%s", i, d.Address, diff, before, hosttest.Read(t, file))
			}
		}
	}
	t.Logf("%d of 80 were accepted", accepted)
	if accepted < 15 {
		t.Errorf("only %d of 80 were accepted", accepted)
	}
}

// TestSpecsThatStart: nova check finds a failure that keeps nova-compute from starting
// just where Nova itself raises an error, and nova configure --placement refuses what
// Nova cannot report.
func TestSpecsThatStart(t *testing.T) {
	peer := startAnswerer(t, "ask_nova.py")
	for name, pci := range map[string]string{
		"nothing":                         "",
		"a product":                       `device_spec = {"vendor_id": "10de", "product_id": "11b4"}`,
		"a partial wildcard":              `device_spec = {"address": "4*:00.0"}`,
		"a partial wildcard of functions": `device_spec = {"address": "84:00.0*"}`,
		"fields left out":                 `device_spec = {"address": ":00."}`,
		"no address":                      `device_spec = {"vendor_id": "8086", "address": ""}`,
		"four colons":                     `device_spec = {"address": "0:0:84:00.0"}`,
		"a slot too great":                `device_spec = {"address": "84:20.0"}`,
		"a function too great":            `device_spec = {"address": "84:00.8"}`,
		"two dots":                        `device_spec = {"address": "84:00.0.0"}`,
		"an address that is a number":     `device_spec = {"address": 84}`,
		"a pattern that is a number":      `device_spec = {"address": {"bus": 84}}`,
		"a pattern":                       `device_spec = {"address": {"bus": "8[48]"}}`,
		"a pattern of Python's":           `device_spec = {"address": {"bus": "(?=84)"}}`,
		"a pattern that is none":          `device_spec = {"address": {"bus": "8("}}`,
		"a pattern of a range":            `device_spec = {"address": {"bus": "[9-0]"}}`,
		"a possessive pattern":            `device_spec = {"address": {"bus": "8++4"}}`,
		"an open set":                     `device_spec = {"address": {"bus": "[8"}}`,
		"a leading underscore":            `device_spec = {"vendor_id": "_10de"}`,
		"a trailing underscore":           `device_spec = {"vendor_id": "10de_"}`,
		"two underscores":                 `device_spec = {"vendor_id": "10__de"}`,
		"an underscore":                   `device_spec = {"vendor_id": "10_de"}`,
		"an underscore after 0x":          `device_spec = {"vendor_id": "0x_10de"}`,
		"two signs":                       `device_spec = {"vendor_id": "++10de"}`,
		"address and devname":             `device_spec = {"address": "84:00.0", "devname": "ens99"}`,
		"a numeric vendor":                `device_spec = {"vendor_id": 4318}`,
		"a numeric product":               `device_spec = {"vendor_id": "10de", "product_id": 4532}`,
		"a vendor of null":                `device_spec = {"vendor_id": null}`,
		"a vendor too great":              `device_spec = {"vendor_id": "10de0"}`,
		"a vendor of words":               `device_spec = {"vendor_id": "nvidia"}`,
		"0x":                              `device_spec = {"vendor_id": "0x10de", "product_id": "0X11B4"}`,
		"in a list":                       `device_spec = [{"vendor_id": "10de", "product_id": "11b4"}, {"address": "4*:00.0"}]`,
		"no JSON":                         `device_spec = {'vendor_id': '10de'}`,
		"a list of numbers":               `device_spec = [1]`,
		"a PF":                            "device_spec = {\"address\": \"a1:00.0\", \"vendor_id\": \"10de\"}",
		"a PF, reported":                  "report_in_placement = true\ndevice_spec = {\"address\": \"0000:a1:00.0\"}",
		"a PF, reported, in parts":        "report_in_placement = true\ndevice_spec = {\"address\": \"0000:a1:00.0\", \"product_id\": \"1111\"}",
		"the vendor's, reported":          "report_in_placement = true\ndevice_spec = {\"vendor_id\": \"10de\"}",
		"VFs, reported":                   "report_in_placement = true\ndevice_spec = {\"address\": \"a1:00.4\"}\ndevice_spec = {\"address\": \"a1:00.5\"}",
		"VFs of two classes, reported":    "report_in_placement = true\ndevice_spec = {\"address\": \"a1:00.4\"}\ndevice_spec = {\"address\": \"a1:00.5\", \"resource_class\": \"B\"}",
		"VFs of two classes":              "device_spec = {\"address\": \"a1:00.4\"}\ndevice_spec = {\"address\": \"a1:00.5\", \"resource_class\": \"B\"}",
		"VFs of a class by two names":     "report_in_placement = true\ndevice_spec = {\"address\": \"a1:00.4\", \"resource_class\": \"custom_b\"}\ndevice_spec = {\"address\": \"a1:00.5\", \"resource_class\": \"B\"}",
		"VFs of two sets of traits":       "report_in_placement = true\ndevice_spec = {\"address\": \"a1:00.4\", \"traits\": \"a,b\"}\ndevice_spec = {\"address\": \"a1:00.5\", \"traits\": \"a\"}",
		"VFs of one set of traits":        "report_in_placement = true\ndevice_spec = {\"address\": \"a1:00.4\", \"traits\": \"a,b\"}\ndevice_spec = {\"address\": \"a1:00.5\", \"traits\": \"B,A\"}",
		"VFs and a PF of Neutron's":       "report_in_placement = true\ndevice_spec = {\"address\": \"a1:00.4\"}\ndevice_spec = {\"vendor_id\": \"10de\", \"product_id\": \"20b2\", \"physical_network\": \"a\"}",
		"a name, reported":                "report_in_placement = yes\ndevice_spec = {\"devname\": \"ens99\"}",
		"a name":                          `device_spec = {"devname": "ens99"}`,
		"remote_managed on a PF":          `device_spec = {"address": "0000:b1:00.0", "remote_managed": "true"}`,
		"remote_managed on a PF by ids":   `device_spec = {"address": "b1:00.0", "vendor_id": "15b3", "product_id": "a2d6", "remote_managed": "yes"}`,
		"remote_managed on its VFs":       `device_spec = {"address": "b1:00.0", "vendor_id": "15b3", "product_id": "101e", "remote_managed": "yes"}`,
		"remote_managed of another":       `device_spec = {"address": "b1:00.0", "product_id": "1111", "remote_managed": true}`,
		"remote_managed that is false":    `device_spec = {"address": "b1:00.0", "remote_managed": "no"}`,
		"the PF first, then all":          "report_in_placement = true\ndevice_spec = {\"address\": \"*:*:00.0\", \"physical_network\": \"a\"}\ndevice_spec = {\"vendor_id\": \"10de\"}",
	} {
		t.Run(name, func(t *testing.T) {
			devices := machine()
			text := "[filter_scheduler]\nenabled_filters = PciPassthroughFilter\n[pci]\n" + pci + "\n"
			root := layMachine(t, devices, map[string]string{"etc/nova/nova.conf": text})
			file := filepath.Join(root, "etc/nova/nova.conf")
			_, problem := firstMatches(t, peer, file, devices)
			t.Log(problem)
			out, err := exec.Command(gpustack, "nova", "check", "--root", root, "--release", "zed").CombinedOutput()
			if found := strings.Contains(string(out), ": nova-compute does not start"); found != (problem != "") || found != (err != nil) {
				t.Errorf("Nova: %q\n%s", problem, out)
			}

			// With Placement, on a copy.
			reported := strings.ReplaceAll(text, "[pci]\n", "[pci]\nreport_in_placement = true\n")
			copied := filepath.Join(t.TempDir(), "nova.conf")
			hosttest.NoError(t, os.WriteFile(copied, []byte(reported), 0o600))
			if problem != "" && !strings.Contains(problem, "Placement") {
				out, err = exec.Command(gpustack, "nova", "configure", "--root", root, "--release", "zed", "--role", "compute", "--alias", "A=1234:5678", "--yes").CombinedOutput()
				if err == nil || !strings.Contains(string(out), "nova-compute does not start") {
					t.Errorf("Nova: %q, %v\n%s", problem, err, out)
				}
				return
			}
			_, problem = firstMatches(t, peer, copied, devices)
			out, err = exec.Command(gpustack, "nova", "configure", "--root", root, "--release", "zed", "--role", "compute", "--alias", "A=1234:5678", "--placement", "--yes").CombinedOutput()
			if refused := strings.Contains(string(out), "nova-compute does not start"); refused != (problem != "") || refused != (err != nil) {
				t.Errorf("with --placement, Nova: %q\n%s", problem, out)
			}
		})
	}
}
