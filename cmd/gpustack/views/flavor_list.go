package views

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/nova"
	"gpustack/nova/flavor"
	clouds "gpustack/operate/cloud"
)

// FlavorList is the output of flavor list (docs/json.md).
type FlavorList struct {
	Schema   int                   `json:"schema"`
	Cloud    string                `json:"cloud"`    // the address of Nova's API
	Flavors  []clouds.ListedFlavor `json:"flavors"`  // the flavors that request devices, by name
	Warnings []string              `json:"warnings"` // what the user has no permission to read
}

// PrintFlavors prints the flavors as text. checked says that they were checked against what compute
// nodes offer.
func PrintFlavors(u *term.UI, r FlavorList, checked bool) {
	u.Warn(r.Warnings...)
	if len(r.Flavors) == 0 {
		u.Printf("no flavor requests devices\n")
		return
	}
	header := []string{"NAME", "DEVICES", "CAN BE MET", "VCPUS", "RAM", "DISK", "ACCESS", "OTHER PROPERTIES"}
	tableWith(u, "CAN BE MET", checked, header, host.Map(r.Flavors, func(f clouds.ListedFlavor) []string {
		disk := flavor.Size(f.Disk, flavor.GiB) + either(f.Ephemeral > 0, " + "+flavor.Size(f.Ephemeral, flavor.GiB), "")
		return []string{f.Name, f.ExtraSpecs[nova.RequestKey], met(f), fmt.Sprint(f.VCPUs), flavor.Size(f.RAM, flavor.MiB), disk, access(f), others(f)}
	}))
}

func access(f clouds.ListedFlavor) string {
	switch {
	case f.Public:
		return "public"
	case f.Projects == nil:
		return "private"
	case len(f.Projects) == 0:
		return "private, no project"
	}
	return strings.Join(f.Projects, ", ")
}

// others returns the properties other than the request for devices.
func others(f clouds.ListedFlavor) string {
	var words []string
	for _, key := range slices.Sorted(maps.Keys(f.ExtraSpecs)) {
		if key != nova.RequestKey {
			words = append(words, key+"="+f.ExtraSpecs[key])
		}
	}
	return strings.Join(words, " ")
}

func met(f clouds.ListedFlavor) string {
	switch {
	case f.Reason != "":
		return "no: " + f.Reason
	case !f.Met.Known():
		return "unknown"
	}
	return "by " + strings.Join(f.Hosts, ", ")
}
