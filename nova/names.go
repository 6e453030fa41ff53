package nova

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/document"
	"gpustack/host/pci"
	"gpustack/nova/conf"
	"gpustack/nova/devspec"
)

// Errors of names of aliases.
var (
	// ErrNames is the error of a file that does not contain the aliases of a cloud.
	ErrNames = host.WithHint(errors.New("neither a nova.conf nor the output of nova configure"),
		host.Textf("give a controller's nova.conf, or the output of %s on a controller", host.NewCommand("nova configure").Flag("o", "json").Elsewhere()))
	// ErrAliasValue is the error of an alias that Nova cannot read.
	ErrAliasValue = host.WithHint(errors.New("the value of alias is not a JSON object with a name: Nova rejects every alias of the file"),
		host.Textf("correct the line: %s explains it", host.NewCommand("nova check")))
	// ErrNameTaken says that a name is in use for another product.
	ErrNameTaken = host.WithHint(errors.New("the name exists with another product"),
		"choose another name with --alias NAME=VENDOR:PRODUCT, or remove the existing alias with --remove-alias NAME")
	// ErrSameName says that the derived names of two products are equal.
	ErrSameName = host.WithHint(errors.New("the derived names are equal"), "name one of the products with --alias NAME=VENDOR:PRODUCT")
	// ErrRemoved says that an alias is both planned and removed.
	ErrRemoved = host.WithHint(errors.New("--remove-alias removes the alias that is planned"),
		"omit --remove-alias, or give the alias another name with --alias NAME=VENDOR:PRODUCT")
)

// noAlias returns the error of an alias to remove that does not exist. known are those that exist.
func noAlias(name string, known []string) error {
	hint := "this host has no aliases; --conf FILE names another nova.conf"
	if len(known) > 0 {
		hint = "the aliases of this host are " + strings.Join(known, ", ")
	}
	return host.WithHint(fmt.Errorf("--remove-alias: no file of this host defines alias %s", name), hint)
}

// Named is an alias in use, and where it is defined.
type Named struct {
	Alias
	HasIDs bool   // the definition has a vendor and a product
	Where  string // FILE:LINE, or FILE for a JSON document
}

// selects reports whether the alias is for the devices of a product.
func (n Named) selects(vendor, product pci.ID) bool {
	return n.HasIDs && n.VendorID == vendor && n.ProductID == product
}

func (n Named) String() string {
	if !n.HasIDs {
		return n.Where + " defines it without ids"
	}
	return fmt.Sprintf("%s defines it for %s:%s", n.Where, n.VendorID, n.ProductID)
}

// newNamed reads an alias. It is false if the object has no name.
func newNamed(object map[string]any, where string) (Named, bool) {
	text := func(key string) string {
		s, _ := object[key].(string)
		return s
	}
	n := Named{Where: where, Alias: Alias{
		Name: strings.TrimSpace(text("name")), DeviceType: text("device_type"), NUMAPolicy: text("numa_policy"),
		ResourceClass: text("resource_class"), Traits: text("traits"), LiveMigratable: text("live_migratable"),
	}}
	vendor, vendorErr := pci.ParseID(text("vendor_id"))
	product, productErr := pci.ParseID(text("product_id"))
	if n.HasIDs = vendorErr == nil && productErr == nil; n.HasIDs {
		n.VendorID, n.ProductID = vendor, product
	}
	return n, n.Name != ""
}

// ReadNames reads the aliases of a cloud from files that the operator hands over: a controller's
// nova.conf, or the JSON or YAML of nova configure. The kind of each file is recognized. The error
// joins the errors of all files.
//
// Errors: ErrNoDocument, ErrNames, ErrAliasValue, ErrAlias, [conf.SyntaxError].
func ReadNames(from document.Source) (names []Named, err error) {
	var errs []error
	for _, path := range from.Paths {
		text, err := from.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%s: %w", path, ErrNoDocument)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		found, err := parseNames(document.Name(path), text)
		names, errs = append(names, found...), append(errs, err)
	}
	return names, errors.Join(errs...)
}

// parseNames reads the aliases of one file. A document is an object, which no nova.conf is: its
// first option follows a section header.
func parseNames(file string, text []byte) ([]Named, error) {
	switch d := document.Recognize(text); {
	case d.Kind == document.NovaConfigure && d.IsAlone():
		return namesOfDocument(file, d.Text)
	case d.Kind != document.Unknown && d.Kind != document.NovaConfigure:
		return nil, fmt.Errorf("%s: is %s, %w", file, d.Kind, ErrNames)
	case bytes.HasPrefix(d.Text, []byte("{")):
		return nil, fmt.Errorf("%s: %w", file, ErrNames)
	}
	parsed, err := parseConf(file, text)
	if err != nil {
		return nil, err
	}
	names, errs := Side{Files: []conf.Source{{Name: file, File: parsed}}}.named(Newest)
	return names, errors.Join(errs...)
}

// namesOfDocument reads the aliases of the output of nova configure.
func namesOfDocument(file string, text []byte) (names []Named, err error) {
	var plan struct {
		Schema  int
		Aliases *[]map[string]any
	}
	switch err := json.Unmarshal(text, &plan); {
	case err != nil || plan.Aliases == nil:
		return nil, fmt.Errorf("%s: %w", file, ErrNames)
	case plan.Schema != document.Schema:
		return nil, fmt.Errorf("%s: schema %d is of another version of gpustack, %w that this version reads", file, plan.Schema, ErrNames)
	}
	for _, object := range *plan.Aliases {
		n, ok := newNamed(object, file)
		if !ok {
			return nil, fmt.Errorf("%s: %w", file, ErrNames)
		}
		names = append(names, n)
	}
	return names, nil
}

// named returns the aliases of the side under the names of the option that a release reads, and an
// error for each value that is none or that Nova rejects, but for keys that only a later release has.
func (s Side) named(r Release) (names []Named, malformed []error) {
	for _, o := range s.Find(r.AliasNames()...) {
		where := fmt.Sprintf("%s:%d", o.File, o.Line())
		objects := conf.ParseObjects(o.Value)
		ok := len(objects) == 1
		if ok {
			var n Named
			if n, ok = newNamed(objects[0], where); ok {
				names = append(names, n)
			}
			for _, f := range valueFaults(objects[0], Newest) {
				ok = true // a better error than that of a value that is no alias
				malformed = append(malformed, fmt.Errorf("%s: %s: %w", where, f.Seen, ErrAlias))
			}
		}
		if !ok {
			malformed = append(malformed, fmt.Errorf("%s: %w", where, ErrAliasValue))
		}
	}
	return names, malformed
}

// ReadFiles reads the files of the role's services on the machine below root: it sets InUse, Generated
// and SchedulerFiles, as far as files can be read. Values that are no alias are left to [NewPlan]. A
// main file that does not exist has none.
//
// Errors: [conf.SyntaxError].
func (o *Options) ReadFiles(root host.Root, place Place) error {
	names, err := Files(root, place.File, o.Role)
	if err != nil {
		return err
	}
	own, err := readPresent(root, o.Role, names)
	sides, errs := []Side{own}, []error{err}
	o.InUse, o.Generated, o.SchedulerFiles = nil, nil, Side{}
	if o.Role.Controls() {
		o.SchedulerFiles = own.Scheduler()
	}
	installations, err := generated(root, o.Role)
	for _, in := range installations {
		side, readErr := ReadSide(root, in.Role, in.Files)
		o.Generated, err = append(o.Generated, side.Files...), errors.Join(err, readErr)
		if of := side.Scheduler(); !place.Given && in.Role.Controls() && len(of.Files) > 0 {
			o.SchedulerFiles = of
		}
		sides = append(sides, side)
	}
	if place.Given {
		sides = sides[:1]
	} else {
		errs = append(errs, err)
	}
	for _, s := range sides {
		found, _ := s.named(o.Release)
		o.InUse = append(o.InUse, found...)
	}
	return errors.Join(errs...)
}

// OfferedAliases returns the aliases that the configuration files of the machine below root define,
// of every option name that some release reads. Files that do not exist define none.
func OfferedAliases(root host.Root) (names []Named, err error) {
	installations, err := installationsOf(root, All)
	errs := []error{err}
	for _, in := range installations {
		side, err := readPresent(root, in.Role, in.Files)
		found, malformed := side.named(Newest)
		names, errs = append(names, found...), append(append(errs, err), malformed...)
	}
	return names, errors.Join(errs...)
}

// AliasName returns the name that the alias of a GPU or an NVSwitch gets: by its product, and by the
// inventory only if another version of gpustack has named a product that this one does not know. It
// is "" for other devices.
func AliasName(d *pci.Device) string {
	isGPU := d.IsGPU() && !d.IsManagementConsole()
	if !isGPU && !d.IsNVSwitch() || d.VendorID == nil || d.ProductID == nil {
		return ""
	}
	name := pci.AliasName(*d.VendorID, *d.ProductID, host.Value(d.Product))
	if name == "" && d.AliasHint != nil {
		name = string(*d.AliasHint)
	}
	if !isGPU && (name == "" || !d.IsVendor(pci.NVIDIA)) { // no model, or an adapter that manages them
		return "NVSwitch"
	}
	return name
}

// named are the aliases of inventories.
type named struct {
	used     []Alias // with a name in use
	derived  []Alias // with a name that is derived from the product
	warnings []string
}

// add adds the aliases of a product whose devices have one type. Names in use win: those of
// --alias, else those of the cloud, else those of this machine. Without any, the name is derived.
//
// The error says that neither gpustack nor pci.ids knows the model.
func (n *named) add(o Options, p Alias) error {
	if slices.ContainsFunc(o.Aliases, func(a Alias) bool {
		return a.VendorID == p.VendorID && a.ProductID == p.ProductID && (a.DeviceType == "" || a.DeviceType == p.DeviceType)
	}) {
		return nil
	}
	for _, names := range [][]Named{o.Cloud, o.inUse()} {
		found := false
		for _, used := range names {
			if !used.selects(p.VendorID, p.ProductID) || used.DeviceType != "" && used.DeviceType != p.DeviceType {
				continue
			}
			found = true
			a := used.Alias
			if a.DeviceType == "" && p.DeviceType == string(pci.TypePF) {
				a.DeviceType = p.DeviceType
				n.warnings = append(n.warnings, fmt.Sprintf("%s: alias %s has no device_type, so Nova matches it with no device of type-PF: "+
					"it becomes type-PF here, and needs that on every other host", used.Where, a.Name))
			}
			if !slices.Contains(n.used, a) {
				n.used = append(n.used, a)
			}
		}
		if found {
			n.warnings = append(n.warnings, o.otherNames(p)...)
			return nil
		}
	}
	if p.Name == "" {
		return host.WithHint(fmt.Errorf("%s:%s: cannot derive the name of an alias: neither gpustack nor pci.ids knows the model",
			p.VendorID, p.ProductID), fmt.Sprintf("name the product with --alias NAME=%s:%s", p.VendorID, p.ProductID))
	}
	n.derived = append(n.derived, p)
	return nil
}

// otherNames returns a warning for each alias of this machine that has a product's devices under a
// name that the cloud does not have, where the cloud has another: it stays, as flavors may request
// it.
func (o Options) otherNames(p Alias) (warnings []string) {
	for _, n := range o.inUse() {
		if len(o.Cloud) > 0 && n.selects(p.VendorID, p.ProductID) && !slices.ContainsFunc(o.Cloud, func(c Named) bool { return c.Name == n.Name }) {
			warnings = append(warnings, fmt.Sprintf("%s: alias %s is for the same devices and is kept, but the files of --names do not have it: --remove-alias %s removes it",
				n.Where, n.Name, n.Name))
		}
	}
	return warnings
}

// inUse returns the aliases of this machine that are not removed.
func (o Options) inUse() []Named {
	return slices.DeleteFunc(slices.Clone(o.InUse), func(n Named) bool { return slices.Contains(o.Remove, n.Name) })
}

// typed returns the aliases of --alias, each with the device type of its devices unless the same alias
// is in use without a type and means the same. The warnings name those whose type nothing tells.
func (o Options) typed() (aliases []Alias, warnings []string) {
	aliases = slices.Clone(o.Aliases)
	for i, a := range aliases {
		if a.DeviceType != "" {
			continue
		}
		kind := o.knownType(a)
		if kind == "" {
			warnings = append(warnings, fmt.Sprintf("alias %[1]s: the device_type of %[2]s:%[3]s is unknown, and without it Nova "+
				"assigns no device of type-PF: give --inventory FILE of a compute node, or "+
				"--alias %[1]s=%[2]s:%[3]s,device_type=%[4]s if the device supports SR-IOV", a.Name, a.VendorID, a.ProductID, pci.TypePF))
		}
		if kind == string(pci.TypePF) || !slices.Contains(o.typesInUse(a), "") {
			aliases[i].DeviceType = kind
		}
	}
	return aliases, warnings
}

// knownType returns the device type of an alias's product: that of the inventories, else of this
// machine, else of the table of products, else the one with which the alias is in use; "" if none
// tells it.
func (o Options) knownType(a Alias) string {
	// Physical and virtual functions of a GPU may share one id: those for guests count.
	for _, hosts := range [][]Host{o.Hosts, {{Devices: o.Devices, Given: o.Given, Containers: o.Containers}}} {
		switch types := typesOn(hosts, a); len(types) {
		case 0:
		case 1:
			return types[0]
		default:
			return ""
		}
	}
	if kind := pci.TypeOfProduct(a.VendorID, a.ProductID); kind != "" {
		return string(kind)
	}
	if types := slices.DeleteFunc(o.typesInUse(a), func(kind string) bool { return kind == "" }); len(types) == 1 {
		return types[0]
	}
	return ""
}

// typesInUse returns the device types with which an alias is in use for its product, "" for none.
func (o Options) typesInUse(a Alias) (types []string) {
	for _, used := range append(slices.Clone(o.Cloud), o.inUse()...) {
		if used.Name == a.Name && used.selects(a.VendorID, a.ProductID) {
			types = append(types, used.DeviceType)
		}
	}
	slices.Sort(types)
	return slices.Compact(types)
}

// checkNames compares planned aliases with those in use, letter by letter.
func (o Options) checkNames(aliases []Alias) (warnings []string, errs []error) {
	for i, a := range aliases {
		for _, other := range aliases[:i] {
			if a.Name != other.Name && strings.EqualFold(a.Name, other.Name) {
				warnings = append(warnings, fmt.Sprintf("alias %s differs in case only from alias %s: to Nova they are two aliases", a.Name, other.Name))
			}
		}
		used := append(o.inUse(), o.Cloud...)
		for i, n := range used {
			if n.Name != a.Name && strings.EqualFold(n.Name, a.Name) && !slices.ContainsFunc(used[:i], func(m Named) bool { return m.Name == n.Name }) {
				warnings = append(warnings, fmt.Sprintf("alias %s differs in case only from alias %s (%s): to Nova they are two aliases", a.Name, n.Name, n.Where))
			}
		}
		same := slices.DeleteFunc(used, func(n Named) bool { return n.Name != a.Name })
		if len(same) > 0 && !slices.ContainsFunc(same, func(n Named) bool { return n.selects(a.VendorID, a.ProductID) }) {
			errs = append(errs, fmt.Errorf("alias %s for %s:%s: %w: %s", a.Name, a.VendorID, a.ProductID, ErrNameTaken, same[0]))
		}
		if slices.Contains(o.Remove, a.Name) && slices.ContainsFunc(o.InUse, func(n Named) bool { return n.Name == a.Name && n.selects(a.VendorID, a.ProductID) }) {
			errs = append(errs, fmt.Errorf("alias %s for %s:%s: %w", a.Name, a.VendorID, a.ProductID, ErrRemoved))
		}
	}
	var known []string
	for _, n := range o.InUse {
		if !slices.Contains(known, n.Name) {
			known = append(known, n.Name)
		}
	}
	errs = append(errs, host.Map(host.Filter(o.Remove, func(name string) bool { return !slices.Contains(known, name) && !o.IfPresent }),
		func(name string) error { return noAlias(name, known) })...)
	return warnings, errs
}

// warnDerived returns the warning about names that a compute node alone has chosen. On a controller
// the names are the cloud's from then on.
func (o Options) warnDerived(derived []Alias) []string {
	if len(derived) == 0 || o.Role != Compute {
		return nil
	}
	names := host.Map(derived, func(a Alias) string { return a.Name })
	text := "aliases with names derived from the product: " + strings.Join(names, ", ") + ": "
	if o.NamesGiven {
		return []string{text + "the files of --names have no alias for these devices; define the same aliases on the controllers"}
	}
	return []string{text + "pass --names FILE, a controller's nova.conf, to use the names of the cloud"}
}

// Defined is what configuration files define of the devices that flavors request.
type Defined struct {
	Aliases []Named
	Classes []Class
}

// Class is the resource class of the devices that a device_spec offers.
type Class struct {
	Name       string // as Placement knows it
	VendorID   pci.ID
	ProductID  pci.ID
	OneTimeUse bool   // the devices stay reserved after their first guest
	Where      string // FILE:LINE
}

// DefinedBy returns what the configurations of machines define, of every option name that some
// release reads. A device_spec without a vendor and a product defines no class.
//
// Errors: ErrAliasValue, ErrAlias.
func DefinedBy(sides []Side) (d Defined, err error) {
	var errs []error
	for _, side := range sides {
		found, malformed := side.named(Newest)
		d.Aliases, errs = append(d.Aliases, found...), append(errs, malformed...)
		for _, line := range devspec.Lines(side.Files, Newest.SpecNames()) {
			for _, spec := range line.Specs {
				vendor, vendorErr := pci.ParseID(spec.Vendor)
				product, productErr := pci.ParseID(spec.Product)
				if vendorErr != nil || productErr != nil {
					continue
				}
				class, _ := spec.Object["resource_class"].(string)
				d.Classes = append(d.Classes, Class{devspec.ResourceClass(class, vendor, product), vendor, product, spec.IsOn("one_time_use"), line.Where()})
			}
		}
	}
	return d, errors.Join(errs...)
}
