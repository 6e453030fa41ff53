package chain

import (
	"os/exec"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/integration/nova"
)

// TestScript: options are set in their sections and nowhere else, once, and others stay.
func TestScript(t *testing.T) {
	const text = `[DEFAULT]

# How to reach the broker (string value)
#transport_url = rabbit://
my_ip = 192.0.2.2

[placement]
#username = <None>
username = =
[neutron]
username=admin
username_format = x
`
	const want = `[DEFAULT]
transport_url = rabbit://guest@10.0.2.2:5672/?a=b

# How to reach the broker (string value)
#transport_url = rabbit://

[placement]
username = placement
endpoint_override = http://10.0.2.2:8778
#username = <None>
[neutron]
username = neutron
username_format = x
`
	settings := []setting{
		{section: "DEFAULT", key: "transport_url", value: nova.FromMachine("rabbit://guest@127.0.0.1:5672/?a=b")},
		{section: "placement", key: "username", value: "placement"},
		{section: "DEFAULT", key: "my_ip", unset: true},
		{section: "placement", key: "endpoint_override", value: nova.FromMachine("http://127.0.0.1:8778")},
		{section: "neutron", key: "username", value: "neutron"},
	}
	sed := exec.Command("sed", "-e", script(settings))
	sed.Stdin = strings.NewReader(text)
	got, err := sed.Output()
	if err != nil || string(got) != want {
		t.Errorf("%v\n%s\nwith the script\n%s", err, got, script(settings))
	}
	hosttest.EqualIn(t, "sections", "[DEFAULT] [placement] [neutron]", strings.Join(headers(settings), " "))
}
