package chain

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A setting is an option of nova.conf and the value that a site gives it.
type setting struct {
	section, key string
	value        string
	unset        bool // the option is not set at all
}

// Controllers is what a compute node has to know of the controllers, as a program on the machine
// outside reaches them: at 127.0.0.1.
type Controllers struct {
	TransportURL                                     string // of RabbitMQ
	KeystoneURL, PlacementURL, GlanceURL, NeutronURL string
	Region, ServicePassword                          string
}

// seen is an address of the machine outside as the machines see it (QEMU's -netdev user).
func seen(url string) string {
	return strings.ReplaceAll(url, "127.0.0.1", "10.0.2.2")
}

// site is what a site changes in Debian's nova.conf on a compute node.
func site(c Controllers, myIP string) []setting {
	all := []setting{
		{section: "DEFAULT", key: "transport_url", value: seen(c.TransportURL)},
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
		{section: "glance", key: "endpoint_override", value: seen(c.GlanceURL)},
	}
	for _, s := range []struct{ section, user, endpoint string }{
		{"keystone_authtoken", "nova", ""},
		{"placement", "placement", c.PlacementURL},
		{"neutron", "neutron", c.NeutronURL},
	} {
		for _, option := range [][2]string{
			{"auth_type", "password"}, {"auth_url", seen(c.KeystoneURL)}, {"username", s.user}, {"password", c.ServicePassword}, {"project_name", "service"},
			{"user_domain_name", "Default"}, {"project_domain_name", "Default"}, {"region_name", c.Region},
		} {
			all = append(all, setting{section: s.section, key: option[0], value: option[1]})
		}
		// The catalog has the addresses of the machine outside.
		if s.endpoint != "" {
			all = append(all, setting{section: s.section, key: "endpoint_override", value: seen(s.endpoint)})
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
