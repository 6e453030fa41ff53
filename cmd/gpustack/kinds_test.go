package main

import (
	"encoding/json"
	"testing"

	"gpustack/host/document"
	"gpustack/host/hosttest"
)

// TestTruncatedDocuments: of the documents that commands read, one without its last field is not
// recognized: in YAML, a document that was truncated after a line is valid. host guests is not among
// them: all fields of its reports are required (host/guest).
func TestTruncatedDocuments(t *testing.T) {
	for _, kind := range []document.Kind{document.HostScan, document.HostCheck, document.NovaConfigure} {
		fields := map[string]any{}
		required := documentSchema(string(kind), documents()[string(kind)]).Defs["report"].Required
		for _, name := range required {
			fields[name] = nil
		}
		fields["schema"], fields["kind"] = document.Schema, kind
		is := func() document.Kind {
			text, err := json.Marshal(fields)
			hosttest.NoError(t, err)
			return document.Recognize(text).Kind
		}
		whole := is()
		last := required[len(required)-1]
		delete(fields, last)
		if cut := is(); whole != kind || cut != document.Unknown {
			t.Errorf("the document of %s is recognized as %q, and without %s as %q", kind, whole, last, cut)
		}
	}
}
