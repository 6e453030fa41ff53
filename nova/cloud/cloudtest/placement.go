package cloudtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Placement answers requests for candidates, providers and allocations as Placement does, in the
// microversions from 1.12 to the newest. TestPlacement compares it with recorded answers of a real
// one. What it does not imitate, such as request groups with a suffix, it refuses with HTTP 501.
type Placement struct {
	Newest    int // microversion 1.N
	Providers []*Provider
	Classes   []string // that exist besides those of inventories
	Traits    []string // that exist besides those of providers
	Lacks     []string // standard traits that do not exist, as in an earlier release
}

// newestPlacement is the newest microversion of Placement 8 (Zed), 1.39.
const newestPlacement = 39

// Provider is a resource provider.
type Provider struct {
	UUID, Name  string
	Parent      string // uuid; "" for a root
	Traits      []string
	Aggregates  []string
	Inventories map[string]Inventory
	Held        map[string]map[string]int // amounts by resource class, by consumer
}

// Inventory is what a provider has of a resource class.
type Inventory struct {
	Total    int     `json:"total"`
	Reserved int     `json:"reserved"`
	MinUnit  int     `json:"min_unit"`
	MaxUnit  int     `json:"max_unit"`
	StepSize int     `json:"step_size"`
	Ratio    float64 `json:"allocation_ratio"`
}

// Whole is an inventory without reservations and limits.
func Whole(total int) Inventory {
	return Inventory{Total: total, MinUnit: 1, MaxUnit: total, StepSize: 1, Ratio: 1}
}

// Sharing is the trait of providers that share with the providers of their aggregates.
const Sharing = "MISC_SHARES_VIA_AGGREGATE"

func (i Inventory) capacity() int { return int(float64(i.Total-i.Reserved) * i.Ratio) }

func (p *Provider) used(class string) int {
	n := 0
	for _, held := range p.Held {
		n += held[class]
	}
	return n
}

// has reports whether a provider can serve an amount (objects/research_context.py,
// _capacity_check_clause).
func (p *Provider) has(class string, amount int) bool {
	i, ok := p.Inventories[class]
	return ok && p.used(class)+amount <= i.capacity() && i.MinUnit <= amount && i.MaxUnit >= amount && amount%i.StepSize == 0
}

// refusal is an answer that is an error.
type refusal struct {
	status int
	detail string
}

func (r refusal) Error() string { return r.detail }

func bad(format string, values ...any) error {
	return refusal{http.StatusBadRequest, "The server could not comply with the request since it is either malformed or otherwise incorrect.\n\n " +
		fmt.Sprintf(format, values...) + "\n\n "}
}

func lacking(format string, values ...any) error {
	return refusal{http.StatusNotFound, "The resource could not be found.\n\n " + fmt.Sprintf(format, values...) + "  "}
}

// serve answers a request below /placement, and returns false for another one.
func (p *Placement) serve(w http.ResponseWriter, r *http.Request) bool {
	path, ok := strings.CutPrefix(r.URL.Path, "/placement/")
	if !ok || r.Method != http.MethodGet {
		return false
	}
	body, err := p.answer(path, r)
	var no refusal
	switch {
	case errors.As(err, &no):
		w.WriteHeader(no.status)
		e := map[string]any{"status": no.status, "title": http.StatusText(no.status), "detail": no.detail}
		if no.status == http.StatusNotAcceptable {
			e["min_version"], e["max_version"] = "1.0", fmt.Sprintf("1.%d", p.Newest)
		}
		reply(w, map[string]any{"errors": []any{e}})
	default:
		reply(w, body)
	}
	return true
}

func (p *Placement) answer(path string, r *http.Request) (any, error) {
	if path == "" {
		return map[string]any{"versions": []any{map[string]any{"id": "v1.0", "status": "CURRENT", "min_version": "1.0",
			"max_version": fmt.Sprintf("1.%d", p.Newest), "links": []any{}}}}, nil
	}
	minor, err := p.minor(r.Header.Get("OpenStack-API-Version"))
	if err != nil {
		return nil, err
	}
	of, uuid, below := split(path)
	switch {
	case path == "allocation_candidates":
		return p.candidates(r.URL.Query(), minor)
	case path == "resource_providers":
		return p.list(r.URL.Query(), minor)
	case of == "allocations" && below == "":
		return p.allocations(uuid, minor), nil
	case of == "resource_providers":
		return p.show(uuid, below)
	}
	return nil, refusal{http.StatusNotImplemented, "cloudtest does not imitate " + path}
}

func split(path string) (of, uuid, below string) {
	of, rest, _ := strings.Cut(path, "/")
	uuid, below, _ = strings.Cut(rest, "/")
	return of, uuid, below
}

// minor reads the microversion of a request (microversion_parse).
func (p *Placement) minor(header string) (int, error) {
	version, ok := strings.CutPrefix(header, "placement ")
	if !ok {
		version = "1.0"
	}
	if version == "latest" {
		return p.Newest, nil
	}
	major, text, _ := strings.Cut(version, ".")
	if _, err := strconv.Atoi(major); err != nil {
		return 0, bad("Invalid microversion: invalid version string: %s; invalid literal for int() with base 10: '%s'", version, major)
	}
	minor, err := strconv.Atoi(text)
	switch {
	case err != nil || major != "1" || minor > p.Newest:
		return 0, refusal{http.StatusNotAcceptable, "The resource could not be generated that was acceptable to your browser (content of type application/json. \n\n " +
			"Invalid microversion: Unacceptable version header: " + version + "\n\n "}
	case minor < 12:
		return 0, refusal{http.StatusNotImplemented, "cloudtest does not imitate microversions before 1.12"}
	}
	return minor, nil
}

// query is what a request asks for.
type query struct {
	resources map[string]int
	required  [][]string // one trait of each element
	forbidden []string
}

// newQuery reads resources and required. supported are the parameters by the first microversion
// that has them.
func (p *Placement) newQuery(values url.Values, minor int, supported map[string]int) (q query, err error) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		first, ok := supported[name]
		if !ok && (strings.HasPrefix(name, "resources") || strings.HasPrefix(name, "required") || name == "limit" || name == "member_of" || name == "group_policy") {
			return q, refusal{http.StatusNotImplemented, "cloudtest does not imitate " + name}
		}
		if !ok || minor < first {
			return q, bad("Invalid query string parameters: Additional properties are not allowed ('%s' was unexpected)", name)
		}
	}
	if values.Has("resources") {
		if q.resources, err = readResources(values.Get("resources")); err != nil {
			return q, err
		}
	}
	required := values["required"]
	if minor < 39 && len(required) > 1 {
		required = required[len(required)-1:]
	}
	for _, text := range required {
		all, forbidden, err := readTraits(text, minor)
		if err != nil {
			return q, err
		}
		q.required, q.forbidden = append(q.required, all...), append(q.forbidden, forbidden...)
	}
	return q, nil
}

// known rejects resource classes and traits that do not exist. before is what precedes the message
// about traits.
func (p *Placement) known(q query, before string) error {
	for _, class := range slices.Sorted(maps.Keys(q.resources)) {
		if !slices.Contains(standard().ResourceClasses, class) && !slices.Contains(p.Classes, class) &&
			!slices.ContainsFunc(p.Providers, func(r *Provider) bool { _, ok := r.Inventories[class]; return ok }) {
			return bad("Invalid resource class in resources parameter: No such resource class %s.", class)
		}
	}
	var unknown []string
	for _, trait := range append(slices.Concat(q.required...), q.forbidden...) {
		isStandard := slices.Contains(standard().Traits, trait) && !slices.Contains(p.Lacks, trait)
		if !isStandard && !slices.Contains(p.Traits, trait) &&
			!slices.ContainsFunc(p.Providers, func(r *Provider) bool { return slices.Contains(r.Traits, trait) }) {
			unknown = append(unknown, trait)
		}
	}
	if len(unknown) > 0 {
		return bad("%sNo such trait(s): %s.", before, strings.Join(unknown, ", "))
	}
	return nil
}

// readResources reads "VCPU:4,MEMORY_MB:8" (util.py, normalize_resources_qs_param).
func readResources(text string) (map[string]int, error) {
	const form = "Badly formed resources parameter. Expected resources query string parameter in form: ?resources=VCPU:2,MEMORY_MB:1024. Got: %s."
	if strings.TrimSpace(text) == "" {
		return nil, bad(form, "empty string")
	}
	all := map[string]int{}
	for word := range strings.SplitSeq(text, ",") {
		parts := strings.Split(word, ":")
		if len(parts) != 2 {
			return nil, bad(form, word)
		}
		amount, err := strconv.Atoi(parts[1])
		if err != nil {
			return nil, bad("Requested resource %s expected positive integer amount. Got: %s.", parts[0], parts[1])
		}
		if amount < 1 {
			return nil, bad("Requested resource %s requires amount >= 1. Got: %d.", parts[0], amount)
		}
		all[parts[0]] = amount
	}
	return all, nil
}

// readTraits reads "A,!B" and "in:A,B" (util.py, normalize_traits_qs_param).
func readTraits(text string, minor int) (required [][]string, forbidden []string, err error) {
	const invalid = "Invalid query string parameters: "
	if list, ok := strings.CutPrefix(text, "in:"); ok {
		words := strings.Split(list, ",")
		switch {
		case minor < 39:
			return nil, nil, bad(invalid+"The format 'in:HW_CPU_X86_VMX,CUSTOM_MAGIC' only supported since microversion 1.39. Got: %s", text)
		case slices.Contains(words, ""):
			return nil, nil, bad(invalid+"Expected 'required' parameter value of the form: in:HW_CPU_X86_VMX,CUSTOM_MAGIC. Got an empty trait in: %s", text)
		case slices.ContainsFunc(words, func(word string) bool { return strings.HasPrefix(word, "!") }):
			return nil, nil, bad(invalid+"The format 'in:HW_CPU_X86_VMX,CUSTOM_MAGIC' does not support forbidden traits. Got: %s", text)
		}
		return [][]string{words}, nil, nil
	}
	form := "HW_CPU_X86_VMX,!CUSTOM_MAGIC"
	if minor < 22 {
		form = "HW_CPU_X86_VMX,CUSTOM_MAGIC"
	}
	for word := range strings.SplitSeq(text, ",") {
		name := strings.TrimLeft(word, "!")
		switch {
		case name == "":
			return nil, nil, bad(invalid+"Expected 'required' parameter value of the form: %s. Got an empty trait in: %s", form, text)
		case name == word:
			required = append(required, []string{name})
		case minor < 22:
			return nil, nil, bad(invalid+"Expected 'required' parameter value of the form: %s. Got: %s", form, text)
		default:
			forbidden = append(forbidden, name)
		}
	}
	return required, forbidden, nil
}

// conflict rejects traits that are both required and forbidden.
func (q query) conflict() error {
	for _, trait := range q.forbidden {
		if slices.Contains(slices.Concat(q.required...), trait) {
			return bad("Conflicting required and forbidden traits found in the following traits keys: required: (%s)", trait)
		}
	}
	return nil
}

// fits reports whether traits satisfy those of a query.
func (q query) fits(traits []string) bool {
	has := func(trait string) bool { return slices.Contains(traits, trait) }
	for _, some := range q.required {
		if !slices.ContainsFunc(some, has) {
			return false
		}
	}
	return !slices.ContainsFunc(q.forbidden, has)
}

// trees are the providers by uuid, and the uuids of their roots.
type trees struct {
	by    map[string]*Provider
	roots map[string]string
	below map[string][]*Provider // all providers of a tree, by root
	order []string               // roots
}

func (p *Placement) trees() trees {
	t := trees{map[string]*Provider{}, map[string]string{}, map[string][]*Provider{}, nil}
	for _, r := range p.Providers {
		t.by[r.UUID] = r
	}
	for _, r := range p.Providers {
		root := r
		for root.Parent != "" {
			root = t.by[root.Parent]
		}
		if t.below[root.UUID] == nil {
			t.order = append(t.order, root.UUID)
		}
		t.roots[r.UUID] = root.UUID
		t.below[root.UUID] = append(t.below[root.UUID], r)
	}
	return t
}

// sharers returns the providers that share with a tree.
func (t trees) sharers(root string, all []*Provider) (found []*Provider) {
	for _, s := range all {
		if slices.Contains(s.Traits, Sharing) && t.roots[s.UUID] != root && slices.ContainsFunc(t.below[root], func(r *Provider) bool {
			return slices.ContainsFunc(r.Aggregates, func(a string) bool { return slices.Contains(s.Aggregates, a) })
		}) {
			found = append(found, s)
		}
	}
	return found
}

// choice is a provider for each resource class of a query.
type choice map[string]*Provider

// key tells choices apart.
func (c choice) key() string {
	var parts []string
	for class, r := range c {
		parts = append(parts, class+"="+r.UUID)
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}

// choices returns the ways in which the providers of a tree, and those that share with it, serve a
// query (objects/allocation_candidate.py, _alloc_candidates_multiple_providers).
func (q query) choices(providers []*Provider) []choice {
	all := []choice{{}}
	for _, class := range slices.Sorted(maps.Keys(q.resources)) {
		var next []choice
		for _, r := range providers {
			if !r.has(class, q.resources[class]) {
				continue
			}
			for _, c := range all {
				with := maps.Clone(c)
				with[class] = r
				next = append(next, with)
			}
		}
		all = next
	}
	return slices.DeleteFunc(all, func(c choice) bool {
		var traits []string
		for _, r := range c {
			traits = append(traits, r.Traits...)
		}
		return !q.fits(traits)
	})
}

// isFlat reports whether a choice has one provider of each tree at most, which is all that
// microversions before 1.29 return (research_context.py, exclude_nested_providers).
func (c choice) isFlat(t trees) bool {
	used := map[string]string{}
	for _, r := range c {
		if other, ok := used[t.roots[r.UUID]]; ok && other != r.UUID {
			return false
		}
		used[t.roots[r.UUID]] = r.UUID
	}
	return true
}

func (p *Placement) candidates(values url.Values, minor int) (any, error) {
	q, err := p.newQuery(values, minor, map[string]int{"resources": 10, "required": 17})
	if err != nil {
		return nil, err
	}
	if err := q.conflict(); err != nil {
		return nil, err
	}
	if err := p.known(q, ""); err != nil {
		return nil, err
	}
	t := p.trees()
	seen, shown := map[string]bool{}, map[string]bool{}
	requests := []any{}
	for _, root := range t.order {
		for _, c := range q.choices(slices.Concat(t.below[root], t.sharers(root, p.Providers))) {
			if seen[c.key()] || minor < 29 && !c.isFlat(t) {
				continue
			}
			seen[c.key()] = true
			requests = append(requests, q.request(c, minor))
			for _, r := range c {
				if minor < 29 {
					shown[r.UUID] = true
					continue
				}
				for _, of := range t.below[t.roots[r.UUID]] {
					shown[of.UUID] = true
				}
			}
		}
	}
	summaries := map[string]any{}
	for uuid := range shown {
		summaries[uuid] = q.summary(t, t.by[uuid], minor)
	}
	return map[string]any{"allocation_requests": requests, "provider_summaries": summaries}, nil
}

func (q query) request(c choice, minor int) map[string]any {
	allocations, uuids := map[string]map[string]map[string]int{}, []string{}
	for class, r := range c {
		if allocations[r.UUID] == nil {
			allocations[r.UUID] = map[string]map[string]int{"resources": {}}
			uuids = append(uuids, r.UUID)
		}
		allocations[r.UUID]["resources"][class] = q.resources[class]
	}
	request := map[string]any{"allocations": allocations}
	if minor >= 34 {
		request["mappings"] = map[string][]string{"": uuids}
	}
	return request
}

func (q query) summary(t trees, r *Provider, minor int) map[string]any {
	resources := map[string]any{}
	for class, i := range r.Inventories {
		if _, asked := q.resources[class]; asked || minor >= 27 {
			resources[class] = map[string]any{"capacity": i.capacity(), "used": r.used(class)}
		}
	}
	summary := map[string]any{"resources": resources}
	if minor >= 17 {
		summary["traits"] = append([]string{}, r.Traits...)
	}
	if minor >= 29 {
		summary["parent_provider_uuid"], summary["root_provider_uuid"] = orNull(r.Parent), t.roots[r.UUID]
	}
	return summary
}

func orNull(uuid string) any {
	if uuid == "" {
		return nil
	}
	return uuid
}

// list lists providers that have all that a query asks for by themselves.
func (p *Placement) list(values url.Values, minor int) (any, error) {
	q, err := p.newQuery(values, minor, map[string]int{"name": 0, "uuid": 0, "resources": 4, "in_tree": 14, "required": 18})
	if err != nil {
		return nil, err
	}
	if err := p.known(q, `Invalid trait(s) in "required" parameter: `); err != nil {
		return nil, err
	}
	t := p.trees()
	found := []any{}
	for _, r := range p.Providers {
		other := func(key, value string) bool { return values.Has(key) && values.Get(key) != value }
		serves := true
		for class, amount := range q.resources {
			serves = serves && r.has(class, amount)
		}
		if !serves || !q.fits(r.Traits) || other("name", r.Name) || other("uuid", r.UUID) || values.Has("in_tree") && t.roots[values.Get("in_tree")] != t.roots[r.UUID] {
			continue
		}
		body := map[string]any{"uuid": r.UUID, "name": r.Name, "generation": 1, "links": []any{}}
		if minor >= 14 {
			body["parent_provider_uuid"], body["root_provider_uuid"] = orNull(r.Parent), t.roots[r.UUID]
		}
		found = append(found, body)
	}
	return map[string]any{"resource_providers": found}, nil
}

// show answers about one provider.
func (p *Placement) show(uuid, what string) (any, error) {
	i := slices.IndexFunc(p.Providers, func(r *Provider) bool { return r.UUID == uuid })
	if i < 0 {
		reason := "No resource provider with uuid " + uuid + " found"
		switch what {
		case "inventories":
			return nil, lacking("%s : %s", reason, reason)
		case "usages":
			return nil, lacking("%s: %s", reason, reason)
		case "allocations":
			return nil, lacking("Resource provider '%s' not found: %s", uuid, reason)
		}
	}
	body := map[string]any{"resource_provider_generation": 1}
	switch what {
	case "inventories":
		body["inventories"] = p.Providers[i].Inventories
	case "usages":
		usages := map[string]int{}
		for class := range p.Providers[i].Inventories {
			usages[class] = p.Providers[i].used(class)
		}
		body["usages"] = usages
	case "allocations":
		held := map[string]any{}
		for consumer, resources := range p.Providers[i].Held {
			held[consumer] = map[string]any{"resources": resources}
		}
		body["allocations"] = held
	default:
		return nil, refusal{http.StatusNotImplemented, "cloudtest does not imitate " + what}
	}
	return body, nil
}

// allocations answers about a consumer.
func (p *Placement) allocations(consumer string, minor int) any {
	held := map[string]any{}
	for _, r := range p.Providers {
		if resources := r.Held[consumer]; len(resources) > 0 {
			held[r.UUID] = map[string]any{"generation": 1, "resources": resources}
		}
	}
	body := map[string]any{"allocations": held}
	if len(held) > 0 {
		body["project_id"], body["user_id"] = "p", "u"
		if minor >= 28 {
			body["consumer_generation"] = 1
		}
		if minor >= 38 {
			body["consumer_type"] = "INSTANCE"
		}
	}
	return body
}

// names are those that each Placement has.
type names struct {
	ResourceClasses []string `json:"resource_classes"`
	Traits          []string `json:"traits"`
}

// standard returns the names of os_resource_classes and os_traits, which the first line of the
// recorded answers has.
func standard() names { return standardNames() }

func readNames() names {
	line, _, _ := strings.Cut(string(recorded), "\n")
	var first struct{ Known names }
	if err := json.Unmarshal([]byte(line), &first); err != nil {
		panic(err)
	}
	return first.Known
}
