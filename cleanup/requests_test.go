package cleanup

import (
	"fmt"
	"strings"
	"testing"

	"gpustack/host/hosttest"
)

// TestMatch: a request's specs are compared with a device as Nova compares them, and what
// no row shows of a device is unknown.
func TestMatch(t *testing.T) {
	pci := Device{Vendor: "10de", Product: "11b4", Type: TypePCI}
	pf := Device{Vendor: "10de", Product: "20b0", Type: TypePF}
	for name, test := range map[string]struct {
		device Device
		specs  string
		want   string // "true", "false" or what is unknown
	}{
		"ids":                         {pci, `{"vendor_id": "10de", "product_id": "11b4"}`, "true"},
		"ids in capitals":             {pci, `{"vendor_id": "10DE", "product_id": "11B4"}`, "true"},
		"and the type":                {pci, `{"vendor_id": "10de", "product_id": "11b4", "dev_type": "type-PCI"}`, "true"},
		"another product":             {pci, `{"vendor_id": "10de", "product_id": "11b5"}`, "false"},
		"the second spec":             {pci, `{"product_id": "11b5"}, {"product_id": "11b4"}`, "true"},
		"anything":                    {pci, `{}`, "true"},
		"no spec":                     {pci, ``, "false"},
		"null":                        {pci, `{"vendor_id": null}`, "false"},
		"a PF that is not named":      {pf, `{"vendor_id": "10de", "product_id": "20b0"}`, "false"},
		"a PF":                        {pf, `{"vendor_id": "10de", "product_id": "20b0", "dev_type": "type-PF"}`, "true"},
		"its resource class":          {pci, `{"resource_class": "PCI_10de_11b4"}`, "true"},
		"another class":               {pci, `{"resource_class": "GPU"}`, "resource_class GPU"},
		"traits":                      {pci, `{"product_id": "11b4", "traits": "A"}`, "traits A"},
		"traits of another product":   {pci, `{"product_id": "11b5", "traits": "A"}`, "false"},
		"unknown, and one that it is": {pci, `{"live_migratable": "true"}, {"product_id": "11b4"}`, "true"},
	} {
		t.Run(name, func(t *testing.T) {
			list, err := ParseRequests(`[{"count": 1, "request_id": null, "spec": [` + test.specs + `]}]`)
			hosttest.NoError(t, err)
			ok, unknown := list[0].match(test.device)
			got := fmt.Sprint(ok)
			if unknown != "" {
				got = unknown
			}
			if got != test.want || ok && unknown != "" {
				t.Errorf("%v, unknown %q", ok, unknown)
			}
		})
	}
}

// TestLacking: an instance's devices are set against its requests, by their ids, or
// before Zed by their specs.
func TestLacking(t *testing.T) {
	held := func(product, request string) Held {
		d := Device{Address: "0000:84:00.0", Vendor: "10de", Product: product, Type: TypePCI}
		if request != "" {
			d.Request = &request
		}
		return Held{Device: d}
	}
	request := func(id, product string, count int) Request {
		return Request{ID: id, Count: count, Specs: []map[string]any{{"product_id": product}}}
	}
	for name, test := range map[string]struct {
		requests []Request
		held     []Held
		want     string
	}{
		"all":                     {[]Request{request("a", "1", 1)}, nil, "a*1"},
		"none":                    {[]Request{request("a", "1", 1)}, []Held{held("1", "a")}, ""},
		"one of two":              {[]Request{request("a", "1", 2)}, []Held{held("1", "a")}, "a*1"},
		"of another request":      {[]Request{request("a", "1", 1)}, []Held{held("1", "b")}, "matches none of its requests"},
		"more than it asks for":   {[]Request{request("a", "1", 1)}, []Held{held("1", "a"), held("1", "a")}, "matches none of its requests"},
		"before Zed":              {[]Request{request("", "1", 1), request("", "2", 1)}, []Held{held("2", "")}, "*1"},
		"before Zed, ambiguous":   {[]Request{request("", "1", 1), request("", "1", 1)}, []Held{held("1", "")}, "several"},
		"before Zed, another one": {[]Request{request("", "1", 1)}, []Held{held("2", "")}, "matches none of its requests"},
	} {
		t.Run(name, func(t *testing.T) {
			left, why := lacking(test.requests, test.held)
			var got []string
			for _, r := range left {
				got = append(got, fmt.Sprintf("%s*%d", r.ID, r.Count))
			}
			if text := strings.Join(got, " ") + why; text != test.want && (why == "" || !strings.Contains(text, test.want)) {
				t.Error(text)
			}
			if asked(test.requests) < asked(left) {
				t.Error("more than it asked for")
			}
		})
	}
}
