package nova

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"gpustack/host/hosttest"
)

// devices returns what nova devices prints of each device, sorted, and of each contradiction.
func devices(t *testing.T, env []string, args ...string) (lines []string) {
	t.Helper()
	stdout, stderr, status := command(t, env, append([]string{"nova", "devices", "-o", "json"}, args...)...)
	var list struct {
		Devices []struct {
			Host, Address, Product, State, Reason string
			Instance                              *struct{ Name string }
			Sources                               []string `json:"shown_by"`
		}
		Contradictions []struct{ Host, Seen string }
	}
	if err := json.Unmarshal([]byte(stdout), &list); err != nil || status != 0 {
		t.Fatalf("exit status %d, %v\n%s%s", status, err, stdout, stderr)
	}
	for _, d := range list.Devices {
		line := fmt.Sprintf("%s %s %s %s", d.Host, d.Address, d.Product, d.State)
		if d.Instance != nil {
			line += " " + d.Instance.Name
		}
		lines = append(lines, line+" by "+strings.Join(d.Sources, " and "))
	}
	for _, c := range list.Contradictions {
		lines = append(lines, "contradiction: "+c.Host+": "+c.Seen)
	}
	slices.Sort(lines)
	return lines
}

// onBoth returns the lines of the devices of both hosts, of which a server has all of one host and the
// others are free.
func onBoth(of, name, by string) (lines []string) {
	for _, host := range lab.hosts {
		for _, card := range []string{"84", "88"} {
			state := "free"
			if host == of {
				state = name
			}
			lines = append(lines, fmt.Sprintf("%s 0000:%s:00.0 K4200 %s by %s", host, card, state, by))
		}
	}
	return lines
}

// TestDevices: the databases of Nova show which server has the devices, alone and beside the API.
func TestDevices(t *testing.T) {
	nova := compute(t)
	server := request(t, nova, newFlavor(t, nova, "devices-two", 2), "", "ACTIVE")
	want := onBoth(hostOfServer(t, server), "instance "+t.Name(), "database")
	conf := []string{"--conf", "controller=" + lab.NovaConf}
	hosttest.EqualIn(t, "database alone", want, devices(t, nil, conf...))
	hosttest.EqualIn(t, "database and API", want, devices(t, lab.Env(), conf...))
	remove(t, nova, server)
	hosttest.EqualIn(t, "without the server", onBoth("", "", "database"), devices(t, nil, conf...))
}
