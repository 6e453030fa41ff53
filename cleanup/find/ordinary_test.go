package find

import (
	"hash/crc32"
	"math"
	"strconv"
	"testing"

	"gpustack/cleanup"
	"gpustack/host/hosttest"
)

const someUUID = "5f0c1c9e-0000-4000-8000-00000000000a"

// TestParseUUID: only the form in which Nova writes a uuid is canonical.
func TestParseUUID(t *testing.T) {
	for text, want := range map[string][2]bool{
		someUUID:                                {true, true},
		"5F0C1C9E-0000-4000-8000-00000000000A":  {false, true},
		someUUID + "  ":                         {false, true},
		someUUID + "0":                          {},
		"5f0c1c9e000040008000-00000000000a----": {},
		"5f0c1c9g-0000-4000-8000-00000000000a":  {},
		"0000-0000000000000000000000000000000":  {},
		"":                                      {},
	} {
		id, canonical, ok := parseUUID([]byte(text))
		if got := [2]bool{canonical, ok}; got != want || ok && id.String() != someUUID {
			t.Errorf("%q: %s, %v", text, id, got)
		}
	}
}

// TestManyRows: an instance with more rows than are counted is judged.
func TestManyRows(t *testing.T) {
	many := owners{}
	for range math.MaxUint16 + 1 {
		many.add(uuid{}, 0, 0)
	}
	if many[uuid{}].state != doubted {
		t.Errorf("%+v", many[uuid{}])
	}
}

// ordinary returns a tally of one node, and the columns of an ordinary row and its records.
func ordinary() (t *tally, device, instance, extra values) {
	r := &reader{nodes: nodes{rows: []nodeRow{{id: 7, host: part{0, 4}, name: part{0, 4}}}, byHost: []int32{0}, texts: "gpu1"}}
	text := func(columns ...string) (v values) {
		for _, c := range columns {
			v = append(v, []byte(c))
		}
		return v
	}
	return &tally{reader: r, plain: []bool{true}, owners: owners{}},
		text("1", someUUID, "7", cleanup.StatusAllocated, strconv.Itoa(int(crc32.ChecksumIEEE([]byte(someUUID))))),
		append(text("2", someUUID, "gpu1", "gpu1"), nil),
		text("3", someUUID, `[{"count": 1, "spec": [{"vendor_id": "10de", "product_id": "11b4"}], "alias_name": "a", "is_new": false, "request_id": "`+someUUID+`"}]`, "1")
}

// TestOrdinaryRow: what makes the rows of an instance doubtful.
func TestOrdinaryRow(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(device, instance, extra values)
		settled bool
		ids     []int64
	}{
		"ordinary":              {settled: true},
		"claimed":               {change: func(device, _, _ values) { device[3] = []byte("claimed") }, settled: true},
		"no request":            {change: func(_, _, extra values) { extra[2] = nil }, settled: true},
		"another request":       {change: func(device, _, _ values) { device[4] = []byte("7") }},
		"another status":        {change: func(device, _, _ values) { device[3] = []byte("Allocated") }, ids: []int64{1}},
		"an uuid in capitals":   {change: func(device, _, _ values) { device[1] = []byte("5F0C1C9E-0000-4000-8000-00000000000A") }, ids: []int64{1}},
		"another host":          {change: func(_, instance, _ values) { instance[2] = []byte("gpu2") }},
		"another node":          {change: func(_, instance, _ values) { instance[3] = []byte("gpu1.x") }},
		"no host":               {change: func(_, instance, _ values) { instance[2] = nil }},
		"a migration_context":   {change: func(_, _, extra values) { extra[3] = []byte("0") }},
		"no devices requested":  {change: func(_, _, extra values) { extra[2] = []byte("[]") }},
		"unreadable requests":   {change: func(_, _, extra values) { extra[2] = []byte("x") }},
		"its compute_id":        {change: func(_, instance, _ values) { instance[4] = []byte("7") }, settled: true},
		"another compute_id":    {change: func(_, instance, _ values) { instance[4] = []byte("8") }},
		"an instance's capital": {change: func(_, instance, _ values) { instance[1] = []byte("5F0C1C9E-0000-4000-8000-00000000000A") }},
	} {
		t.Run(name, func(t *testing.T) {
			tally, device, instance, extra := ordinary()
			if test.change != nil {
				test.change(device, instance, extra)
			}
			for _, err := range []error{tally.device(device, 0), tally.onNode(instance), tally.extra(extra)} {
				hosttest.NoError(t, err)
			}
			hosttest.Equal(t, test.ids, tally.ids)
			for _, o := range tally.owners {
				if o.settled() != test.settled {
					t.Errorf("%+v", o)
				}
			}
		})
	}
}

// TestTwice: two records of one instance, of which Nova writes one, make its rows doubtful.
func TestTwice(t *testing.T) {
	for name, twice := range map[string]func(t *tally, instance, extra values) error{
		"instances":      func(t *tally, instance, _ values) error { return t.onNode(instance) },
		"instance_extra": func(t *tally, _, extra values) error { return t.extra(extra) },
		"migrations":     func(t *tally, instance, _ values) error { return t.open(instance) },
	} {
		tally, device, instance, extra := ordinary()
		for _, err := range []error{tally.device(device, 0), tally.onNode(instance), tally.extra(extra), twice(tally, instance, extra)} {
			hosttest.NoError(t, err)
		}
		for _, o := range tally.owners {
			if o.settled() {
				t.Errorf("%s: %+v", name, o)
			}
		}
	}
}

// TestOrdinaryRowsAllocateNothing: no row and no record of an instance that is known costs memory.
func TestOrdinaryRowsAllocateNothing(t *testing.T) {
	tally, device, instance, extra := ordinary()
	hosttest.NoError(t, tally.device(device, 0))
	n := testing.AllocsPerRun(100, func() {
		for _, err := range []error{tally.device(device, 0), tally.onNode(instance), tally.extra(extra), tally.open(instance)} {
			hosttest.NoError(t, err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}
