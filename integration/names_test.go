package integration

import (
	"bufio"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/pci"
)

// TestAliasNamesOfAllProducts asks for the name of every NVIDIA product in pci.ids. Each is legal
// in Nova's alias (nova/pci/request.py, _ALIAS_SCHEMA) and in a flavor, no two names differ only
// in case, and a product of the table is called as pci.ids calls it: its list may be years older
// or newer than the table.
func TestAliasNamesOfAllProducts(t *testing.T) {
	f, err := os.Open("/usr/share/misc/pci.ids")
	hosttest.NoError(t, err)
	defer f.Close()
	legal := regexp.MustCompile(`^[A-Za-z0-9]+(-[A-Za-z0-9]+)*$`)
	renamed := []pci.ID{0x20fd} // called A100T before it was on sale
	letters := regexp.MustCompile(`[^a-z0-9]+`)
	spelled := map[string]string{}     // by lower case
	ofTable := map[string]pci.ID{}     // the names of the table
	inList, named, ours := false, 0, 0 // products
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case line == "" || line[0] == '#' || strings.HasPrefix(line, "\t\t"):
			continue
		case line[0] != '\t':
			inList = strings.HasPrefix(line, "10de ")
			continue
		case !inList:
			continue
		}
		n, err := strconv.ParseUint(line[1:5], 16, 16)
		if err != nil {
			t.Fatal(line)
		}
		id, text := pci.ID(n), strings.TrimSpace(line[5:])
		name := pci.AliasName(pci.NVIDIA, id, text)
		if name == "" {
			continue
		}
		named++
		if !legal.MatchString(name) || len(name) > 256 {
			t.Errorf("%s %s: %q is not legal", id, text, name)
		}
		if other, seen := spelled[strings.ToLower(name)]; seen && other != name {
			t.Errorf("%s %s: %q and %q differ only in case", id, text, name, other)
		}
		spelled[strings.ToLower(name)] = name
		if pci.AliasName(pci.NVIDIA, id, "") == "" {
			continue
		}
		ours++
		if other, seen := ofTable[name]; seen {
			t.Errorf("%s and %s have one name: %s", other, id, name)
		}
		ofTable[name] = id
		model, _, _ := strings.Cut(strings.ToLower(name), "-")
		if _, product, ok := strings.Cut(text, "["); ok && !slices.Contains(renamed, id) && !strings.Contains(letters.ReplaceAllString(strings.ToLower(product), ""), strings.TrimSuffix(model, "ada")) {
			t.Errorf("%s is %s in pci.ids, but %s in the table", id, text, name)
		}
	}
	hosttest.NoError(t, lines.Err())
	if named < 1000 || ours < 100 {
		t.Errorf("%d products have a name, %d of them one of the table: is pci.ids whole?", named, ours)
	}
	// No text makes a name that the table has for another GPU. An NVSwitch's own text is one of
	// pci.ids, and no GPU is called so.
	for name, id := range ofTable {
		if strings.HasSuffix(name, "-NVSwitch") {
			continue
		}
		if got := pci.AliasName(pci.NVIDIA, 0xffff, "X [GeForce "+name+"]"); strings.EqualFold(got, name) {
			t.Errorf("%s of %s is also the name of another product", name, id)
		}
	}
}
