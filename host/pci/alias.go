package pci

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"gpustack/host"
)

// Words of product names. A brand and a filler add nothing to the model. A series is needed to
// distinguish models that are bare numbers, and Arc always: NVIDIA has models of the same letters.
// A variant is a model of its own; all other words, such as a form factor or "Laptop", follow the
// model after a hyphen.
var (
	brands   = []string{"nvidia", "geforce", "quadro", "tesla", "grid", "hgx", "dgx", "drive", "amd", "radeon", "instinct", "intel"}
	series   = []string{"rtx", "gtx", "gt", "gts", "nvs", "fx", "cmp", "pro", "rx", "arc", "flex", "max"}
	variants = []string{"ti", "super", "ada", "d"}
	fillers  = []string{"generation", "edition", "blackwell", "gpu", "data", "center"}
)

// ErrAlias means that a text cannot be the name of an alias.
var ErrAlias = errors.New("is not the name of an alias: letters, digits and hyphens")

// Alias is the name of a Nova alias that gpustack gives a product. It cannot contain anything else,
// because documents of nodes end in files that others read as templates.
type Alias string

// UnmarshalText sets the name.
//
// Errors: ErrAlias.
func (a *Alias) UnmarshalText(text []byte) error {
	if name := string(text); name == "" || name != strings.Map(legal, name) {
		return fmt.Errorf("%.60q %w", name, ErrAlias)
	}
	*a = Alias(text)
	return nil
}

// AliasName returns the name of a Nova alias for a GPU: a function of the product alone, so that
// every inventory and every machine gives a product the same name. text is the product's name in
// pci.ids, which only products that gpustack has no name for need. The result has letters, digits
// and hyphens only, so that it is valid in a flavor's pci_passthrough:alias. It is "" if neither
// knows a model: no name is better than one made of ids.
func AliasName(vendor, id ID, text string) string {
	if i, known := slices.BinarySearchFunc(models[:], id, func(m model, id ID) int { return int(m.product) - int(id) }); known && vendor == NVIDIA {
		return models[i].name
	}
	name := modelOf(cmp.Or(ownProducts[product{vendor, id}], text))
	if name != "" && slices.ContainsFunc(models[:], func(m model) bool { return strings.EqualFold(m.name, name) }) {
		name += "-" + id.String()
	}
	return name
}

// modelOf derives the name of a model from a product name in pci.ids, by the rule of the table of
// models, but with all words of form and memory that the product name contains: "GK104GL [Quadro
// K4200]" gives "K4200", "GA100 [A800 40GB PCIe]" "A800-PCIE-40GB". It is "" if the product name
// contains only the chip.
func modelOf(text string) string {
	_, text, _ = strings.Cut(text, "[")
	text, _, _ = strings.Cut(text, "]")
	text, _, _ = strings.Cut(text, "/") // the first of several products with one id
	text, _, _ = strings.Cut(text, "(")
	var brand, prefix, name, memory string
	var form []string
	for word := range strings.FieldsSeq(text) {
		word = strings.Trim(strings.Map(legal, word), "-")
		switch lower := strings.ToLower(word); {
		case word == "" || slices.Contains(fillers, lower):
		case isMemory(word) && name != "":
			memory = "-" + word
		case name == "TITAN":
			name += word
		case name != "" && slices.Contains(variants, lower):
			name += word
		case lower == "pcie":
			form = append(form, "PCIE")
		case name != "":
			form = append(form, word)
		case slices.Contains(brands, lower):
			brand = word
		case slices.Contains(series, lower):
			prefix += word
		case lower == "titan":
			name = "TITAN"
		case strings.ContainsFunc(word, unicode.IsDigit) && !isMemory(word):
			name = word
		}
	}
	switch {
	case name == "":
		return ""
	case name[:1] == "T" && strings.HasPrefix(name, "TITAN"), strings.HasPrefix(prefix, "Arc"), unicode.IsDigit(rune(name[0])) && prefix != "":
		name = prefix + name
	case unicode.IsDigit(rune(name[0])):
		name = brand + name
	}
	for _, word := range form {
		name += "-" + word
	}
	return name + memory
}

// legal drops the characters that a name must not have.
func legal(r rune) rune {
	if r != '-' && (r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r)) {
		return -1
	}
	return r
}

// isMemory reports whether a word is a memory size such as "40GB".
func isMemory(word string) bool {
	digits := strings.TrimSuffix(strings.TrimSuffix(word, "B"), "G")
	return digits != word && !strings.HasSuffix(digits, "B") && digits != "" && strings.Trim(digits, "0123456789") == ""
}

// ProductsNamed returns the NVIDIA products to which AliasName gives a name without pci.ids.
func ProductsNamed(alias string) []ID {
	named := host.Filter(models[:], func(m model) bool { return m.name == alias })
	return host.Map(named, func(m model) ID { return m.product })
}
