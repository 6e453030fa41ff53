package rdma_test

import (
	"testing"

	"gpustack/host/rdma"
)

func TestParseGUID(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"0002:c903:0021:6e70":     "00:02:c9:03:00:21:6e:70",
		"00:02:c9:03:00:21:6E:70": "00:02:c9:03:00:21:6e:70",
		"0000:0000:0000:0000":     "00:00:00:00:00:00:00:00",
		"":                        "",
		"0002c90300216e70":        "",
		"0002:c903:0021":          "",
		"0002:c903:0021:6e7g":     "",
		"0002:c903:0021:6e70:00":  "",
		"00:02:c9:03:00:21:6e70:": "",
	} {
		got, err := rdma.ParseGUID(text)
		if want == "" {
			if err == nil {
				t.Errorf("%q: %s, want an error", text, got)
			}
			continue
		}
		if err != nil || got.String() != want {
			t.Errorf("%q: %s, %v, want %s", text, got, err, want)
		}
	}
}
