package pci

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Names whose hyphen joins models that have one id.
var sharedIDs = []string{"A2-A16", "RTX6000-8000"}

var memoryWord = regexp.MustCompile(`^[0-9]+GB?$`)

// TestModels checks every name of the table against the rule: unique, also without regard to
// case; legal in Nova's alias and in a flavor; with words of form and memory only if products of
// the model differ in them.
func TestModels(t *testing.T) {
	legal := regexp.MustCompile(`^[A-Za-z0-9]+(-[A-Za-z0-9]+)*$`)
	seen := map[string]model{}
	type product struct{ form, memory string }
	products := map[string][]product{}
	for i, m := range models {
		if i > 0 && models[i-1].product >= m.product {
			t.Errorf("%s: out of order", m.product)
		}
		if other, twice := seen[strings.ToLower(m.name)]; twice {
			t.Errorf("%s and %s have one name: %s, %s", other.product, m.product, other.name, m.name)
		}
		seen[strings.ToLower(m.name)] = m
		if !legal.MatchString(m.name) || len(m.name) > 256 {
			t.Errorf("%s: %q is not a legal name", m.product, m.name)
		}
		name, again := strings.CutSuffix(m.name, "-"+m.product.String())
		if slices.Contains(sharedIDs, name) {
			continue
		}
		words := strings.Split(name, "-")
		var p product
		for _, word := range words[1:] {
			if memoryWord.MatchString(word) {
				p.memory += word
			} else {
				p.form += word
			}
		}
		if !again {
			products[words[0]] = append(products[words[0]], p)
		}
	}
	for name, all := range products {
		same := func(word func(product) string) bool {
			return word(all[0]) != "" && !slices.ContainsFunc(all, func(p product) bool { return word(p) != word(all[0]) })
		}
		if same(func(p product) string { return p.form }) || same(func(p product) string { return p.memory }) {
			t.Errorf("%s: no product differs in a word that all have: %q", name, all)
		}
	}
	for _, m := range models {
		plain := strings.TrimSuffix(m.name, "-"+m.product.String())
		if _, known := seen[strings.ToLower(plain)]; !known {
			t.Errorf("%s: no product has the name %s without the id", m.product, plain)
		}
	}
}
