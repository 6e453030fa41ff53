package host_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"gpustack/host"
	"gpustack/host/hosttest"
)

type document struct {
	Schema int             `json:"schema"`
	At     time.Time       `json:"at"`
	Note   string          `json:"note,omitempty"`
	Parts  []part          `json:"parts"`
	Last   *part           `json:"last"`
	Named  map[string]part `json:"named"`
	Raw    json.RawMessage `json:"raw"`
	Bytes  []byte          `json:"bytes"`
	Lists  [][]string      `json:"lists"`
	Skip   string          `json:"-"`
	common                 // embedded: its fields are the document's
}

type part struct {
	Name string `json:"name"`
	Size *int   `json:"size"`
}

type common struct {
	Mode int `json:"mode"`
}

const whole = `{"schema":1,"at":"2026-11-22T00:00:00Z","parts":[{"name":"a","size":null}],"last":null,"named":{"x":{"name":"b","size":3}},"raw":null,"bytes":"aGk=","lists":[["a"]],"mode":7}`

func TestDecodeJSON(t *testing.T) {
	var d document
	if err := host.DecodeJSON([]byte(" "+whole+"\n"), &d); err != nil || d.Parts[0].Name != "a" || d.Mode != 7 || string(d.Bytes) != "hi" {
		t.Fatalf("%+v, %v", d, err)
	}
	for name, c := range map[string]struct{ old, new, want string }{
		"a field of a later release":       {`"schema":1`, `"schema":1,"later":{"deep":[1]}`, ""},
		"one below":                        {`"name":"a"`, `"name":"a","later":1`, ""},
		"a field that may be left out":     {`"schema":1`, `"schema":1,"note":"n"`, ""},
		"missing":                          {`"schema":1,`, ``, "schema is missing"},
		"missing below":                    {`{"name":"a",`, `{`, "parts[0].name is missing"},
		"missing in a map":                 {`"name":"b",`, ``, "named.x.name is missing"},
		"missing in an embedded struct":    {`,"mode":7`, ``, "mode is missing"},
		"a list missing":                   {`,"lists":[["a"]]`, ``, "lists is missing"},
		"another case":                     {`"schema"`, `"Schema"`, "schema is missing"},
		"null":                             {`"schema":1`, `"schema":null`, "schema is null"},
		"null of what decodes itself":      {`"2026-11-22T00:00:00Z"`, `null`, "at is null"},
		"null for a struct":                {`{"name":"a","size":null}`, `null`, "parts[0] is null"},
		"another type":                     {`"schema":1`, `"schema":"1"`, "cannot unmarshal string"},
		"another type that decodes itself": {`"2026-11-22T00:00:00Z"`, `"yesterday"`, "yesterday"},
		"cut off":                          {`,"mode":7}`, ``, "ends early"},
		"more":                             {`"mode":7}`, `"mode":7}{}`, "more data after the document"},
		"garbage behind":                   {`"mode":7}`, `"mode":7}]`, "more data after the document"},
		"empty":                            {whole, "", "ends early"},
		"null alone":                       {whole, "null", "the document is null"},
		"a list":                           {whole, "[]", "cannot unmarshal array"},
	} {
		text := strings.Replace(whole, c.old, c.new, 1)
		if text == whole {
			t.Fatalf("%s: nothing was replaced", name)
		}
		err := host.DecodeJSON([]byte(text), new(document))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	err := host.DecodeJSON([]byte(`{}`), new(document))
	if err == nil || strings.Count(err.Error(), "is missing") != 9 || strings.Contains(err.Error(), "\n") {
		t.Errorf("not all missing fields are named: %v", err)
	}
}

func TestDecodeSchema(t *testing.T) {
	for text, want := range map[string]string{
		strings.Replace(whole, `"schema":1`, `"schema":1,"kind":"note"`, 1): "",
		strings.Replace(whole, `"schema":1`, `"schema":2`, 1):               "/f: schema 2: this version of gpustack reads schema 1",
		`{"schema":2}`:               "/f: schema 2: this version",
		`{"schema":0}`:               "/f: schema 0: this version",
		`{"schema":"1"}`:             `/f: schema "1": this version`,
		`{"schema":null}`:            "/f: schema null: this version",
		`{}`:                         "/f: no schema: this version",
		`{"schema":1}`:               `/f: kind null: expected "note"`,
		`{"schema":1,"kind":"b"}`:    `/f: kind "b": expected "note"`,
		`{"schema":1,"kind":"note"}`: "/f: malformed JSON: at is missing",
		`[]`:                         "/f: malformed JSON: json: cannot unmarshal array",
		`{`:                          "/f: the JSON document ends early",
	} {
		err := host.DecodeSchema("f", "note", []byte(text), new(document))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func FuzzDecodeJSON(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte(`{"parts":[null]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var d document
		if host.DecodeJSON(data, &d) != nil {
			return
		}
		again, err := json.Marshal(d)
		hosttest.NoError(t, err)
		if err := host.DecodeJSON(again, new(document)); err != nil {
			t.Fatalf("%s: %v", again, err)
		}
	})
}
