package nova

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"gpustack/host/pci"
)

// Alias is what flavors name: functions of one product (nova/pci/request.py,
// _ALIAS_SCHEMA). Fields that are "" are left out.
type Alias struct {
	Name           string `json:"name"`
	VendorID       pci.ID `json:"vendor_id"`
	ProductID      pci.ID `json:"product_id"`
	DeviceType     string `json:"device_type,omitempty"`
	NUMAPolicy     string `json:"numa_policy,omitempty"`
	ResourceClass  string `json:"resource_class,omitempty"`
	Traits         string `json:"traits,omitempty"`
	LiveMigratable string `json:"live_migratable,omitempty"`
}

// Spec is what a compute node offers (nova/pci/devspec.py, PciDeviceSpec): every
// function of a product, or the one at an address. What it is not known by, Nova
// keeps as a tag.
type Spec struct {
	Address        *pci.Address `json:"address,omitempty"`
	VendorID       pci.ID       `json:"vendor_id"`
	ProductID      pci.ID       `json:"product_id"`
	ResourceClass  string       `json:"resource_class,omitempty"`
	Traits         string       `json:"traits,omitempty"`
	Managed        string       `json:"managed,omitempty"`
	LiveMigratable string       `json:"live_migratable,omitempty"`
	OneTimeUse     string       `json:"one_time_use,omitempty"`
}

// sameDevices reports whether two specs match the same devices.
func (s Spec) sameDevices(other Spec) bool {
	return s.VendorID == other.VendorID && s.ProductID == other.ProductID && reflect.DeepEqual(s.Address, other.Address)
}

// ParseAlias reads NAME=VENDOR:PRODUCT[,KEY=VALUE]…; several traits are joined by
// plus signs. All its faults are in the error.
func ParseAlias(s string) (Alias, error) {
	words := strings.Split(s, ",")
	name, ids, ok := strings.Cut(words[0], "=")
	vendor, product, ok2 := strings.Cut(ids, ":")
	var errs []error
	fail := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("alias %q: "+format, append([]any{s}, args...)...))
	}
	a := Alias{Name: strings.TrimSpace(name)}
	if !ok || !ok2 {
		fail("not NAME=VENDOR:PRODUCT")
	} else {
		var err error
		if a.VendorID, err = pci.ParseID(vendor); err != nil {
			fail("%w", err)
		}
		if a.ProductID, err = pci.ParseID(product); err != nil {
			fail("%w", err)
		}
	}
	switch {
	case a.Name == "":
		fail("has no name")
	case strings.ContainsAny(a.Name, ":,"):
		fail("its name has a character that flavors cannot spell: : or ,")
	case len([]rune(a.Name)) > 256:
		fail("its name has more than 256 characters")
	}
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		field, known := map[string]*string{
			"device_type": &a.DeviceType, "numa_policy": &a.NUMAPolicy, "resource_class": &a.ResourceClass, "traits": &a.Traits, "live_migratable": &a.LiveMigratable,
		}[key]
		switch {
		case !known:
			fail("unknown key %q", key)
		case value == "":
			fail("%s has no value", key)
		case *field != "":
			fail("%s is there twice", key)
		default:
			*field = value
		}
	}
	oneOf := func(key, value string, words ...string) {
		if value != "" && !slices.Contains(words, value) {
			fail("%s: unknown value %q, not one of %s", key, value, strings.Join(words, ", "))
		}
	}
	oneOf("device_type", a.DeviceType, string(pci.TypePCI), string(pci.TypePF), string(pci.TypeVF))
	oneOf("numa_policy", a.NUMAPolicy, "required", "preferred", "legacy", "socket")
	oneOf("live_migratable", a.LiveMigratable, "yes", "no")
	a.Traits = strings.ReplaceAll(a.Traits, "+", ",")
	return a, errors.Join(errs...)
}

// needs returns what of the alias the release does not know.
func (a Alias) needs(r Release) []error {
	var errs []error
	since := func(value, what string, first Release) {
		if value != "" && r < first {
			errs = append(errs, fmt.Errorf("alias %s: %s needs %s, and this is %s", a.Name, what, first, r))
		}
	}
	since(a.NUMAPolicy, "numa_policy", queens)
	if a.NUMAPolicy == "socket" {
		since(a.NUMAPolicy, "numa_policy socket", wallaby)
	}
	since(a.ResourceClass, "resource_class", r2023_1)
	since(a.Traits, "traits", r2023_1)
	since(a.LiveMigratable, "live_migratable", r2025_1)
	return errs
}

// text writes a value for nova.conf. oslo.config takes a dollar sign for the
// beginning of another option's name unless it is doubled.
func text(value any) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(value)
	// Blanks after colons and commas, as everybody writes them there.
	return strings.ReplaceAll(spaced(strings.TrimSuffix(b.String(), "\n")), "$", "$$"), err
}

// spaced puts a blank behind each comma and colon outside of strings.
func spaced(text string) string {
	var b strings.Builder
	quoted := false
	for i := range len(text) {
		c := text[i]
		b.WriteByte(c)
		switch {
		case c == '"' && (i == 0 || text[i-1] != '\\'):
			quoted = !quoted
		case !quoted && (c == ',' || c == ':'):
			b.WriteByte(' ')
		}
	}
	return b.String()
}

// objects reads a value of nova.conf that is an object, or a list of them; nil
// where it is neither.
func objects(value string) []map[string]any {
	value = strings.ReplaceAll(value, "$$", "$")
	var list []map[string]any
	if json.Unmarshal([]byte(value), &list) == nil {
		return list
	}
	var object map[string]any
	if json.Unmarshal([]byte(value), &object) == nil && object != nil {
		return []map[string]any{object}
	}
	return nil
}

// object returns a value as what it is once it has been read back.
func object(value any) (map[string]any, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var o map[string]any
	return o, json.Unmarshal(data, &o)
}
