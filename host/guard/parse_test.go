package guard

import (
	"slices"
	"strings"
	"testing"
)

// FuzzParse: no input makes the parsers panic. Every parsed address has a table, and no directory
// of an overlay is relative.
func FuzzParse(f *testing.F) {
	f.Add("Main:\n     |-- 192.0.2.2\n        /32 host LOCAL\nId 10:\n     |-- 203.0.113.2\n        /32 host LOCAL\n",
		`rw,lowerdir=/a\134:b:/c::/d,upperdir=/u\054v`, "traddr=192.0.2.9,trsvcid=4420")
	f.Add(" |-- 192.0.2.2\n /32 host LOCAL\n", `lowerdir+=l,datadir+=\0`, ",=,")
	f.Fuzz(func(t *testing.T, trie, options, address string) {
		fib, err := parseFIB(trie)
		for _, l := range fib.local {
			if err == nil && !slices.Contains(fib.tables, l.table) {
				t.Errorf("%s is in no table", l.address)
			}
		}
		for _, p := range layers(mount{options: strings.Split(options, ",")}) {
			if p.name != "" && p.name[0] != '/' {
				t.Errorf("relative: %q", p.name)
			}
		}
		if s := parseServer(nvmeAddress(address)["traddr"]); s.through != "" {
			t.Errorf("%+v", s)
		}
	})
}

func TestLayers(t *testing.T) {
	var names []string
	for _, p := range layers(mount{options: strings.Split(`rw,lowerdir=/a\134:b:/c::/d,upperdir=/u\054v,workdir=/w,datadir+=/e,lowerdir+=l`, ",")}) {
		names = append(names, p.name)
	}
	if want := []string{"/a:b", "/c", "/d", "", "/e", "/u,v"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
}
