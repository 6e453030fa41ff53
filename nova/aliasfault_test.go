package nova_test

import (
	"fmt"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/nova"
)

// TestAliasFaults: what is wrong with an alias, and the remedy, which the release accepts.
func TestAliasFaults(t *testing.T) {
	for _, test := range []struct {
		value   string
		release nova.Release
		want    []string // Seen: Remedy
	}{
		{`{"name": "A", "numa_policy": "socket"}`, nova.Queens, []string{`alias A: numa_policy is "socket", not one of required, preferred, legacy: write one of required, preferred, legacy`}},
		{`{"name": "A", "numa_policy": "Socket"}`, nova.Victoria, []string{`alias A: numa_policy is "Socket", not one of required, preferred, legacy: write one of required, preferred, legacy`}},
		{`{"name": "A", "numa_policy": "Socket"}`, nova.Wallaby, []string{`alias A: numa_policy is "Socket", not one of required, preferred, legacy, socket: write one of required, preferred, legacy, socket`}},
		{`{"name": "A", "numa_policy": "socket"}`, nova.Wallaby, nil},
		{`{"name": 5}`, nova.Zed, []string{"the name of an alias is 5, not a string: write a text of up to 256 characters"}},
		{`{"name": null}`, nova.Zed, []string{"the name of an alias is null, not a string: write a text of up to 256 characters"}},
		{`{"name": ""}`, nova.Zed, []string{"an alias has no name: add a name"}},
		{`{"vendor_id": "10de"}`, nova.Zed, []string{"an alias has no name: add a name"}},
		// oslo.config replaces references to options, and fails at one that Nova does not have.
		{`{"name": "A$b"}`, nova.Zed, []string{"the value of alias refers to the option b, which oslo.config replaces: write $$ for a dollar sign"}},
		{`{"name": "A$B", "product_id": "${Id}"}`, nova.Zed, []string{"the value of alias refers to the options B and Id, which oslo.config replaces: write $$ for a dollar sign"}},
		{`{"name": "A$$b"}`, nova.Zed, nil},
		{`{"name": "A$100$"}`, nova.Zed, nil},
	} {
		var got []string
		_, faults := nova.AliasFaults(test.value, test.release)
		for _, f := range faults {
			got = append(got, f.Seen+": "+f.Remedy)
		}
		hosttest.EqualIn(t, fmt.Sprintf("%s of %s", test.value, test.release), test.want, got)
	}
}
