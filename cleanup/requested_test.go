package cleanup

import (
	"hash/crc32"
	"testing"
)

// TestRequestedAlike: of texts that are alike each has its own ids, and a text that ends within an id
// is not one of them.
func TestRequestedAlike(t *testing.T) {
	const one, other = "5f0c1c9e-0000-4000-8000-00000000000a", "5f0c1c9e-0000-4000-8000-00000000000b"
	text := func(a, b string) []byte {
		return []byte(`[{"count": 2, "request_id": "` + a + `"}, {"count": 1, "request_id": null}, {"count": 3, "request_id": "` + b + `"}]`)
	}
	sum := func(a, b string) uint32 { return 2*crc32.ChecksumIEEE([]byte(a)) + 3*crc32.ChecksumIEEE([]byte(b)) }
	var sums Requested
	for _, ids := range [][2]string{{one, other}, {other, one}, {one, one}} {
		if n, got, ok := sums.Of(text(ids[0], ids[1])); !ok || n != 6 || got != sum(ids[0], ids[1]) {
			t.Errorf("%v: %d %d %v, want 6 %d", ids, n, got, ok, sum(ids[0], ids[1]))
		}
	}
	for _, id := range []string{one[:35], one + "x", one[:35] + `\\`} {
		if _, _, ok := sums.Of(text(one, id)); ok {
			t.Errorf("%s: accepted", id)
		}
	}
}

// FuzzRequested: a text that Requested accepts is one that ParseRequests reads, with the same sum.
func FuzzRequested(f *testing.F) {
	for _, text := range []string{
		`[]`,
		`[{"count": 2, "spec": [{"vendor_id": "10de", "product_id": "11b4", "dev_type": "type-PCI"}], "alias_name": "K4200", "is_new": false, "numa_policy": "legacy", "request_id": "5f0c1c9e-0000-4000-8000-00000000000a", "requester_id": null}]`,
		`[{"count": 1}, {"count": 3, "spec": [{"a": [1, {"count": 7}], "b": {}}, {}]}]`,
		`[{"count":1,"request_id":null}]`,
		`[{"Count": 1}]`, `[{"count": -1}]`, `[{"count": 01}]`, `[{"count": 1, "count": 2}]`, `[{"count": "1"}]`, `[{"count": 1}`, `[{"count": 1}]x`,
		`[{"count": 1, "spec": [1]}]`, `[{"request_id": 1}]`, `[{"count": 1.5}]`, `[{"a": "\u0041"}]`, `[{"count": 999999999999}]`, `[,]`, `{}`, `null`, ``,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var sums Requested
		n, ids, ok := sums.Of([]byte(text))
		if again, idsAgain, okAgain := sums.Of([]byte(text)); again != n || idsAgain != ids || okAgain != ok {
			t.Errorf("%q: %d %d %v, and then %d %d %v", text, n, ids, ok, again, idsAgain, okAgain)
		}
		if !ok {
			return
		}
		requests, err := ParseRequests(text)
		sum := uint32(0)
		for _, r := range requests {
			if r.ID != "" {
				sum += uint32(r.Count) * crc32.ChecksumIEEE([]byte(r.ID))
			}
		}
		if err != nil || asked(requests) != n || sum != ids {
			t.Errorf("%q: %d %d, but %d %d, %v", text, n, ids, asked(requests), sum, err)
		}
	})
}

// TestRequested: the texts that Nova writes are accepted, so that their rows need not be judged.
func TestRequested(t *testing.T) {
	var sums Requested
	for text, want := range map[string]int{
		`[]`: 0,
		`[{"count": 2, "spec": [{"vendor_id": "10de", "product_id": "11b4", "dev_type": "type-PCI"}], "alias_name": "K4200", "is_new": false, "numa_policy": "legacy", "request_id": "5f0c1c9e-0000-4000-8000-00000000000a", "requester_id": null}]`:                             2,
		`[{"alias_name": null, "count": 1, "is_new": false, "numa_policy": null, "request_id": null, "requester_id": null, "spec": [{"physical_network": "net-1", "trusted": "true"}]}, {"count": 12, "spec": [{"resource_class": "CUSTOM_A", "traits": "CUSTOM_B,CUSTOM_C"}]}]`: 13,
	} {
		if n, _, ok := sums.Of([]byte(text)); !ok || n != want {
			t.Errorf("%s: %d, %v", text, n, ok)
		}
	}
	for _, text := range []string{`[{"count": -1}]`, `[{"count": 1}`, `[{"count": 1}]x`, `[{"count": 1, "request_id": ""}]`,
		`[{"count": 1, "spec": [{"request_id": "5f0c1c9e-0000-4000-8000-00000000000a"}]}]`, `x`, ``} {
		if n, _, ok := sums.Of([]byte(text)); ok {
			t.Errorf("%s: %d", text, n)
		}
	}
}
