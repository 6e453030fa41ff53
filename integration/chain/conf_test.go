package chain

import (
	"errors"
	"testing"

	"gpustack/integration/nova"
)

// TestConfigured: options are set in their sections and nowhere else, once, and others stay.
func TestConfigured(t *testing.T) {
	const text = `[DEFAULT]

# How to reach the broker (string value)
#transport_url = rabbit://

my_ip = 192.0.2.2

[placement]
#username = <None>
username = =
[neutron]
username = admin
`
	const want = `[DEFAULT]

# How to reach the broker (string value)
#transport_url = rabbit://
transport_url = rabbit://guest@10.0.2.2:5672/?a=b


[placement]
endpoint_override = http://10.0.2.2:8778
#username = <None>
username = placement
[neutron]
username = admin
`
	got, err := configured(text, []setting{
		{section: "DEFAULT", key: "transport_url", value: nova.FromMachine("rabbit://guest@127.0.0.1:5672/?a=b")},
		{section: "DEFAULT", key: "my_ip", unset: true},
		{section: "placement", key: "username", value: "placement"},
		{section: "placement", key: "endpoint_override", value: nova.FromMachine("http://127.0.0.1:8778")},
	})
	if err != nil || got != want {
		t.Errorf("%v\n%s", err, got)
	}
	if _, err := configured(text, []setting{{section: "glance", key: "endpoint_override"}}); !errors.Is(err, errNoSection) {
		t.Errorf("a section that is missing: %v", err)
	}
}
