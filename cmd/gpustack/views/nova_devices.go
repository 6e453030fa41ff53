package views

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/operate/cloud"
)

// NovaDevices is the output of nova devices (docs/json.md).
type NovaDevices struct {
	Schema int `json:"schema"`
	cloud.DeviceList
}

// Elsewhere reports that the remedies are for the machines that they name.
func (r NovaDevices) Elsewhere() bool { return true }

// Print prints the report as text.
func (r NovaDevices) Print(u *term.UI) {
	u.Warn(r.Warnings...)
	rows := host.Map(r.Devices, func(d cloud.Device) []string {
		state := string(d.State) + either(d.Case != "", " (case "+string(d.Case)+")", "")
		i := host.Value(d.Instance)
		instance := either(i.Name != "", i.Name+" of "+i.Project+" ("+i.UUID+")", i.UUID)
		since := either(d.Since != nil, host.Value(d.Since).UTC().Format(time.RFC3339), "")
		return []string{d.Host, d.Address, d.Product, strings.Join(d.Aliases, ", "), state,
			term.Sentence(instance, d.Reason), since, strings.Join(d.Sources, ", ")}
	})
	if len(rows) > 0 {
		u.Table([]string{"HOST", "ADDRESS", "PRODUCT", "ALIAS", "STATE", "SEEN", "SINCE", "SHOWN BY"}, rows)
		u.Printf("\n")
	}
	for _, c := range r.Contradictions {
		at := strings.TrimSpace(c.Host + " " + c.Address)
		u.Printf("contradiction: %s: %s\n  %s\n", term.Printable(at), term.OneLine(c.Seen), term.Elsewhere(c.Remedy))
	}
	toClean := host.Map(host.Filter(r.Devices, func(d cloud.Device) bool { return d.State == cloud.DeviceToClean }), func(d cloud.Device) string {
		return fmt.Sprintf("to clean: %s %s: %s\n", term.Printable(d.Host), d.Address, term.Elsewhere(d.Remedy))
	})
	u.Printf("%s", strings.Join(slices.Compact(toClean), "")) // VFs of one provider are equal here
	for _, t := range r.Totals {
		parts := []string{host.Numbered(t.Total, "device")}
		for _, state := range cloud.DeviceStates() {
			if n := t.States[state]; n > 0 {
				parts = append(parts, fmt.Sprintf("%d %s", n, state))
			}
		}
		u.Printf("%s: %s\n", term.Printable(t.Product+after(" in ", t.Zone)), strings.Join(parts, ", "))
	}
	if len(r.Totals) == 0 {
		u.Printf("no devices\n")
	}
}
