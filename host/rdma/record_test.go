package rdma_test

import (
	"errors"
	"strings"
	"testing"

	"gpustack/host/rdma"
)

// TestRecordEdited: a record that a person has edited so that a boot would do harm is malformed, as
// a whole.
func TestRecordEdited(t *testing.T) {
	t.Parallel()
	const guid = "0e:42:a1:00:01:0c:00:00"
	const text = `{"schema":1,"kind":"rdma record","adapters":[{"address":"0000:0c:00.0","vendor_id":"15b3","product_id":"101b","bridges": [],"driver":"mlx5_core",
"link_layer":"InfiniBand","for":"guests","whole":false,"eswitch":"legacy","vfs":[
{"index":0,"address":"0000:0c:00.1","product_id":"101c","driver":"vfio-pci","node_guid":"` + guid + `","port_guid":"` + guid + `"},
{"index":1,"address":"0000:0c:00.2","product_id":"101c","driver":"vfio-pci","mac":"ba:00:9f:00:12:34"}]}],"allowed":[],"files":[]}`
	for name, test := range map[string]struct{ from, to, want string }{
		"as written": {"", "", ""},
		"eswitch":    {`"legacy"`, `"switch"`, `adapter 0000:0c:00.0 has eswitch mode "switch"`},
		"driver":     {`"101c","driver":"vfio-pci","mac"`, `"101c","driver":"../x","mac"`, `adapter 0000:0c:00.0: VF 1 is for driver "../x"`},
		"GUID":       {`"mac":"ba:00:9f:00:12:34"`, `"port_guid":"` + guid + `"`, guid + " is that of VF 0 of 0000:0c:00.0 and of VF 1 of 0000:0c:00.0"},
		"VF twice":   {"0000:0c:00.2", "0000:0c:00.1", "0000:0c:00.1 is that of VF 0 of 0000:0c:00.0 and of VF 1 of 0000:0c:00.0"},
		"netns":      {`"schema":1,`, `"schema":1,"netns":"shared",`, `netns "shared" is unknown`},
		"an adapter twice": {`"adapters":[`, `"adapters":[{"address":"0000:0c:00.0","vendor_id":"15b3","product_id":"101b","bridges": [],"driver":"mlx5_core",` +
			`"link_layer":"InfiniBand","for":"guests","whole":true,"vfs":[]},`, "adapter 0000:0c:00.0 is listed twice"},
		"use":    {`"for":"guests"`, `"for":"fun"`, `adapter 0000:0c:00.0 is for "fun"`},
		"whole":  {`"whole":false`, `"whole":true`, "adapter 0000:0c:00.0 needs either VFs or whole"},
		"index":  {`"index":1`, `"index":2`, "adapter 0000:0c:00.0: VF 2 is listed as number 1"},
		"itself": {"0000:0c:00.2", "0000:0c:00.0", "0000:0c:00.0 is that of adapter 0000:0c:00.0 and of VF 1 of 0000:0c:00.0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := rdma.ParseRecord([]byte(strings.Replace(text, test.from, test.to, 1)))
			var hinted interface{ Hint() string }
			switch {
			case test.want == "" && err != nil:
				t.Error(err)
			case test.want != "" && (err == nil || err.Error() != rdma.RecordFile+": malformed: "+test.want || !errors.As(err, &hinted)):
				t.Errorf("%v, want %s", err, test.want)
			}
		})
	}
}
