package fleet

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/document"
	"gpustack/host/guest"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/selection"
	"gpustack/nova"
)

var (
	// ErrNameless means that a document does not show which host it is of.
	ErrNameless = host.WithHint(errors.New("does not show which host it is of"),
		"run gpustack on the node itself; a snapshot without --identity has no hostname")
	// ErrSameTime means that of two documents of one host and kind none is newer.
	ErrSameTime = host.WithHint(errors.New("two documents of one host and kind have the same time"), "give only one of them")
	// ErrCase means that the hostnames of two documents differ only in case.
	ErrCase = host.WithHint(errors.New("two hostnames differ only in case"), "give only the documents of one of them; Nova and DNS do not tell such names apart")
	// ErrMachines means that two documents of one host are of different machines.
	ErrMachines = host.WithHint(errors.New("two documents of one host are of different machines"),
		"give only the documents of one of them, and give each machine a hostname of its own")
	// ErrNoScan means that the functions of no node are known.
	ErrNoScan = host.WithHint(errors.New("no output of host scan is among the documents"),
		host.Textf("on the compute node, run: %s > FILE", host.NewCommand("host scan").Flag("machine").Flag("o", "json").Elsewhere()))
	// ErrSameNovaHost means that two nodes have one name in Nova.
	ErrSameNovaHost = host.WithHint(errors.New("two hosts have one name in Nova"),
		"compare the option host in nova.conf on both nodes; if both are one machine, remove the documents with its former hostname")
)

// kinds are the kinds of documents that are read.
var kinds = document.Kinds{document.HostScan, document.HostCheck, document.HostGuests}

// Read reads the documents of a fleet. Of one host and kind the newest counts; documents of other
// commands are ignored, and so is a file of a folder that has no document or a malformed one, as a node
// may leave behind; of each a warning is returned.
//
// Errors, of all documents at once: those of [document.Source.EachOf] and [document.Malformed],
// [nova.ErrPartial], ErrNameless, ErrSameTime, ErrCase, ErrMachines, ErrSameNovaHost.
func Read(from document.Source) (Fleet, error) {
	r := reader{nodes: map[string]*Node{}, known: map[string][]Origin{}, names: names{}, machines: map[string]Origin{}}
	others := map[document.Kind][]string{}
	from.Ignore = func(d document.Document) { others[d.Kind] = append(others[d.Kind], d.Name) }
	broken := map[string]error{}
	from.Broken = func(file string, err error) error {
		if errors.Is(err, ErrCase) || errors.Is(err, ErrMachines) {
			return err
		}
		broken[file] = err
		return nil
	}
	err := from.EachOf(kinds, r.add)
	nodes, renamed, errNames := r.named()
	fleet := Fleet{Nodes: nodes, Warnings: slices.Concat(r.superseded(), renamed, ignored(others))}
	for _, file := range slices.Sorted(maps.Keys(broken)) {
		fleet.malformed(file, broken[file])
		if len(r.nodes) == 0 {
			err = errors.Join(err, broken[file])
		}
	}
	return fleet, errors.Join(err, r.order(), errNames)
}

// malformed adds a file that could not be read to the node whose other files are named like it, to the
// fleet's if there is none, and to the warnings.
func (f *Fleet) malformed(file string, err error) {
	stem := fileStem(file)
	f.Warnings = append(f.Warnings, host.Map(host.Split(err), error.Error)...)
	f.Malformed = append(f.Malformed, Malformed{stem, file, err})
	for i := range f.Nodes {
		if slices.ContainsFunc(f.Nodes[i].origins(), func(o Origin) bool { return o.stem(f.Nodes[i].Name) == stem }) {
			f.Nodes[i].Malformed = append(f.Nodes[i].Malformed, file)
			f.Malformed[len(f.Malformed)-1].Node = f.Nodes[i].Name
		}
	}
}

// NeedScan returns ErrNoScan if there is no output of host scan at all: that a fleet has no GPUs,
// or the same ones as before, would follow from nothing.
func (f Fleet) NeedScan() error {
	if slices.ContainsFunc(f.Nodes, func(n *Node) bool { return n.Scan != nil }) {
		return nil
	}
	return ErrNoScan
}

// namesInText is how many names a message has at most.
const namesInText = 5

// reader collects what documents show.
type reader struct {
	nodes map[string]*Node    // by hostname in lower case
	known map[string][]Origin // the documents of each host and kind, by both
	names names

	machines map[string]Origin // a document of each host that shows which machine it is of
}

// add adds a document.
func (r *reader) add(d document.Document) error {
	parse := map[document.Kind]func(document.Document) (Node, error){
		document.HostScan: r.names.scan, document.HostCheck: r.names.check, document.HostGuests: r.names.guests}[d.Kind]
	is, err := parse(d)
	if err != nil {
		return err
	}
	if is.Name == "" {
		return fmt.Errorf("%s: %w", d.Name, ErrNameless)
	}
	of, key := is.origins()[0], strings.ToLower(is.Name)
	n := r.nodes[key]
	switch {
	case n == nil:
		n = &Node{Name: is.Name}
		r.nodes[key] = n
	case n.Name != is.Name:
		return fmt.Errorf("%s: %w: %s, and %s in %s", d.Name, ErrCase, is.Name, n.Name, n.origins()[0].Name)
	}
	if of.machine != "" {
		other, known := r.machines[key]
		if known && other.machine != of.machine {
			return fmt.Errorf("%s: %w: %s is of another %s", d.Name, ErrMachines, other.Name, n.Name)
		}
		r.machines[key] = of
	}
	place := string(d.Kind) + " " + key
	newest := !slices.ContainsFunc(r.known[place], func(other Origin) bool { return !other.Time.Before(of.Time) })
	r.known[place] = append(r.known[place], of)
	if !newest {
		return nil
	}
	n.Scan, n.Check, n.Guests = cmp.Or(is.Scan, n.Scan), cmp.Or(is.Check, n.Check), cmp.Or(is.Guests, n.Guests)
	if is.NovaHost != "" && (is.Guests != nil || n.NovaHost == "") {
		n.NovaHost = is.NovaHost
	}
	return nil
}

// order returns an error for each two documents of one host and kind of which none is newer. It
// sorts the documents of each, the newest first.
func (r *reader) order() error {
	var errs []error
	for _, place := range slices.Sorted(maps.Keys(r.known)) {
		all := r.known[place]
		slices.SortStableFunc(all, func(a, b Origin) int { return b.Time.Compare(a.Time) })
		for i := 1; i < len(all); i++ {
			if a, b := all[i-1], all[i]; a.Time.Equal(b.Time) {
				errs = append(errs, fmt.Errorf("%s: %w: %s is of %s too", b.Name, ErrSameTime, a.Name, a.Time.Format(time.RFC3339)))
			}
		}
	}
	return errors.Join(errs...)
}

// superseded returns a warning for each kind of which a host has several documents.
func (r *reader) superseded() (warnings []string) {
	for _, k := range kinds {
		var hosts []string
		for _, place := range slices.Sorted(maps.Keys(r.known)) {
			all := r.known[place]
			if node, ok := strings.CutPrefix(place, string(k)+" "); ok && len(all) > 1 {
				newest := slices.MaxFunc(all, func(a, b Origin) int { return a.Time.Compare(b.Time) })
				hosts = append(hosts, fmt.Sprintf("%s (%s)", r.nodes[node].Name, newest.Name))
			}
		}
		if hosts != nil {
			warnings = append(warnings, fmt.Sprintf("%s: several documents of %s, of which the newest counts: %s", k, host.Numbered(len(hosts), "host"),
				host.Shortened(hosts, namesInText)))
		}
	}
	return warnings
}

// ignored returns a warning about documents of other commands.
func ignored(others map[document.Kind][]string) (warnings []string) {
	for _, k := range slices.Sorted(maps.Keys(others)) {
		warnings = append(warnings, fmt.Sprintf("ignored, because only %s is read: %s of %s: %s", kinds, host.Numbered(len(others[k]), "document"),
			string(k), host.Shortened(others[k], namesInText)))
	}
	return warnings
}

// named returns the nodes, by name, without the older one of two names of one machine, with a
// warning, and an error for each other two with one name in Nova.
func (r *reader) named() (nodes []*Node, warnings []string, err error) {
	inNova, hosts := map[string]*Node{}, map[string][]*Node{}
	for _, n := range slices.SortedFunc(maps.Values(r.nodes), func(a, b *Node) int {
		return cmp.Or(b.newest().Compare(a.newest()), cmp.Compare(a.Name, b.Name))
	}) {
		name := strings.ToLower(n.InNova())
		short, _, _ := strings.Cut(strings.ToLower(n.Name), ".")
		candidates := append([]*Node{inNova[name]}, hosts[short]...)
		switch i := slices.IndexFunc(candidates, func(now *Node) bool { return now != nil && r.became(n, now) }); {
		case i >= 0:
			now := candidates[i]
			now.Scan, now.Check, now.Guests = cmp.Or(now.Scan, n.Scan), cmp.Or(now.Check, n.Check), cmp.Or(now.Guests, n.Guests)
			warnings = append(warnings, fmt.Sprintf("the documents of %s count only where %s has none, because that is the name of this machine now", n.Name, now.Name))
		case inNova[name] != nil:
			err = errors.Join(err, fmt.Errorf("%s: %w: %s has %s too", n.origins()[0].Name, ErrSameNovaHost, inNova[name].origins()[0].Name, n.InNova()))
		default:
			inNova[name], hosts[short], nodes = n, append(hosts[short], n), append(nodes, n)
		}
	}
	slices.SortFunc(nodes, func(a, b *Node) int { return cmp.Compare(a.Name, b.Name) })
	return nodes, warnings, err
}

// became reports whether a node has the name of another one now: both have one machine id and one
// name in Nova, or one hostname is the other one without its domain, and the documents of the other
// one are all newer, unless both names are as said. The id alone is no proof, because a cloned image
// may contain it. The output of host check does not show it: alone, it has the name in Nova.
func (r *reader) became(n, now *Node) bool {
	was, is := strings.ToLower(n.Name), strings.ToLower(now.Name)
	id, one := r.machines[was].machine, strings.EqualFold(n.InNova(), now.InNova())
	domain := strings.HasPrefix(was, is+".") || strings.HasPrefix(is, was+".")
	same := id != "" && id == r.machines[is].machine
	newer := !slices.ContainsFunc(kinds, func(k document.Kind) bool {
		return slices.ContainsFunc(r.known[string(k)+" "+is], func(of Origin) bool { return !of.Time.After(n.newest()) })
	})
	return same && one && domain || newer && (same && (one || domain) || one && n.Scan == nil && n.Guests == nil)
}

// names are the texts of the documents, each kept once: those of many nodes are the same.
type names map[string]string

func (s names) intern(text string) string {
	if known, ok := s[text]; ok {
		return known
	}
	text = strings.Clone(text)
	s[text] = text
	return text
}

func (s names) internAt(text *string) string {
	return s.intern(host.Value(text))
}

// errNoTime is the error of a document that does not say when it was made.
var errNoTime = errors.New("time is missing")

// system is what is read of the machine's system.
type system struct {
	Kernel *string `json:"kernel"`
}

// scanDocument is what is read of the output of host scan.
type scanDocument struct {
	Host     host.Name  `json:"host"`
	NovaHost host.Name  `json:"nova_host"`
	Time     time.Time  `json:"time"`
	System   system     `json:"system"`
	Scope    nova.Scope `json:"scope"`
	Complete host.Bool  `json:"complete"`
	Devices  []scanned  `json:"devices"`
	Machine  *struct {
		ID      *host.MachineID `json:"id"`
		Vendor  *string         `json:"vendor"`
		Product *string         `json:"product"`
		BIOS    struct {
			Version *string `json:"version"`
		} `json:"bios"`
	} `json:"machine"`
}

// scanned is a function in the output of host scan.
type scanned struct {
	pci.Device
	State *selection.StateName `json:"state"`
	Role  *machine.Role        `json:"role"`
}

// scan reads the output of host scan.
func (s names) scan(d document.Document) (Node, error) {
	var found scanDocument
	if err := json.Unmarshal(d.Text, &found); err != nil {
		return Node{}, document.Malformed(d.Name, d.Kind, err)
	}
	if found.Time.IsZero() {
		return Node{}, document.Malformed(d.Name, d.Kind, errNoTime)
	}
	if found.Scope == nova.ScopeFiltered {
		return Node{}, fmt.Errorf("%s: %w: it lists only the functions that --device, --vendor or --class select", d.Name, nova.ErrPartial)
	}
	devices := make([]pci.Device, len(found.Devices))
	for i := range found.Devices {
		devices[i] = found.Devices[i].Device
	}
	if err := faults(devices, found.Devices == nil); err != nil {
		return Node{}, document.Malformed(d.Name, d.Kind, err)
	}
	scan := &Scan{Origin: Origin{Name: d.Name, File: d.File, Time: found.Time}, Complete: found.Complete != host.No, Kernel: s.internAt(found.System.Kernel)}
	if m := found.Machine; m != nil {
		scan.Server = s.intern(strings.TrimSpace(s.internAt(m.Vendor) + " " + s.internAt(m.Product)))
		scan.Firmware = s.internAt(m.BIOS.Version)
		scan.machine = s.internAt((*string)(m.ID))
	}
	listed := pci.Candidates(devices)
	for i := range found.Devices {
		if listed(&devices[i]) && !devices[i].IsBridge() || devices[i].IsNVSwitch() {
			scan.Functions = append(scan.Functions, s.function(found.Devices[i]))
		}
	}
	slices.SortFunc(scan.Functions, func(a, b Function) int { return a.Address.Compare(b.Address) })
	scan.gpus = slices.DeleteFunc(slices.Clone(scan.Functions), func(f Function) bool { return !f.GPU })
	return Node{Name: s.intern(string(cmp.Or(found.Host, found.NovaHost))), NovaHost: s.intern(string(found.NovaHost)), Scan: scan}, nil
}

// faults returns what is wrong with a list of functions.
func faults(devices []pci.Device, absent bool) error {
	var errs []error
	if absent {
		errs = append(errs, errors.New("devices is null"))
	}
	seen := map[pci.Address]bool{}
	for i := range devices {
		a := devices[i].Address
		switch {
		case seen[a]:
			errs = append(errs, fmt.Errorf("devices[%d]: %s is listed twice", i, a))
		case a == pci.Address{} && devices[i].IsGPU():
			errs = append(errs, fmt.Errorf("devices[%d]: a GPU without an address", i))
		}
		seen[a] = true
	}
	return errors.Join(errs...)
}

// function returns what is kept of a function.
func (s names) function(d scanned) Function {
	f := Function{
		Address: d.Address, Board: productOf(d.SubsystemVendorID, d.SubsystemID),
		NamedProduct: NamedProduct{productOf(d.VendorID, d.ProductID), cmp.Or(s.intern(nova.AliasName(&d.Device)), s.internAt(d.Product))},
		Driver:       s.internAt(d.Driver), NUMANode: d.NUMANode,
		Group: slices.Clone(d.GroupMembers), Console: d.IsConsole(), GPU: d.IsNVIDIAGPU() && !d.IsVF() && d.SRIOV.PF == nil,
	}
	slices.SortFunc(f.Group, pci.Address.Compare)
	if d.Class != nil {
		f.Class = s.intern(d.Class.String())
	}
	if d.DeviceType != nil {
		f.Type = pci.DeviceType(s.intern(string(*d.DeviceType)))
	}
	if d.State != nil {
		f.State = selection.StateName(s.intern(string(*d.State)))
	}
	if d.Role != nil {
		f.Role = machine.Role(s.intern(string(*d.Role)))
	}
	return f
}

// productOf returns ids, with 0 for one that is unknown.
func productOf(vendor, id *pci.ID) Product {
	return Product{Vendor: host.Value(vendor), ID: host.Value(id)}
}

// checkDocument is what is read of the output of host check.
type checkDocument struct {
	Host     host.Name         `json:"host"`
	Time     time.Time         `json:"time"`
	Version  string            `json:"version"`
	Verdict  checklist.Verdict `json:"verdict"`
	Reboot   host.Bool         `json:"reboot_required"`
	System   system            `json:"system"`
	Findings []struct {
		Check  string      `json:"check"`
		Status host.Status `json:"status"`
		Seen   string      `json:"seen"`
	} `json:"findings"`
}

// linkCheck is the check of PCIe links (docs/json.md).
const linkCheck = "pcie"

// check reads the output of host check.
func (s names) check(d document.Document) (Node, error) {
	var found checkDocument
	if err := json.Unmarshal(d.Text, &found); err != nil {
		return Node{}, document.Malformed(d.Name, d.Kind, err)
	}
	if found.Time.IsZero() {
		return Node{}, document.Malformed(d.Name, d.Kind, errNoTime)
	}
	if !slices.Contains(checklist.Verdicts(), found.Verdict) {
		return Node{}, document.Malformed(d.Name, d.Kind, fmt.Errorf("verdict: unknown value %.60q", found.Verdict))
	}
	check := &Check{Origin: Origin{Name: d.Name, File: d.File, Time: found.Time}, Verdict: checklist.Verdict(s.intern(string(found.Verdict))),
		Reboot: found.Reboot == host.Yes, Version: s.intern(found.Version), Kernel: s.internAt(found.System.Kernel)}
	for _, f := range found.Findings {
		switch {
		case f.Check == linkCheck && f.Status == host.Warn:
			check.Links = append(check.Links, s.intern(f.Seen))
		case f.Status == host.Fail && !slices.Contains(check.Failed, f.Check):
			check.Failed = append(check.Failed, s.intern(f.Check))
		}
	}
	return Node{Name: s.intern(string(found.Host)), Check: check}, nil
}

// guests reads the output of host guests.
func (s names) guests(d document.Document) (Node, error) {
	r, err := guest.Decode(d.Text)
	if err != nil {
		return Node{}, document.Malformed(d.Name, d.Kind, err)
	}
	g := &Guests{Origin: Origin{Name: d.Name, File: d.File, Time: r.Collected}, Complete: r.Complete, Used: map[pci.Address]bool{}}
	g.machine = host.Value(r.MachineID)
	for a := range r.Users() {
		g.Used[a] = true
	}
	instance := func(uuid, name string) {
		if !slices.ContainsFunc(g.Instances, func(i Instance) bool { return uuid != "" && i.UUID == uuid || i == Instance{uuid, name} }) {
			g.Instances = append(g.Instances, Instance{uuid, name})
		}
	}
	for _, domain := range r.Domains {
		instance(domain.UUID, domain.Name)
	}
	for _, process := range r.Guests {
		for _, a := range process.Asked {
			g.Used[a] = true
		}
		instance(host.Value(process.UUID), host.Value(process.Name))
	}
	for _, pf := range r.VirtualFunctions {
		if slices.ContainsFunc(pf.Functions, func(a pci.Address) bool { return g.Used[a] }) {
			g.Used[pf.Address] = true
		}
	}
	slices.SortFunc(g.Instances, func(a, b Instance) int { return cmp.Compare(a.String(), b.String()) })
	inNova := s.internAt(r.NovaHost)
	return Node{Name: cmp.Or(s.internAt(r.Hostname), inNova), NovaHost: inNova, Guests: g}, nil
}
