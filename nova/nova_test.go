package nova_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/nova/conf"
)

// TestReleases: the same wish in the words of every release, from a file that has
// none of it and from one of Mitaka's.
func TestReleases(t *testing.T) {
	const spec, alias = `{"vendor_id": "10de", "product_id": "11b4"}`, `{"name": "K4200", "vendor_id": "10de", "product_id": "11b4", "device_type": "type-PCI"}`
	const since = ",ComputeFilter,ComputeCapabilitiesFilter,ImagePropertiesFilter,ServerGroupAntiAffinityFilter,ServerGroupAffinityFilter,PciPassthroughFilter"
	for _, test := range []struct {
		release string
		options []string // sections in the order of a new file
		filters string
	}{
		{"mitaka", []string{"[DEFAULT]", "pci_alias", "pci_passthrough_whitelist", "scheduler_default_filters"},
			"RetryFilter,AvailabilityZoneFilter,RamFilter,DiskFilter" + since},
		{"newton", []string{"[DEFAULT]", "pci_alias", "pci_passthrough_whitelist", "scheduler_default_filters"},
			"RetryFilter,AvailabilityZoneFilter,RamFilter,DiskFilter" + since},
		{"ocata", []string{"[pci]", "alias", "passthrough_whitelist", "[filter_scheduler]", "enabled_filters"},
			"RetryFilter,AvailabilityZoneFilter,RamFilter,DiskFilter" + since},
		{"pike", []string{"[pci]", "alias", "passthrough_whitelist", "[filter_scheduler]", "enabled_filters"}, "RetryFilter,AvailabilityZoneFilter" + since},
		{"stein", []string{"[pci]", "alias", "passthrough_whitelist", "[filter_scheduler]", "enabled_filters"}, "RetryFilter,AvailabilityZoneFilter" + since},
		{"train", []string{"[pci]", "alias", "passthrough_whitelist", "[filter_scheduler]", "enabled_filters"}, "AvailabilityZoneFilter" + since},
		{"wallaby", []string{"[pci]", "alias", "passthrough_whitelist", "[filter_scheduler]", "enabled_filters"}, "AvailabilityZoneFilter" + since},
		{"yoga", []string{"[pci]", "alias", "passthrough_whitelist", "[filter_scheduler]", "enabled_filters"}, since[1:]},
		{"zed", []string{"[pci]", "alias", "device_spec", "[filter_scheduler]", "enabled_filters"}, since[1:]},
		{"2026.1", []string{"[pci]", "alias", "device_spec", "[filter_scheduler]", "enabled_filters"}, since[1:]},
		{"Gazpacho", []string{"[pci]", "alias", "device_spec", "[filter_scheduler]", "enabled_filters"}, since[1:]},
		{"2026.2", []string{"[pci]", "alias", "device_spec", "[filter_scheduler]", "enabled_filters"}, since[1:]},
		{"hibiscus", []string{"[pci]", "alias", "device_spec", "[filter_scheduler]", "enabled_filters"}, since[1:]},
	} {
		t.Run(test.release, func(t *testing.T) {
			var want strings.Builder
			for i, name := range test.options {
				switch {
				case strings.HasPrefix(name, "["):
					if i > 0 {
						want.WriteString("\n")
					}
					want.WriteString(name + "\n")
				case strings.HasSuffix(name, "alias"):
					want.WriteString(name + " = " + alias + "\n")
				case strings.HasSuffix(name, "filters"):
					want.WriteString(name + " = " + test.filters + "\n")
				default:
					want.WriteString(name + " = " + spec + "\n")
				}
			}
			hosttest.Equal(t, want.String(), configure(t, test.release, ""))
			// From Mitaka on the names are taken over.
			old := "[DEFAULT]\npci_alias = " + alias + "\npci_passthrough_whitelist = " + spec + "\n"
			got := configure(t, test.release, old)
			for _, name := range test.options {
				if strings.Count(got, "\n"+name+" = ") > 1 || strings.Count("\n"+got, "\n"+name) == 0 {
					t.Errorf("%s in\n%s", name, got)
				}
			}
			if strings.Contains(got, "pci_alias") != (test.options[1] == "pci_alias") {
				t.Errorf("an old name:\n%s", got)
			}
		})
	}
}

// configure returns nova.conf as it is planned.
func configure(t *testing.T, release, text string) string {
	t.Helper()
	r, err := nova.ParseRelease(release)
	hosttest.NoError(t, err)
	a, err := nova.ParseAlias("K4200=10de:11b4")
	hosttest.NoError(t, err)
	o := nova.Options{Role: nova.All, Release: r, Aliases: []nova.Alias{a}}
	w, err := nova.NewWant(o)
	hosttest.NoError(t, err)
	root := hosttest.Lay(t, "-- etc/nova/nova.conf --\n")
	hosttest.NoError(t, os.WriteFile(root.Path("etc/nova/nova.conf"), []byte(text), 0o640))
	p, err := nova.NewPlan(root, o, w, nova.Place{File: "/etc/nova/nova.conf"})
	hosttest.NoError(t, err)
	return string(p.Files[0].After.Content)
}

func TestInstalled(t *testing.T) {
	for _, test := range []struct{ name, tree, want string }{
		{"Debian", "-- var/lib/dpkg/status --\nPackage: nova-common\nStatus: install ok installed\nVersion: 2:26.2.2-1~deb12u3\n", "zed"},
		{"Ubuntu", "-- var/lib/dpkg/status --\nPackage: python3-nova\nStatus: install ok installed\nVersion: 3:29.0.1-0ubuntu1.3\n", "2024.1"},
		{"removed", "-- var/lib/dpkg/status --\nPackage: nova-common\nStatus: deinstall ok config-files\nVersion: 2:26.2.2-1\n",
			"cannot determine the release of Nova: no installed Nova found"},
		{"RPM", "mkdir usr/lib/python3.9/site-packages/nova-25.2.1-py3.9.egg-info\n-- usr/lib/python3.9/site-packages/novaclient-1.0.dist-info/x --\n", "yoga"},
		{"kolla", "mkdir var/lib/kolla/venv/lib/python3.10/site-packages/nova-28.1.0.dist-info\n", "2023.2"},
		{"openstack-ansible", "mkdir openstack/venvs/nova-27.1.0/lib/python3.10/site-packages/nova-27.1.0.dist-info\n", "2023.1"},
		{"Mitaka's Python", "mkdir usr/lib/python2.7/site-packages/nova-13.1.4-py2.7.egg-info\n", "mitaka"},
		{"too old", "mkdir usr/lib/python2.7/site-packages/nova-12.0.6-py2.7.egg-info\n",
			"cannot determine the release of Nova: /usr/lib/python2.7/site-packages/nova-12.0.6-py2.7.egg-info contains version 12, which is older than mitaka"},
		{"of a year", "-- var/lib/dpkg/status --\nPackage: nova-common\nStatus: install ok installed\nVersion: 1:2015.1.4-0ubuntu2\n",
			"cannot determine the release of Nova: /var/lib/dpkg/status contains version 2015, which is older than mitaka"},
		{"newer than all", "-- var/lib/dpkg/status --\nPackage: nova-common\nStatus: install ok installed\nVersion: 3:35.0.0-0ubuntu1\n", "2027.1"},
		{"two", "mkdir usr/lib/python3.9/site-packages/nova-25.2.1.dist-info\nmkdir opt/stack/data/venv/lib/python3.10/site-packages/nova-27.0.0.dist-info\n",
			"cannot determine the release of Nova: more than one is installed: 2023.1 (/opt/stack/data/venv/lib/python3.10/site-packages/nova-27.0.0.dist-info), yoga (/usr/lib/python3.9/site-packages/nova-25.2.1.dist-info)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, err := nova.Installed(hosttest.Lay(t, test.tree))
			got := r.String()
			if err != nil {
				got = err.Error()
			}
			hosttest.Equal(t, test.want, got)
		})
	}
	if _, err := nova.Installed(hosttest.Lay(t, "mkdir etc\n")); !errors.Is(err, nova.ErrNoRelease) {
		t.Errorf("%v", err)
	}
}

// TestNewerRelease: a release newer than the newest known one, installed or named, is planned as
// the newest known one, with one warning.
func TestNewerRelease(t *testing.T) {
	root := hosttest.Lay(t, "-- var/lib/dpkg/status --\nPackage: nova-common\nStatus: install ok installed\nVersion: 3:35.0.0-0ubuntu1\n")
	for name, want := range map[string]string{
		"": "2027.1 (version 35)", "35": "2027.1 (version 35)", "2027.1": "2027.1 (version 35)", "2027.2": "2027.2 (version 36)", "2031.2": "2031.2 (version 44)",
	} {
		var r nova.Release
		var err error
		if name != "" {
			if r, err = nova.ParseRelease(name); err != nil {
				t.Error(err)
				continue
			}
		}
		known, warnings, err := r.OrInstalled(root)
		if err != nil || known != nova.Newest || len(warnings) != 1 || !strings.HasPrefix(warnings[0], "Nova "+want+" is newer than 2026.2, ") {
			t.Errorf("%q: %s, %q, %v", name, known, warnings, err)
		}
	}
	for name, want := range map[string]nova.Release{"34": nova.Newest, "2026.2": nova.Hibiscus, "hibiscus": nova.Hibiscus, "33": nova.Gazpacho, "2026.1": nova.Gazpacho, "26": nova.Zed, "zed": nova.Zed, "13": nova.Mitaka} {
		r, err := nova.ParseRelease(name)
		if known, warnings := r.Known(); err != nil || known != want || warnings != nil {
			t.Errorf("%q: %s, %q, %v", name, known, warnings, err)
		}
	}
	for _, name := range []string{"12", "0", "-1", "2022.1", "2027.3", "2027", "3034", "zedd", "2027.1.1", ""} {
		if r, err := nova.ParseRelease(name); err == nil {
			t.Errorf("%q: %s", name, r)
		}
	}
}

// TestHosts: inventories of several hosts give an alias for each product.
func TestHosts(t *testing.T) {
	host := func(name string, functions ...string) nova.Host {
		var tree strings.Builder
		for i, f := range functions {
			product, vfs, _ := strings.Cut(f, "/")
			dir := fmt.Sprintf("sys/bus/pci/devices/0000:%02x:00.0", i+1)
			fmt.Fprintf(&tree, "-- %s/class --\n0x030200\n-- %s/vendor --\n0x10de\n-- %s/device --\n0x%s\n", dir, dir, dir, product)
			if vfs != "" {
				fmt.Fprintf(&tree, "-- %s/sriov_totalvfs --\n%s\n", dir, vfs)
			}
		}
		devices := hosttest.Devices(t, hosttest.Lay(t, tree.String()))
		return nova.Host{Name: name, Devices: devices}
	}
	ofContainers := func(h nova.Host, i int) nova.Host {
		h.Containers = []pci.Address{h.Devices[i].Address}
		return h
	}
	for _, test := range []struct {
		name  string
		hosts []nova.Host
		want  string // NAME=PRODUCT type, or the faults
	}{
		{"one card, twice", []nova.Host{host("a", "11b4", "11b4"), host("b", "11b4")}, "K4200=11b4 type-PCI"},
		{"SR-IOV capable", []nova.Host{host("a", "20b2/16")}, "A100-SXM4-80GB=20b2 type-PF"},
		{"no VFs allowed", []nova.Host{host("a", "20b2/0")}, "A100-SXM4-80GB=20b2 type-PCI"},
		{"products of one model", []nova.Host{host("a", "20b2", "20b0")}, "A100-SXM4-80GB=20b2 type-PCI, A100-SXM4-40GB=20b0 type-PCI"},
		{"a product without a name", []nova.Host{host("a", "ffff")}, "10de:ffff: cannot derive the name of an alias: neither gpustack nor pci.ids knows the model"},
		{"a GPU of containers beside others", []nova.Host{ofContainers(host("a", "20b2", "1eb8"), 0)}, "T4=1eb8 type-PCI"},
		{"only GPUs of containers", []nova.Host{ofContainers(host("a", "20b2"), 0)}, "no GPU for guests on a"},
		{"only GPUs of containers on one host", []nova.Host{host("a", "1eb8"), ofContainers(host("b", "20b2"), 0), {Name: "c"}},
			"T4=1eb8 type-PCI; hosts without a GPU for guests: b, c"},
		{"hosts that disagree", []nova.Host{host("a", "20b2/16"), host("b", "20b2")},
			"product 10de:20b2 has different device types, which one alias cannot select: type-PCI on b; type-PF on a"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w, err := nova.NewWant(nova.Options{Role: nova.Controller, Release: 26, Hosts: test.hosts})
			var got []string
			for _, a := range w.Aliases {
				got = append(got, fmt.Sprintf("%s=%s %s", a.Name, a.ProductID, a.DeviceType))
			}
			if err != nil {
				got = []string{err.Error()}
			}
			for _, warning := range w.Warnings {
				if strings.Contains(warning, "hosts") {
					got = append(got[:len(got)-1], got[len(got)-1]+"; "+warning)
				}
			}
			hosttest.Equal(t, test.want, strings.Join(got, ", "))
		})
	}
}

// TestTwins: where a twin stays with the host, specs are by address.
func TestTwins(t *testing.T) {
	devices := hosttest.Devices(t, hosttest.Lay(t, `
-- sys/bus/pci/devices/0000:01:00.0/vendor --
0x10de
-- sys/bus/pci/devices/0000:01:00.0/device --
0x11b4
-- sys/bus/pci/devices/0000:02:00.0/vendor --
0x10de
-- sys/bus/pci/devices/0000:02:00.0/device --
0x11b4
`))
	first, second := devices[0].Address, devices[1].Address
	a, err := nova.ParseAlias("K4200=10de:11b4")
	hosttest.NoError(t, err)
	for _, test := range []struct {
		name       string
		given      []pci.Address
		containers []pci.Address
		byAddress  bool
		want       string // addresses, "all", or the fault
	}{
		{"nothing known", nil, nil, false, "all"},
		{"both given", []pci.Address{first, second}, nil, false, "all"},
		{"one stays", []pci.Address{second}, nil, false, "0000:02:00.0"},
		{"by address", []pci.Address{first, second}, nil, true, "0000:01:00.0 0000:02:00.0"},
		{"none given", []pci.Address{}, nil, false, "alias K4200: no function of 10de:11b4 on this machine is prepared for guests"},
		{"one for containers, nothing else known", nil, []pci.Address{second}, false, "0000:01:00.0"},
		{"one for containers, by address", nil, []pci.Address{second}, true, "0000:01:00.0"},
		{"both for containers", nil, []pci.Address{first, second}, false, "alias K4200: no function of 10de:11b4 on this machine is prepared for guests"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w, err := nova.NewWant(nova.Options{Role: nova.Compute, Release: 26, Aliases: []nova.Alias{a},
				ComputeNode: nova.ComputeNode{Devices: devices, Recorded: nova.Recorded{Given: test.given, Containers: test.containers}}, ByAddress: test.byAddress})
			hosttest.Equal(t, test.want, specsOf(w, err))
		})
	}
}

// specsOf returns the addresses of the wanted device specs, "all" for one by ids, or the error.
func specsOf(w nova.Want, err error) string {
	if err != nil {
		return err.Error()
	}
	return strings.Join(host.Map(w.Specs, func(s nova.Spec) string {
		if s.Address == nil {
			return "all"
		}
		return s.Address.String()
	}), " ")
}

// TestFiles: what another file sets counts too. Values of several files add up; of
// an option that has one, every file that sets it is brought up to date, so that it
// does not matter which is read last.
func TestFiles(t *testing.T) {
	const alias, spec = `{"name": "K4200", "vendor_id": "10de", "product_id": "11b4", "device_type": "type-PCI"}`, `{"vendor_id": "10de", "product_id": "11b4"}`
	root := hosttest.Lay(t, `
-- etc/nova/nova.conf --
[DEFAULT]
-- etc/nova/nova-compute.conf --
[DEFAULT]
compute_driver=libvirt.LibvirtDriver
[pci]
passthrough_whitelist = `+spec+`
report_in_placement = false
-- etc/nova/nova.conf.d/10-site.conf --
[pci]
alias = `+alias+`
[filter_scheduler]
enabled_filters = ComputeFilter
`)
	a, err := nova.ParseAlias("K4200=10de:11b4")
	hosttest.NoError(t, err)
	o := nova.Options{Role: nova.All, Release: 26, Aliases: []nova.Alias{a}, Placement: true}
	w, err := nova.NewWant(o)
	hosttest.NoError(t, err)
	p, err := nova.NewPlan(root, o, w, nova.Place{File: "/etc/nova/nova.conf"})
	hosttest.NoError(t, err)
	got := map[string]string{}
	for _, c := range p.Files.Pending() {
		got[c.Name] = string(c.After.Content)
	}
	want := map[string]string{
		"/etc/nova/nova-compute.conf":        "[DEFAULT]\ncompute_driver=libvirt.LibvirtDriver\n[pci]\ndevice_spec = " + spec + "\nreport_in_placement = true\n",
		"/etc/nova/nova.conf.d/10-site.conf": "[pci]\nalias = " + alias + "\n[filter_scheduler]\nenabled_filters = ComputeFilter,PciPassthroughFilter\n",
	}
	hosttest.Equal(t, want, got)
	var services []string
	for _, s := range p.Restart {
		services = append(services, s.Name)
	}
	hosttest.Equal(t, []string{"nova-compute", "nova-scheduler"}, services)
}

// TestInstead: the name that replaces an ignored one is not ignored, too. Where the release is not
// known, it ignores all.
func TestInstead(t *testing.T) {
	if len(nova.Release(0).Ignored()) == 0 {
		t.Error("an unknown release ignores nothing")
	}
	for r := nova.Mitaka; r <= nova.Newest; r++ {
		ignored := r.Ignored()
		for _, name := range ignored {
			if slices.ContainsFunc(ignored, func(o conf.Name) bool { return o.String() == r.Instead(name) }) {
				t.Errorf("%s ignores %s, and %s in its place", r, name, r.Instead(name))
			}
		}
	}
}
