package host_test

import (
	"slices"
	"testing"

	"gpustack/host"
)

// TestNext: where a next step is run, what it needs, and how it is said.
func TestNext(t *testing.T) {
	check := host.NewCommand("host check")
	for name, test := range map[string]struct {
		next     *host.Next
		machine  host.Place
		needs    []host.Need
		sentence string
	}{
		"a command":      {host.NewNext(check), host.Here, nil, "run 'gpustack host check'"},
		"after a reboot": {host.NewNext(check, host.NeedReboot), host.Here, []host.Need{host.NeedReboot}, "reboot, then run 'gpustack host check'"},
		"on the target":  {host.NewNext(check.Elsewhere()), host.Target, nil, "run 'gpustack host check'"},
		"of a value": {host.NewNext(host.NewCommand("flavor test").Arg("gpu.k4200.2").Flag("image", "IMAGE")), host.Here,
			[]host.Need{host.NeedValues}, "run 'gpustack flavor test gpu.k4200.2 --image IMAGE'"},
		"of an address": {host.NewNext(check.Flag("device", "0000:AB:00.0")), host.Here, nil, "run 'gpustack host check --device 0000:AB:00.0'"},
		"guests, and a reboot": {host.NewNext(check, host.NeedGuests, host.NeedReboot), host.Here, []host.Need{host.NeedGuests, host.NeedReboot},
			"stop the guests, then reboot, then run 'gpustack host check'"},
		"remedies, then that": {host.NewNext(check, host.NeedRemedies), host.Here, []host.Need{host.NeedRemedies},
			"follow the remedies below, then run 'gpustack host check'"},
	} {
		if n := test.next; n.Machine != test.machine || !slices.Equal(n.Needs, test.needs) || n.Sentence(host.Command.String) != test.sentence {
			t.Errorf("%s: %+v, %s", name, n, n.Sentence(host.Command.String))
		}
	}
}
