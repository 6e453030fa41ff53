package pci

import (
	"slices"
	"strings"
	"unicode"
)

// Words of product names. A brand adds nothing to the model. A series is needed to distinguish
// models that are bare numbers. A variant is a different card; a form factor, a memory size or
// "Mobile" is not.
var (
	brands   = []string{"nvidia", "geforce", "quadro", "tesla", "grid", "hgx", "dgx", "drive"}
	series   = []string{"rtx", "gtx", "gt", "gts", "nvs", "fx", "cmp", "pro"}
	variants = []string{"ti", "super", "sff", "ada", "d"}
)

// AliasHint derives a name for a Nova alias from a product name in pci.ids: "GK104GL [Quadro
// K4200]" gives "K4200", "GA100 [A100 SXM4 40GB]" "A100", "AD102GL [RTX 6000 Ada Generation]"
// "RTX6000Ada". The result has only letters and digits, so that it is valid in a flavor's
// pci_passthrough:alias. It is "" if the product name contains only the chip.
func AliasHint(product string) string {
	_, product, ok := strings.Cut(product, "[")
	if !ok {
		return ""
	}
	product, _, _ = strings.Cut(product, "]")
	first, _, _ := strings.Cut(product, "/") // the first of several products with one id
	var brand, prefix, model, suffix string
	for _, word := range strings.FieldsFunc(first, notAlphanumeric) {
		lower := strings.ToLower(word)
		switch {
		case model == "TITAN" && !isMemory(word):
			return prefix + model + word
		case model == "TITAN":
			return prefix + model
		case model != "" && slices.Contains(variants, lower):
			suffix += word
		case model != "" || isMemory(word):
		case slices.Contains(brands, lower):
			brand = word
		case slices.Contains(series, lower):
			prefix += word
		case lower == "titan":
			model = "TITAN"
		case strings.ContainsFunc(word, unicode.IsDigit):
			model = word
		}
	}
	switch {
	case model == "":
		return ""
	case model == "TITAN" || unicode.IsDigit(rune(model[0])) && prefix != "":
		return prefix + model + suffix
	case unicode.IsDigit(rune(model[0])):
		return brand + model + suffix
	}
	return model + suffix
}

func notAlphanumeric(r rune) bool {
	return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r)
}

// isMemory reports whether a word is a memory size such as "40GB".
func isMemory(word string) bool {
	digits := strings.TrimRight(word, "GB")
	return digits != word && digits != "" && strings.Trim(digits, "0123456789") == ""
}
