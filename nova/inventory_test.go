package nova_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"gpustack/host/document"
	"gpustack/nova"
)

// TestInventories: what an inventory says of its list decides whether it is read, and each host has
// its names.
func TestInventories(t *testing.T) {
	inventory := func(host, fields string) string {
		return fmt.Sprintf(`{"schema": 1, "kind": "host scan", "host": %s, %s "devices": [{"address": "0000:84:00.0"}], "warnings": []}`, host, fields)
	}
	const gpu1 = `"gpu1.example.org", "nova_host": "nova1"`
	for name, test := range map[string]struct {
		text string
		need nova.Scope
		want string // names of the hosts
		err  error
	}{
		"gpus":             {inventory(gpu1, `"scope": "gpus", "complete": true,`), nova.ScopeGPUs, "gpu1.example.org/nova1", nil},
		"all":              {inventory(gpu1, `"scope": "all", "complete": true,`), nova.ScopeAll, "gpu1.example.org/nova1", nil},
		"more than needed": {inventory(gpu1, `"scope": "all", "complete": true,`), nova.ScopeGPUs, "gpu1.example.org/nova1", nil},
		"gpus only":        {inventory(gpu1, `"scope": "gpus", "complete": true,`), nova.ScopeAll, "", nova.ErrNotAll},
		"filtered":         {inventory(gpu1, `"scope": "filtered", "complete": false,`), nova.ScopeGPUs, "", nova.ErrPartial},
		"filtered, of all": {inventory(gpu1, `"scope": "filtered", "complete": false,`), nova.ScopeAll, "", nova.ErrNotAll},
		"unread":           {inventory(gpu1, `"scope": "all", "complete": false,`), nova.ScopeAll, "", nova.ErrPartial},
		"unread, of a function": {strings.Replace(inventory(gpu1, `"scope": "all", "complete": false,`), `84:00.0"}`,
			`84:00.0", "warnings": ["cannot read class"]}`, 1), nova.ScopeAll, "",
			errors.New("as its warnings say; 0000:84:00.0: cannot read class")},
		"no names":                {inventory(`null, "nova_host": null`, ""), nova.ScopeGPUs, "standard input/standard input", nil},
		"two hosts":               {inventory(gpu1, "") + "\n" + inventory(`"gpu1.example.org", "nova_host": "nova2"`, ""), nova.ScopeGPUs, "gpu1.example.org/nova1 gpu1.example.org/nova2", nil},
		"one host, twice":         {inventory(gpu1, "") + "\n" + inventory(gpu1, ""), nova.ScopeGPUs, "", nova.ErrTwice},
		"one name in Nova, twice": {inventory(gpu1, "") + "\n" + inventory(`"x", "nova_host": "nova1"`, ""), nova.ScopeGPUs, "", nova.ErrTwice},
		"a field of another type": {inventory(`["gpu1"]`, ""), nova.ScopeGPUs, "", errors.New("standard input: malformed: ")},
		"a device type that Nova has not": {strings.Replace(inventory(gpu1, ""), `84:00.0"}`, `84:00.0", "device_type": "type-XF"}`, 1), nova.ScopeGPUs, "",
			errors.New(`standard input: malformed: "type-XF" is not a type of devices in Nova: type-PCI, type-PF or type-VF`)},
		"no device": {`{"schema": 1, "kind": "host scan", "host": "x", "devices": [], "warnings": []}`, nova.ScopeGPUs, "x/x", nil},
	} {
		t.Run(name, func(t *testing.T) {
			hosts, err := nova.ReadInventories(document.Source{Paths: []string{document.Stdin}, Stdin: strings.NewReader(test.text)}, test.need)
			var names []string
			for _, h := range hosts {
				names = append(names, h.Name+"/"+h.InNova())
			}
			if err == nil && strings.Join(names, " ") != test.want {
				t.Errorf("%q instead of %s", names, test.want)
			}
			if (err == nil) != (test.err == nil) || err != nil && !errors.Is(err, test.err) && !strings.Contains(err.Error(), test.err.Error()) {
				t.Errorf("error %v instead of %v", err, test.err)
			}
		})
	}
	h := nova.Host{Name: "gpu1.example.org", NovaHost: "nova1"}
	for name, want := range map[string]bool{"gpu1": true, "gpu1.example.org": true, "nova1": true, "gpu": false, "": false} {
		if h.Named(name) != want {
			t.Errorf("%+v is named %q: %t", h, name, !want)
		}
	}
}
