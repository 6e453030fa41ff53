package integration

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/nova"
)

// TestAliasMeaning: two definitions of an alias that have the same meaning are supported by the
// same devices in Nova, whatever their type and NUMA node. Definitions without keys of Placement
// that are supported by the same devices have the same meaning.
func TestAliasMeaning(t *testing.T) {
	peer := startAnswerer(t, "ask_alias.py")
	var plain, all []map[string]any
	for _, kind := range []string{"", "type-PCI", "type-PF", "type-VF"} {
		for _, policy := range []string{"", "legacy", "required", "preferred"} {
			alias := map[string]any{"name": "K", "vendor_id": "10de", "product_id": "20b0"}
			if kind != "" {
				alias["device_type"] = kind
			}
			if policy != "" {
				alias["numa_policy"] = policy
			}
			plain = append(plain, alias)
		}
	}
	all = slices.Clone(plain)
	for key, value := range map[string]any{
		"name": " K ", "vendor_id": "10DE", "product_id": "20B0", "capability_type": "pci", "resource_class": "CUSTOM_PCI_10DE_20B0", "traits": "a,b",
		"live_migratable": "no",
	} {
		alias := maps.Clone(plain[0])
		alias[key] = value
		all = append(all, alias)
	}
	answers := make([]map[string]any, len(all))
	for i, alias := range all {
		text, err := json.Marshal(alias)
		hosttest.NoError(t, err)
		peer.ask(t, string(text), &answers[i])
	}
	compared, same := 0, 0
	for _, types := range [][]string{{"type-PCI"}, {"type-PF"}, {"type-VF"}, {"type-PCI", "type-VF"}, {"type-PCI", "type-PF", "type-VF"}} {
		supported := func(i int) string {
			var by []string
			for key, is := range answers[i] {
				if kind, _, _ := strings.Cut(key, "+"); is == true && slices.Contains(types, kind) {
					by = append(by, key)
				}
			}
			slices.Sort(by)
			return fmt.Sprint(by)
		}
		for i := range all {
			for k := range all {
				if answers[i]["error"] != nil || answers[k]["error"] != nil { // of a later release
					continue
				}
				compared++
				isSame := nova.SameMeaning(all[i], all[k], types)
				if isSame {
					same++
				}
				isPlain := i < len(plain) && k < len(plain) && supported(i) != "[]"
				if one, other := supported(i), supported(k); isSame && one != other || isPlain && !isSame && one == other {
					t.Errorf("%v and %v on %v: the same %t, but Nova: %s and %s", all[i], all[k], types, isSame, one, other)
				}
			}
		}
	}
	t.Logf("%d pairs, %d with the same meaning", compared, same)
}
