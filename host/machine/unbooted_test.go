package machine

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/hosttest"
)

// TestUnbooted: what is recorded for containers takes no boot, and changes nothing of what is known
// about the record of guests.
func TestUnbooted(t *testing.T) {
	at := func(second int) time.Time { return time.Unix(int64(second), 0) }
	// entry returns an entry of a second that ends in it.
	entry := func(second int, command, before, after string) change.Entry {
		state := func(hash string) string {
			if hash == "" {
				return "null"
			}
			return fmt.Sprintf(`{"hash":%q}`, hash)
		}
		ended := at(second)
		about := &change.Topic{Subject: change.OfGuests}
		if strings.HasPrefix(command, "container ") {
			about.Subject = change.OfContainers
		}
		e := change.Entry{ID: second, About: about, Changes: change.KindFiles, Command: command, Status: change.Done, Started: at(second), Ended: &ended,
			Programs: []host.Program{{Kind: host.RevertBoot}}}
		text := fmt.Sprintf(`[{"name":%q,"before":%s,"after":%s}]`, ContractFile, state(before), state(after))
		hosttest.NoError(t, json.Unmarshal([]byte(text), &e.Files))
		return e
	}
	const prepare, containers = "host prepare --device 0000:84:00.0", "container prepare --device 0000:88:00.0"
	for name, test := range map[string]struct {
		entries  []change.Entry
		booted   int
		unbooted bool
		written  int // 0: never
	}{
		"nothing":               {nil, 5, false, 0},
		"guests before":         {[]change.Entry{entry(1, prepare, "", "g")}, 5, false, 1},
		"guests since":          {[]change.Entry{entry(6, prepare, "", "g")}, 5, true, 6},
		"containers only":       {[]change.Entry{entry(6, containers, "", "c")}, 5, false, 0},
		"containers since":      {[]change.Entry{entry(1, prepare, "", "g"), entry(6, containers, "g", "g c")}, 5, false, 1},
		"containers, both ways": {[]change.Entry{entry(1, prepare, "", "g"), entry(6, containers, "g", "g c"), entry(7, prepare, "g c", "g2 c"), entry(8, prepare, "g2 c", "g c")}, 5, false, 8},
		"guests after containers": {[]change.Entry{entry(1, prepare, "", "g"), entry(6, containers, "g", "g c"), entry(7, prepare, "g c", "g2 c"),
			entry(8, "container prepare --none", "g2 c", "g2")}, 5, true, 7},
		"returned, containers stay": {[]change.Entry{entry(1, containers, "", "c"), entry(6, prepare, "c", "g c"), entry(7, "host prepare --none", "g c", "c")}, 5, false, 7},
	} {
		hosttest.EqualIn(t, name, test.unbooted, unbooted(test.entries, at(test.booted)))
		got := 0
		if written := writtenAt(test.entries); written != nil {
			got = int(written.Unix())
		}
		hosttest.EqualIn(t, name+": written at", test.written, got)
	}
}
