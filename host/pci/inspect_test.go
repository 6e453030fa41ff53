package pci_test

import (
	"fmt"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/pci"
)

// a100 is the resource file of an A100: 16 MiB, 64 GiB and 32 MiB, then the places of
// its virtual functions' memory.
const a100 = `0x00000000d1000000 0x00000000d1ffffff 0x0000000000040200
0x0000380000000000 0x0000380fffffffff 0x000000000014220c
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x0000381000000000 0x0000381001ffffff 0x000000000014220c
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x00000000d2000000 0x00000000d207ffff 0x0000000000046200
0x0000000000000000 0x0000000000ffffff 0x0000000000140204
`

const none = "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"

func TestInspect(t *testing.T) {
	const dir = "sys/bus/pci/devices/0000:01:00.0/"
	header := "\xde\x10\xb4\x11" + strings.Repeat("\xff", 60)
	for _, test := range []struct {
		name, tree, want string
	}{
		{"nothing is shown", "-- " + dir + "class --\n", "answers unknown, resets false, BARs null"},
		{"a card that answers", "-- " + dir + "config --\n" + header + "\n", "answers yes, resets false, BARs null"},
		{"one that does not", "-- " + dir + "config --\n" + strings.Repeat("\xff", 256) + "\n", "answers no, resets false, BARs null"},
		{"one with a reset", "-- " + dir + "reset --\n", "answers unknown, resets true, BARs null"},
		{"large BARs", "-- " + dir + "resource --\n" + a100,
			"answers unknown, resets false, BARs [{0 16777216 false false false} {1 68719476736 true true false} {3 33554432 true true false}]"},
		{"a BAR without a place", "-- " + dir + "resource --\n0x0000000000000000 0x0000000fffffffff 0x000000002014220c\n",
			"answers unknown, resets false, BARs [{0 68719476736 true true true}]"},
		{"a BAR that the kernel gave up", "-- " + dir + "resource --\n0x00000000d1000000 0x00000000d1ffffff 0x0000000000040200\n" + strings.Repeat(none, 5) +
			"-- " + dir + "config --\n\xde\x10\xb4\x11" + strings.Repeat("\x00", 12) + "\x00\x00\x00\xd1" + "\x0c\x00\x00\x00\x00\x38\x00\x00" + "\x01\xe0\x00\x00" + strings.Repeat("\x00", 32) + "\n",
			"answers yes, resets false, BARs [{0 16777216 false false false} {1 0 true true true}]"},
		{"ports are no memory", "-- " + dir + "resource --\n0x000000000000e000 0x000000000000e07f 0x0000000000040101\n",
			"answers unknown, resets false, BARs []"},
		{"no resource", "-- " + dir + "resource --\n0x0 0x1\n",
			`answers unknown, resets false, BARs null; /sys/bus/pci/devices/0000:01:00.0/resource: not a region: "0x0 0x1"`},
		{"a region that ends before it begins", "-- " + dir + "resource --\n0x2 0x1 0x200\n",
			`answers unknown, resets false, BARs null; /sys/bus/pci/devices/0000:01:00.0/resource: not a region: "0x2 0x1 0x200"`},
		{"files that cannot be read", "mkdir " + dir + "config\nmkdir " + dir + "resource\n-- x --\n",
			"answers unknown, resets false, BARs null; /sys/bus/pci/devices/0000:01:00.0/config: is a directory; " +
				"/sys/bus/pci/devices/0000:01:00.0/resource: is a directory"},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := hosttest.Address(t, "0000:01:00.0")
			all, warnings := pci.Inspect(hosttest.Lay(t, test.tree), []pci.Device{{Address: a}})
			i := all[a]
			answers, bars := i.Answers, "null"
			if i.BARs != nil {
				bars = fmt.Sprint(i.BARs)
			}
			got := fmt.Sprintf("answers %s, resets %t, BARs %s", answers, i.Resets, bars)
			hosttest.Equal(t, test.want, strings.Join(append([]string{got}, warnings...), "; "))
		})
	}
}

// FuzzResource: whatever the file says, it is refused or read as six regions at most,
// none of them empty.
func FuzzResource(f *testing.F) {
	f.Add(a100)
	f.Add("0x0 0xffffffffffffffff 0x200\n")
	f.Fuzz(func(t *testing.T, text string) {
		bars, err := pci.ParseResource(text)
		if err != nil && bars != nil || len(bars) > 6 {
			t.Fatalf("%v, %v", bars, err)
		}
		for _, b := range bars {
			if b.Size < 2 || b.Number > 5 {
				t.Errorf("%+v", b)
			}
		}
	})
}
