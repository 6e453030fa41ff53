package nova_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/hosttest"
	"gpustack/nova"
)

// kollaText returns the options of a rendered text by file, without comments and empty lines.
func kollaText(text string) (files map[string]string, order []string) {
	files = map[string]string{}
	for line := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(line, "# For kolla-ansible: "); ok {
			name, _, _ = strings.Cut(name, " ")
			order = append(order, name)
		} else if len(order) > 0 && line != "\n" && line[0] != '#' {
			files[order[len(order)-1]] += line
		}
	}
	return files, order
}

// TestKolla: device specs of one host are in files of that host, which nova-compute alone reads
// where the release of kolla-ansible has such a file; aliases are never in a file of a host that
// other services read. A file has all lines of an option, and one refusal names the same paths.
func TestKolla(t *testing.T) {
	const (
		compute  = "nova/nova-compute.conf"
		ofHost   = "nova/INVENTORY_HOSTNAME/nova-compute.conf"
		all      = "nova/INVENTORY_HOSTNAME/nova.conf"
		alias    = `alias = {"name": "K4200", "vendor_id": "10de", "product_id": "11b4", "device_type": "type-PCI"}` + "\n"
		spec     = `{"vendor_id": "10de", "product_id": "11b4"}`
		at       = `{"address": "0000:84:00.0", "vendor_id": "10de", "product_id": "11b4"}`
		managed  = `{"vendor_id": "10de", "product_id": "11b4", "managed": "no"}`
		vf       = `{"vendor_id": "15b3", "product_id": "101e", "physical_network": "net1"}`
		tree     = "-- sys/bus/pci/devices/0000:84:00.0/vendor --\n0x10de\n-- sys/bus/pci/devices/0000:84:00.0/device --\n0x11b4\n"
		existing = "[pci]\nalias = {\"name\": \"VF\", \"vendor_id\": \"15b3\", \"product_id\": \"101e\"}\n"
		others   = "alias = {\"name\": \"VF\", \"vendor_id\": \"15b3\", \"product_id\": \"101e\"}\n"
	)
	for _, test := range []struct {
		name      string
		release   nova.Release
		byAddress bool
		managed   string
		generated string // nova.conf of nova-compute
		want      map[string]string
	}{
		{"by product", nova.Bobcat, false, "", "[DEFAULT]\n", map[string]string{compute: "[pci]\n" + alias + "device_spec = " + spec + "\n"}},
		{"by product, before", nova.Antelope, false, "", "[DEFAULT]\n", map[string]string{compute: "[pci]\n" + alias + "device_spec = " + spec + "\n"}},
		{"by address", nova.Bobcat, true, "", "[DEFAULT]\n", map[string]string{ofHost: "[pci]\n" + alias + "device_spec = " + at + "\n"}},
		{"by address, before", nova.Antelope, true, "", "[DEFAULT]\n", map[string]string{compute: "[pci]\n" + alias, all: "[pci]\ndevice_spec = " + at + "\n"}},
		{"by address, under the older name", nova.Yoga, true, "", "[DEFAULT]\n",
			map[string]string{compute: "[pci]\n" + alias, all: "[pci]\npassthrough_whitelist = " + at + "\n"}},
		{"with tags", nova.Epoxy, false, "no", "[DEFAULT]\n", map[string]string{ofHost: "[pci]\n" + alias + "device_spec = " + managed + "\n"}},
		{"other lines of the options", nova.Bobcat, true, "", existing + "device_spec = " + vf + "\n",
			map[string]string{ofHost: "[pci]\n" + others + alias + "device_spec = " + vf + "\ndevice_spec = " + at + "\n"}},
		{"a line that would shadow ours", nova.Bobcat, true, "", "[pci]\ndevice_spec = " + vf + "\ndevice_spec = {\"vendor_id\": \"10de\"}\n",
			map[string]string{ofHost: "[pci]\n" + alias + "device_spec = " + vf + "\ndevice_spec = " + at + "\ndevice_spec = {\"vendor_id\": \"10de\"}\n"}},
		{"a line by address beside ours by product", nova.Bobcat, false, "", "[pci]\ndevice_spec = {\"address\": \"0000:01:00.0\"}\n",
			map[string]string{ofHost: "[pci]\n" + alias + "device_spec = {\"address\": \"0000:01:00.0\"}\ndevice_spec = " + spec + "\n"}},
		{"our line by product", nova.Bobcat, true, "", "[pci]\n" + alias + "device_spec = " + spec + "\n",
			map[string]string{ofHost: "[pci]\n" + alias + "device_spec = " + at + "\ndevice_spec = " + spec + "\n"}},
		{"kolla's own line under the older name", nova.Bobcat, true, "", "[pci]\npassthrough_whitelist = [" + vf + "]\n",
			map[string]string{ofHost: "[pci]\n" + alias + "device_spec = " + at + "\n"}},
		{"kolla's own line under the name that the release reads", nova.Yoga, true, "", "[pci]\npassthrough_whitelist = [" + vf + "]\n",
			map[string]string{compute: "[pci]\n" + alias, all: "[pci]\npassthrough_whitelist = [" + vf + "]\npassthrough_whitelist = " + at + "\n"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := hosttest.Lay(t, tree+"-- etc/kolla/nova-compute/nova.conf --\n"+test.generated)
			o := nova.Options{Role: nova.Compute, Release: test.release, ByAddress: test.byAddress, Managed: test.managed, Aliases: []nova.Alias{k4200(t)}}
			var err error
			if o.ComputeNode, err = nova.Observe(root, nova.Recorded{}); err != nil {
				t.Fatal(err)
			}
			if err = o.ReadFiles(root, nova.Place{File: nova.DefaultConf}); err != nil {
				t.Fatal(err)
			}
			w, err := nova.NewWant(o)
			hosttest.NoError(t, err)
			text, err := nova.RenderKolla(o, w)
			hosttest.NoError(t, err)
			files, order := kollaText(text)
			hosttest.Equal(t, test.want, files)
			if named := strings.Contains(text, "in kolla-ansible's inventory"); named != strings.Contains(text, "INVENTORY_HOSTNAME/") {
				t.Errorf("the name of the host is not explained: %s", text)
			}
			_, err = nova.NewPlan(root, o, w, nova.Place{File: nova.DefaultConf})
			var owned *nova.OwnedError
			if !errors.As(err, &owned) || len(host.Split(err)) != 1 || !strings.Contains(owned.Hint(), strings.Join(order, " and ")+" in the folder node_custom_config") {
				t.Errorf("%v; %+v", err, owned)
			}
		})
	}
}

// TestKollaElsewhere: the lines that nova-compute of this machine has now are no matter of another
// host, whose name the comment has.
func TestKollaElsewhere(t *testing.T) {
	const (
		vf   = `{"vendor_id": "15b3", "product_id": "101e", "physical_network": "net1"}`
		tree = "-- sys/bus/pci/devices/0000:84:00.0/vendor --\n0x10de\n-- sys/bus/pci/devices/0000:84:00.0/device --\n0x11b4\n" +
			"-- sys/bus/pci/devices/0000:84:00.0/class --\n0x030000\n" +
			"-- etc/kolla/nova-compute/nova.conf --\n[pci]\ndevice_spec = " + vf + "\n"
	)
	for name, test := range map[string]struct {
		inventories []string
		whose, its  string
		keeps       bool
	}{
		"this machine":              {nil, "this host", "nova-compute/nova.conf are here too", true},
		"its inventory":             {[]string{"gpu1.example.org"}, "this host", "nova-compute/nova.conf are here too", true},
		"another host":              {[]string{"gpu7"}, "host gpu7", "add those of other files", false},
		"this machine and another":  {[]string{"gpu1", "gpu7"}, "host gpu7", "add those of other files", false},
		"two others, with one text": {[]string{"gpu7", "gpu8"}, "host gpu7 or host gpu8", "add those of other files", false},
	} {
		t.Run(name, func(t *testing.T) {
			root := hosttest.Lay(t, tree)
			o := nova.Options{Role: nova.Compute, Release: nova.Bobcat, ByAddress: true, Aliases: []nova.Alias{k4200(t)}, Rendered: true}
			var err error
			if o.ComputeNode, err = nova.Observe(root, nova.Recorded{}); err != nil {
				t.Fatal(err)
			}
			if err = o.ReadFiles(root, nova.Place{File: nova.DefaultConf}); err != nil {
				t.Fatal(err)
			}
			o.Name = "gpu1"
			for _, name := range test.inventories {
				o.Hosts = append(o.Hosts, nova.Host{Name: name, Devices: o.Devices})
			}
			w, err := nova.NewWant(o)
			hosttest.NoError(t, err)
			text, err := nova.RenderKolla(o, w)
			if err != nil || !strings.Contains(text, "stands for the name of "+test.whose+" in kolla") || !strings.Contains(text, test.its) || strings.Contains(text, vf) != test.keeps {
				t.Errorf("%v\n%s", err, text)
			}
		})
	}
}

func k4200(t *testing.T) nova.Alias {
	t.Helper()
	a, err := nova.ParseAlias("K4200=10de:11b4,device_type=type-PCI")
	hosttest.NoError(t, err)
	return a
}

// TestKollaControllers: each refusal names the one file in which kolla-ansible reads what is wanted
// of the refused file.
func TestKollaControllers(t *testing.T) {
	root := hosttest.Lay(t, "-- etc/kolla/nova-api/nova.conf --\n[DEFAULT]\n-- etc/kolla/nova-scheduler/nova.conf --\n[DEFAULT]\n"+
		"-- etc/kolla/nova-conductor/nova.conf --\n[DEFAULT]\n-- etc/kolla/nova-compute/nova.conf --\n[DEFAULT]\n")
	for _, test := range []struct {
		role      nova.Role
		placement bool
		want      []string
	}{
		{nova.Controller, false, []string{"nova/nova-api.conf", "nova/nova-scheduler.conf"}},
		{nova.Controller, true, []string{"nova/nova-api.conf", "nova/nova-scheduler.conf", "nova/nova-conductor.conf"}},
		{nova.All, false, []string{"nova/nova-api.conf", "nova/nova-scheduler.conf", "nova/nova-compute.conf"}},
	} {
		o := nova.Options{Role: test.role, Release: nova.Bobcat, Placement: test.placement, Aliases: []nova.Alias{k4200(t)}}
		w, err := nova.NewWant(o)
		hosttest.NoError(t, err)
		_, err = nova.NewPlan(root, o, w, nova.Place{File: nova.DefaultConf})
		var named []string
		for _, err := range host.Split(err) {
			var owned *nova.OwnedError
			if errors.As(err, &owned) {
				path, _, _ := strings.Cut(owned.Where, " ")
				named = append(named, path)
			}
		}
		text, textErr := nova.RenderKolla(o, w)
		_, order := kollaText(text)
		if !slices.Equal(named, test.want) || !slices.Equal(order, test.want) || textErr != nil {
			t.Errorf("%+v: %q, %q, %v", test, named, order, textErr)
		}
	}
}

// TestSunbeam: the files of Sunbeam's snap are read, and the one that it generates is refused.
func TestSunbeam(t *testing.T) {
	const dir = "/var/snap/openstack-hypervisor/common/etc/nova/"
	root := hosttest.Lay(t, "-- "+dir[1:]+"nova.conf --\n# THIS FILE IS MANAGED BY THE SNAP - CHANGES WILL BE OVERWRITTEN\n[libvirt]\nvirt_type = kvm\n"+
		"-- "+dir[1:]+"nova.conf.d/gpu.conf --\n[pci]\n-- "+dir[1:]+"nova-compute.conf --\n[pci]\n"+
		"-- etc/systemd/system/snap.openstack-hypervisor.nova-compute.service --\n"+
		"-- snap/openstack-hypervisor/current/usr/lib/python3/dist-packages/nova-31.0.0.dist-info/METADATA --\n")
	sides, _, err := nova.ReadServices(root, "", "", nova.Recorded{})
	if err != nil || len(sides) != 1 || sides[0].Role != nova.Compute || len(sides[0].Files) != 2 || sides[0].Files[1].Name != dir+"nova.conf.d/gpu.conf" {
		t.Fatalf("%+v, %v", sides, err)
	}
	r, err := nova.Installed(root)
	if err != nil || r != nova.Epoxy {
		t.Errorf("%v, %v", r, err)
	}
	o := nova.Options{Role: nova.Compute, Release: r, Aliases: []nova.Alias{k4200(t)}}
	w, err := nova.NewWant(o)
	hosttest.NoError(t, err)
	_, err = nova.NewPlan(root, o, w, nova.Place{File: nova.DefaultConf})
	var owned *nova.OwnedError
	if !errors.As(err, &owned) || owned.Owner != "Sunbeam" || owned.File != dir+"nova.conf" {
		t.Errorf("%v", err)
	}
	service, err := nova.NewService(root, "nova-compute")
	if err != nil || service.Command == nil || *service.Command != "systemctl restart snap.openstack-hypervisor.nova-compute" {
		t.Errorf("%+v, %v", service, err)
	}
}
