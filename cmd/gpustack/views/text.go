package views

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/machine"
	"gpustack/host/pci"
)

// IDs returns the ids of a function, "????" for each that is unknown.
func IDs(d *pci.Device) string {
	return id(d.VendorID) + ":" + id(d.ProductID)
}

func id(id *pci.ID) string {
	if id == nil {
		return "????"
	}
	return id.String()
}

// Name returns the product's name without that of its chip, or the class if the product is
// unknown.
func Name(d *pci.Device) string {
	if d.Product == nil {
		return cmp.Or(Text(d.ClassName), "-")
	}
	if _, product, ok := strings.Cut(*d.Product, "["); ok && d.IsGPU() {
		if product, _, ok = strings.Cut(product, "]"); ok {
			return product
		}
	}
	return *d.Product
}

// Text returns a value, "-" if it is unknown.
func Text[T any](v *T) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprint(*v)
}

// grouped returns the elements of a list in groups of the same key, ordered by their first elements.
func grouped[T any, K comparable](list []T, key func(T) K) (groups [][]T) {
	at := map[K]int{}
	for _, of := range list {
		k := key(of)
		i, known := at[k]
		if !known {
			i = len(groups)
			at[k], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], of)
	}
	return groups
}

// either returns yes if something is so, or else no.
func either(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}

// after returns a text with what stands before it, "" if it is empty.
func after(before, text string) string { return either(text != "", before+text, "") }

// counted is a number with its label.
type counted struct {
	label string
	n     int
}

// inBrackets returns the numbers that are not 0, " (failed: 1, warnings: 2)", or "" without any.
func inBrackets(numbers ...counted) string {
	parts := host.Filter(numbers, func(c counted) bool { return c.n > 0 })
	if parts == nil {
		return ""
	}
	return " (" + strings.Join(host.Map(parts, func(c counted) string { return fmt.Sprintf("%s: %d", c.label, c.n) }), ", ") + ")"
}

// orDash returns a text, "-" if it is empty.
func orDash(s string) string { return cmp.Or(s, "-") }

// tableBelow prints a table below an empty line, and nothing without rows.
func tableBelow(u *term.UI, header []string, rows [][]string) {
	if len(rows) > 0 {
		u.Printf("\n")
		u.Table(header, rows)
	}
}

// tableWith prints a table, without the column of a title unless it is needed.
func tableWith(u *term.UI, title string, needed bool, header []string, rows [][]string) {
	at := slices.Index(header, title)
	less := func(row []string) []string { return slices.Concat(row[:at], row[at+1:]) }
	if !needed {
		header, rows = less(header), host.Map(rows, less)
	}
	u.Table(header, rows)
}

// printEach prints a line for each value of a list.
func printEach[T any](u *term.UI, format string, list []T) {
	for _, v := range list {
		u.Printf("%s\n", term.Printable(fmt.Sprintf(format, v)))
	}
}

// hostLine returns a line that describes the machine.
func hostLine(name *string, s machine.System) string {
	iommu := "IOMMU off (no groups: nothing can be assigned to a guest)"
	switch {
	case !s.IOMMU.Enabled.Known():
		iommu = "IOMMU unknown (not shown by these files)"
	case s.IOMMU.Enabled == host.Yes:
		iommu = fmt.Sprintf("IOMMU on (groups: %d)", s.IOMMU.Groups)
	}
	return term.Join(", ", host.Value(name), host.Value(s.Distribution), after("Linux ", host.Value(s.Kernel)),
		after("CPU ", host.Value(s.CPUVendor)), after("boot loader ", host.Value(s.BootLoader)), iommu)
}
