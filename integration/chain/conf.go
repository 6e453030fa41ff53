package chain

import (
	"errors"
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

// errNoSection means that nova.conf is not the one that Debian ships, which has all sections.
var errNoSection = errors.New("no such section")

// configured returns nova.conf with settings: each below the comment that describes its option, as
// an administrator writes it there, or else as the first line of its section. All else stays.
func configured(text string, settings []setting) (string, error) {
	lines := strings.Split(text, "\n")
	var problems []error
	for _, s := range settings {
		begin := slices.Index(lines, "["+s.section+"]")
		if begin < 0 {
			problems = append(problems, fmt.Errorf("[%s] %s: %w", s.section, s.key, errNoSection))
			continue
		}
		end := len(lines)
		if next := slices.IndexFunc(lines[begin+1:], func(line string) bool { return strings.HasPrefix(line, "[") }); next >= 0 {
			end = begin + 1 + next
		}
		var section []string
		at := 1
		for _, line := range lines[begin:end] {
			key, _, isOption := strings.Cut(line, "=")
			key = strings.TrimSpace(key)
			if isOption && key == s.key {
				continue
			}
			section = append(section, line)
			if isOption && strings.TrimSpace(strings.TrimPrefix(key, "#")) == s.key {
				at = len(section)
			}
		}
		if !s.unset {
			section = slices.Insert(section, at, s.key+" = "+s.value)
		}
		lines = slices.Concat(lines[:begin], section, lines[end:])
	}
	return strings.Join(lines, "\n"), errors.Join(problems...)
}
