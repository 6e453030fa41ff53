package host_test

import (
	"encoding/json"
	"testing"

	"gpustack/host"
)

func TestBool(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]host.Bool{"null": host.Unknown, "false": host.No, "true": host.Yes} {
		out, err := json.Marshal(want)
		if err != nil || string(out) != text {
			t.Errorf("%s: written as %s, %v", text, out, err)
		}
		read := host.Yes
		if err := json.Unmarshal([]byte(text), &read); err != nil || read != want || read.Known() != (text != "null") {
			t.Errorf("%s: read as %d, %v", text, read, err)
		}
		for _, omitted := range []any{struct {
			A host.Bool `json:"a,omitempty"`
		}{want}} {
			want := `{"a":` + text + "}"
			if text == "null" {
				want = "{}"
			}
			if out, err := json.Marshal(omitted); err != nil || string(out) != want {
				t.Errorf("omitempty %s: %s, %v", text, out, err)
			}
		}
	}
	if host.BoolOf(true) != host.Yes || host.BoolOf(false) != host.No {
		t.Error("BoolOf is wrong")
	}
	for _, text := range []string{`"yes"`, "1", "{}"} {
		var b host.Bool
		if err := json.Unmarshal([]byte(text), &b); err == nil {
			t.Errorf("%s: accepted", text)
		}
	}
	if out, err := json.Marshal(host.Bool(3)); err == nil {
		t.Errorf("3 is written as %s", out)
	}
}

// TestBoolDecoded: a document may have null for an answer, but not leave it out.
func TestBoolDecoded(t *testing.T) {
	t.Parallel()
	type document struct {
		Known host.Bool `json:"known"`
	}
	for text, want := range map[string]string{
		`{"known":null}`: "", `{"known":true}`: "", `{}`: "malformed JSON: known is missing",
	} {
		var d document
		if err := host.DecodeJSON([]byte(text), &d); want == "" && err != nil || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
