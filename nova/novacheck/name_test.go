package novacheck_test

import (
	"fmt"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/nova"
	"gpustack/nova/conf"
	"gpustack/nova/novacheck"
)

// TestNames: names that differ in case only, across files and flavors.
func TestNames(t *testing.T) {
	const lower = `{"name": "k4200", "vendor_id": "10de", "product_id": "11b4"}`
	for name, test := range map[string]struct {
		ctl, node string // what follows the aliases and specs that are right
		flavor    string
		want      []string // findings, with the remedy
	}{
		"the same":       {"alias = " + k4200 + "\n", "alias = " + k4200 + "\n", "K4200:2", nil},
		"on one side":    {"alias = " + k4200 + "\n", "alias = " + lower + "\n", "", []string{"fail node:2 alias k4200 differs in case only from alias K4200 (ctl:2): use one name: gpustack nova configure --role compute --remove-alias k4200 --alias K4200=10de:11b4"}},
		"the other side": {"alias = " + lower + "\n", "alias = " + k4200 + "\n", "", []string{"fail node:2 alias K4200 differs in case only from alias k4200 (ctl:2): use one name: gpustack nova configure --role compute --remove-alias K4200 --alias k4200=10de:11b4"}},
		"one is everywhere": {"alias = " + k4200 + "\n", "alias = " + k4200 + "\nalias = " + lower + "\n", "",
			[]string{"fail node:3 alias k4200 differs in case only from alias K4200 (ctl:2): use one name: gpustack nova configure --role compute --remove-alias k4200 --alias K4200=10de:11b4"}},
		"both on both": {"alias = " + k4200 + "\nalias = " + lower + "\n", "alias = " + k4200 + "\nalias = " + lower + "\n", "",
			[]string{"warn ctl:3 alias k4200 differs in case only from alias K4200 (ctl:2): use one of the names in the files and the flavors"}},
		"a flavor": {"alias = " + k4200 + "\n", "alias = " + k4200 + "\n", "k4200:2",
			[]string{"fail :0 flavor gpu requests alias k4200, which differs in case only from alias K4200 (ctl:2): openstack flavor set --property pci_passthrough:alias=K4200:2 gpu"}},
		"another flavor": {"alias = " + k4200 + "\n", "alias = " + k4200 + "\n", "T4:1",
			[]string{"fail :0 flavor gpu requests alias T4, which no file defines: define the alias or correct the flavor; names are case-sensitive"}},
		"typed": {"alias = " + strings.Replace(k4200, "}", `, "device_type": "type-PCI"}`, 1) + "\n", "alias = " + strings.Replace(lower, "}", `, "device_type": "type-PCI"}`, 1) + "\n", "",
			[]string{"fail node:2 alias k4200 differs in case only from alias K4200 (ctl:2): use one name: gpustack nova configure --role compute --remove-alias k4200 --alias K4200=10de:11b4,device_type=type-PCI"}},
	} {
		t.Run(name, func(t *testing.T) {
			side := func(role nova.Role, name, text string) nova.Side {
				f, err := conf.Parse([]byte(text))
				hosttest.NoError(t, err)
				return nova.Side{Role: role, Files: []conf.Source{{Name: name, File: f}}}
			}
			var flavors []novacheck.Flavor
			if test.flavor != "" {
				flavors = []novacheck.Flavor{{Name: "gpu", Request: test.flavor}}
			}
			findings := novacheck.Run(nova.Zed, []nova.Side{
				side(nova.Controller, "ctl", "[pci]\n"+test.ctl+"[filter_scheduler]\nenabled_filters = ComputeFilter,PciPassthroughFilter\n"),
				side(nova.Compute, "node", "[pci]\n"+test.node+"device_spec = {\"vendor_id\": \"10de\", \"product_id\": \"11b4\"}\n"),
			}, nil, flavors)
			var got []string
			for _, f := range findings {
				got = append(got, fmt.Sprintf("%s %s:%d %s: %s", f.Status, f.File, f.Line, f.Seen, f.Remedy))
			}
			hosttest.Equal(t, test.want, got)
		})
	}
}
