package term

import (
	"testing"

	"gpustack/host"
)

type visited struct {
	Schema  int                  `json:"schema"`
	Text    host.Text            `json:"text"`
	Command host.Command         `json:"command"`
	Pointer *host.Text           `json:"pointer"`
	At      *host.Command        `json:"at"`
	Rows    []row                `json:"rows"`
	Named   map[string]host.Text `json:"named"`
	Any     any                  `json:"any"`
	Unknown []string             `json:"unknown" null:"zero"`
	None    *host.Text           `json:"none"`
	Escaped string               `json:"escaped"`
	Hidden  host.Text            `json:"-"`
	elsewhere
}

type row struct {
	L []string `json:"L"`
	B []byte   `json:"B"`
	N string
}

type elsewhere struct{ is bool }

func (e elsewhere) Elsewhere() bool { return e.is }

// TestVisitor: commands and texts are completed wherever they are in a report, unless it is about
// other machines; lists without elements are printed as such there too.
func TestVisitor(t *testing.T) {
	t.Parallel()
	scan := host.NewCommand("host scan")
	text := host.Textf("run %s", scan)
	r := visited{
		Schema: 1, Text: text, Command: scan, Pointer: &text, At: &scan, Rows: []row{{B: []byte("b")}},
		Named: map[string]host.Text{"a": text}, Any: map[string]any{"T": text}, Hidden: text, Escaped: "\"\\\t<é\u2028\xff",
	}
	d := Document{
		Format:  FormatJSON,
		Command: func(c host.Command) host.Command { return c.Flag("root", "/x") },
	}
	for _, test := range []struct {
		elsewhere bool
		want      string
	}{
		{false, `{"schema":1,
"text":"run gpustack host scan --root /x",
"command":"gpustack host scan --root /x",
"pointer":"run gpustack host scan --root /x",
"at":"gpustack host scan --root /x",
"rows":[
{"L":[],"B":"Yg=="}],
"named":{"a":"run gpustack host scan --root /x"},
"any":{"T":"run gpustack host scan --root /x"},
"unknown":null,
"none":null,
"escaped":"\"\\\t<é\u2028\ufffd"}
`},
		{true, `{"schema":1,
"text":"run gpustack host scan",
"command":"gpustack host scan",
"pointer":"run gpustack host scan",
"at":"gpustack host scan",
"rows":[
{"L":[],"B":"Yg=="}],
"named":{"a":"run gpustack host scan"},
"any":{"T":"run gpustack host scan"},
"unknown":null,
"none":null,
"escaped":"\"\\\t<é\u2028\ufffd"}
`},
	} {
		r.is = test.elsewhere
		for range 2 { // printing does not change the report
			printed, err := d.encode(&r, nil)
			if err != nil || string(printed) != test.want {
				t.Errorf("%v\n%s", err, printed)
			}
		}
	}
}
