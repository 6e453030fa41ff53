package ansible

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gpustack/host/hosttest"
)

// mergeFor returns the options of a file that kolla-ansible generates for a program of a host, as
// lines SECTION KEY = VALUE: all values of a key are those of the last file that has the key
// (kolla-ansible, ansible/roles/nova-cell/tasks/config.yml;
// ansible/action_plugins/merge_configs.py).
func mergeFor(t *testing.T, config, program, host string) []string {
	t.Helper()
	merged := map[string][]string{}
	for _, name := range []string{"nova.conf", "nova/" + program + ".conf", "nova/" + host + "/nova.conf", "nova/" + host + "/" + program + ".conf"} {
		text, err := os.ReadFile(filepath.Join(config, name))
		if os.IsNotExist(err) {
			continue
		}
		hosttest.NoError(t, err)
		section, of, name := "DEFAULT", map[string][]string{}, ""
		for line := range strings.Lines(string(text)) {
			text := strings.TrimSpace(line)
			at := strings.IndexAny(text, "=:")
			switch {
			case text != line[:len(text)] && name != "": // goes on with the line before
				values := of[name]
				values[len(values)-1] += text
			case strings.HasPrefix(text, "#"):
			case strings.HasPrefix(text, "["):
				section = strings.Trim(text, "[]")
			case at > 0:
				name = section + " " + strings.TrimSpace(text[:at])
				of[name] = append(of[name], strings.TrimSpace(text[at+1:]))
			}
		}
		maps.Copy(merged, of)
	}
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(merged)) {
		for _, value := range merged[key] {
			lines = append(lines, key+" = "+value)
		}
	}
	return lines
}

// TestRoleController: plain controllers get aliases and filters; kolla-ansible's folder gets files
// from which it generates the same, with files for one host only where layouts differ.
func TestRoleController(t *testing.T) {
	t.Parallel() // Ansible waits for one program after the other
	f := newRoleFleet(t, "gpu1", "gpu2")
	for _, s := range f.servers {
		f.command(gpustack, "host", "prepare", "--root", s.root, "--yes")
	}
	// scan adds the inventory of a workstation with two identical GPUs.
	scan := func(name string, options ...string) {
		root := filepath.Join(f.dir, name)
		f.command(gpustack, "host", "unpack", "../../examples/workstation-twins.txtar", root)
		f.write(name+"/proc/sys/kernel/hostname", name+"\n")
		f.command(gpustack, slices.Concat([]string{"host", "prepare", "--root", root, "--yes"}, options)...)
		out, err := exec.Command(gpustack, "host", "scan", "--root", root, "-o", "json").Output()
		hosttest.NoError(t, err)
		f.write("nodes/"+name+".scan.json", string(out))
	}

	// The documents, as the playbook collects them: of a command that fails, that of the last time
	// stays.
	f.write("nodes/gpu2.check.json", "old")
	f.fault("node", "gpu2", "fail", 1, "* host check *")
	out, recap := f.play("gpustack.nova.collect", "-e", "gpustack_folder=nodes gpustack_nodes=wave_00")
	if recap["gpu1"].failed != "0" || recap["gpu2"].failed != "1" || !strings.Contains(out, "the files of the last time stay for check") {
		t.Errorf("%+v\n%s", recap, out)
	}
	if text, err := os.ReadFile(f.dir + "/nodes/gpu2.check.json"); err != nil || string(text) != "old" {
		t.Errorf("%v: %s", err, text)
	}
	of := func(kind string) string { return f.dir + "/nodes/gpu1." + kind + ".json" }
	f.command(gpustack, "fleet", "show", of("scan"), of("check"), of("guests"), f.dir+"/nodes/gpu2.scan.json", f.dir+"/nodes/gpu2.guests.json")

	f.write("controllers.yml", `- hosts: gpu1
  gather_facts: false
  become: true
  tasks:
    - name: A plain controller
      ansible.builtin.include_role:
        name: gpustack.nova.controller
      vars:
        gpustack_controller_binary: "{{ gpustack_node_binary }}"
        gpustack_controller_root: "{{ gpustack_node_root }}"
        gpustack_controller_inventories: nodes
        gpustack_controller_release: zed
        gpustack_controller_restart: false
      when: plain | default(false) | bool
    - name: kolla-ansible
      ansible.builtin.include_role:
        name: gpustack.nova.controller
      vars:
        gpustack_controller_binary: "{{ gpustack_node_binary }}"
        gpustack_controller_inventories: nodes
        gpustack_controller_release: "{{ release }}"
        gpustack_controller_kolla: true
        gpustack_controller_node_custom_config: "{{ playbook_dir }}/config"
`)
	const k4200, rtx = `{"name": "K4200", "vendor_id": "10de", "product_id": "11b4", "device_type": "type-PCI"}`,
		`{"name": "RTX4000", "vendor_id": "10de", "product_id": "1eb1", "device_type": "type-PCI"}`
	config := filepath.Join(f.dir, "config")
	f.write("config/nova.conf", "[DEFAULT]\ndebug = true\n")
	out, recap = f.play(f.dir+"/controllers.yml", "-e", "plain=true release=zed", "--limit", "gpu1")
	if recap["gpu1"].failed != "0" {
		t.Fatal(out)
	}
	conf := f.servers[0].conf(t)
	if !strings.Contains(conf, "alias = "+k4200) || !strings.Contains(conf, "PciPassthroughFilter") {
		t.Errorf("nova.conf of the controller:\n%s", conf)
	}
	check := func(program, host string, want ...string) {
		t.Helper()
		hosttest.EqualIn(t, program+" of "+host, append([]string{"DEFAULT debug = true"}, want...), mergeFor(t, config, program, host))
	}
	const filters = "filter_scheduler enabled_filters = ComputeFilter,ComputeCapabilitiesFilter,ImagePropertiesFilter,ServerGroupAntiAffinityFilter," +
		"ServerGroupAffinityFilter,PciPassthroughFilter"
	const offered = `pci device_spec = {"vendor_id": "10de", "product_id": "11b4"}`
	check("nova-api", "control1", "pci alias = "+k4200)
	check("nova-scheduler", "control1", filters)
	check("nova-compute", "gpu1", "pci alias = "+k4200, offered)
	check("nova-compute", "gpu2", "pci alias = "+k4200, offered)
	if own, _ := filepath.Glob(config + "/nova/*/*"); own != nil {
		t.Errorf("files for one host: %v", own)
	}

	// One host keeps what is identical to its guests' GPU, and another host gives both: the former
	// alone has a file, in a place that both releases read.
	scan("ws7", "--device", "0000:65:00.0")
	scan("ws8", "--allow", "0000:17:00.0")
	const nic = `{"vendor_id": "15b3", "product_id": "1017", "physical_network": "physnet1"}`
	for release, own := range map[string]string{"zed": "nova/ws7/nova.conf", "2025.1": "nova/ws7/nova-compute.conf"} {
		hosttest.NoError(t, os.RemoveAll(config+"/nova"))
		// The operator's own options stay, also where a file of one host would replace them; filters that
		// are set are kept.
		f.write("config/nova/nova-compute.conf", "[libvirt]\nvirt_type = kvm\n[pci]\ndevice_spec: "+nic+"\n")
		f.write("config/"+own, "[pci]\ndevice_spec: "+nic+"\n")
		f.write("config/nova/nova-scheduler.conf", "[filter_scheduler]\nenabled_filters = ComputeFilter,\n  PciPassthroughFilter\n")
		if out, recap = f.play(f.dir+"/controllers.yml", "-e", "release="+release, "--limit", "gpu1"); recap["gpu1"].failed != "0" {
			t.Fatal(out)
		}
		check("nova-scheduler", "control1", "filter_scheduler enabled_filters = ComputeFilter,PciPassthroughFilter")
		const spec = `pci device_spec = {"address": "0000:65:00.0", "vendor_id": "10de", "product_id": "1eb1"}`
		const shared, ofOperator = `pci device_spec = {"vendor_id": "10de", "product_id": "1eb1"}`, "pci device_spec = " + nic
		check("nova-compute", "gpu2", "libvirt virt_type = kvm", "pci alias = "+k4200, "pci alias = "+rtx, ofOperator, offered, shared)
		if release == "zed" { // all services of a host read its file: the aliases are in the common one
			check("nova-compute", "ws7", "libvirt virt_type = kvm", "pci alias = "+k4200, "pci alias = "+rtx, ofOperator, spec)
		} else {
			check("nova-compute", "ws7", "libvirt virt_type = kvm", "pci alias = "+rtx, ofOperator, spec)
		}
		if files, _ := filepath.Glob(config + "/nova/*/*"); len(files) != 1 || files[0] != filepath.Join(config, own) {
			t.Errorf("%s: files for one host: %v, want %s", release, files, own)
		}
	}
	f.keepsWhitelist(config, nic)
	// A host that keeps a product of which it gives none to guests: no text by product serves it and
	// ws8.
	ws7 := hosttest.Read(t, f.dir+"/nodes/ws7.scan.json")
	given := regexp.MustCompile(`("address":"0000:65:00.0".*"product_id":)"1eb1"`)
	f.write("nodes/ws6.scan.json", given.ReplaceAllString(strings.ReplaceAll(ws7, `"ws7"`, `"ws6"`), `$1"11b4"`))
	hosttest.NoError(t, os.RemoveAll(config+"/nova"))
	if out, recap = f.play(f.dir+"/controllers.yml", "-e", "release=2025.1", "--limit", "gpu1"); recap["gpu1"].failed != "0" {
		t.Fatal(out)
	}
	at := func(address, product string) string {
		return `pci device_spec = {"address": "0000:` + address + `:00.0", "vendor_id": "10de", "product_id": "` + product + `"}`
	}
	check("nova-compute", "gpu2", "pci alias = "+k4200, at("84", "11b4"), at("88", "11b4"))
	check("nova-compute", "ws6", "pci alias = "+k4200, at("65", "11b4"))
	check("nova-compute", "ws7", "pci alias = "+rtx, at("65", "1eb1"))
	check("nova-compute", "ws8", "pci alias = "+rtx, at("17", "1eb1"), at("65", "1eb1"))
	check("nova-compute", "none")
	// Again, nothing changes; what a host has that did not answer stays, and so does the file of one
	// whose GPUs are returned. A value is refused that another file would replace, or that replaces
	// one.
	f.write("config/nova/back/nova-compute.conf", "[pci]\ndevice_spec = []\n")
	f.write("config/nova/gone/nova-compute.conf", "# BEGIN gpustack.nova.controller\n[pci]\n# END gpustack.nova.controller\n")
	if out, recap = f.play(f.dir+"/controllers.yml", "-e", "release=2025.1", "--limit", "gpu1"); recap["gpu1"].changed != "0" ||
		recap["gpu1"].failed != "0" || !strings.Contains(out, "has no scan of their hosts: nova/gone/nova-compute.conf") {
		t.Errorf("%+v: %s", recap["gpu1"], out)
	}
	f.write("config/nova/gpu2/nova.conf", "[pci]\nalias = { \"name\": \"nvme\" }\n")
	f.write("config/nova/nova-compute.conf", "[pci]\ndevice_spec: "+nic+"\n")
	if out, recap = f.play(f.dir+"/controllers.yml", "-e", "release=2025.1", "--limit", "gpu1"); recap["gpu1"].failed != "1" ||
		!strings.Contains(out, "nova/gpu2/nova.conf:2:alias") || !strings.Contains(out, "nova/nova-compute.conf:2:device_spec") {
		t.Errorf("%+v: %s", recap["gpu1"], out)
	}
}

// keepsWhitelist: where kolla-ansible below zed sets passthrough_whitelist for SR-IOV, no block replaces it.
func (f *roleFleet) keepsWhitelist(config, nic string) {
	f.t.Helper()
	for _, test := range []struct{ sriov, own, want string }{
		{"", "", "set gpustack_controller_neutron_sriov"},
		{"true", "", "nova/nova-compute.conf"},
		{"true", "[pci]\npassthrough_whitelist = " + nic + "\n", ""},
		{"no", "", ""},
	} {
		hosttest.NoError(f.t, os.RemoveAll(config+"/nova"))
		for _, host := range []string{"nova-compute.conf", "ws7/nova.conf"} {
			f.write("config/nova/"+host, test.own)
		}
		args := []string{"-e", "release=yoga", "--limit", "gpu1"}
		if test.sriov != "" {
			args = append(args, "-e", "enable_neutron_sriov="+test.sriov)
		}
		out, recap := f.play(f.dir+"/controllers.yml", args...)
		text := hosttest.Read(f.t, config+"/nova/nova-compute.conf")
		written := strings.Contains(text, `passthrough_whitelist = {"vendor_id": "10de"`)
		if failed := recap["gpu1"].failed != "0"; failed != (test.want != "") || written == failed || !strings.Contains(out, test.want) ||
			!strings.HasPrefix(text, test.own) {
			f.t.Errorf("%+v: %+v, %s\n%s", test, recap["gpu1"], text, out)
		}
	}
}
