package chain

import (
	"fmt"
	"slices"
	"strings"

	"gpustack/integration/nova"
)

// A setting is an option of nova.conf and the value that a site gives it.
type setting struct {
	section, key string
	value        string
	unset        bool // the option is not set at all
}

// site is what a site changes in Debian's nova.conf on a compute node.
func site(lab *nova.Lab, myIP string) []setting {
	all := []setting{
		{section: "DEFAULT", key: "transport_url", value: nova.FromMachine(lab.RabbitURL())},
		{section: "DEFAULT", key: "my_ip", value: myIP},
		// A guest's disk is a copy of its image: no qemu-img runs for it, which takes seconds.
		{section: "DEFAULT", key: "use_cow_images", value: "false"},
		{section: "libvirt", key: "images_type", value: "raw"},
		// The processor is emulated, and the guest's in it.
		{section: "libvirt", key: "cpu_mode", value: "custom"},
		{section: "libvirt", key: "cpu_models", value: "qemu64"},
		{section: "vnc", key: "enabled", value: "false"},
		{section: "spice", key: "enabled", value: "false"},
		// Calls take their time, and periodic tasks that prove nothing here are off.
		{section: "DEFAULT", key: "rpc_response_timeout", value: "180"},
		{section: "DEFAULT", key: "heal_instance_info_cache_interval", value: "-1"},
		{section: "image_cache", key: "manager_interval", value: "-1"},
		// nova-compute has no database: Debian's file names one.
		{section: "database", key: "connection", unset: true},
		{section: "glance", key: "endpoint_override", value: nova.FromMachine(lab.GlanceURL)},
	}
	for _, s := range []struct{ section, user, endpoint string }{
		{"keystone_authtoken", "nova", ""},
		{"placement", "placement", lab.PlacementURL},
		{"neutron", "neutron", lab.NeutronURL},
	} {
		for _, option := range [][2]string{
			{"auth_type", "password"}, {"auth_url", nova.FromMachine(lab.KeystoneURL)}, {"username", s.user}, {"password", lab.ServicePassword}, {"project_name", "service"},
			{"user_domain_name", "Default"}, {"project_domain_name", "Default"}, {"region_name", nova.Region},
		} {
			all = append(all, setting{section: s.section, key: option[0], value: option[1]})
		}
		// The catalog has the addresses of the machine outside.
		if s.endpoint != "" {
			all = append(all, setting{section: s.section, key: "endpoint_override", value: nova.FromMachine(s.endpoint)})
		}
	}
	return all
}

// script returns what sed(1) does to nova.conf for settings: in each section, lines that set the
// options go, and those of the settings follow the section's header. All else stays. It runs in the
// machine, as the file of Debian has 10,000 lines, which take long to pass through a serial port.
func script(settings []setting) string {
	var sections []string
	drop, add := map[string]string{}, map[string]string{}
	for _, s := range settings {
		if !slices.Contains(sections, s.section) {
			sections = append(sections, s.section)
		}
		drop[s.section] += fmt.Sprintf("/^%s *=/d\n", s.key)
		if !s.unset {
			add[s.section] += fmt.Sprintf("\\\n%s = %s", s.key, s.value)
		}
	}
	var b strings.Builder
	for _, section := range sections {
		header := `/^\[` + section + `\]$/`
		// The range ends with the next section's header.
		fmt.Fprintf(&b, "%s,/^\\[/{\n%s", header, drop[section])
		if add[section] != "" {
			fmt.Fprintf(&b, "%sa%s\n", header, add[section])
		}
		b.WriteString("}\n")
	}
	return b.String()
}

// headers returns the lines that begin the sections of settings.
func headers(settings []setting) (lines []string) {
	for _, s := range settings {
		if header := "[" + s.section + "]"; !slices.Contains(lines, header) {
			lines = append(lines, header)
		}
	}
	return lines
}
