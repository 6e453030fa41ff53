package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
)

// Schema is the version of gpustack's documents (docs/json.md) that this program reads.
const Schema = 1

// Kind is a kind of gpustack's documents.
type Kind string

// The documents that commands print (docs/json.md), by command, and others.
const (
	HostScan         Kind = "host scan"
	HostGuests       Kind = "host guests"
	HostCheck        Kind = "host check"
	HostPrepare      Kind = "host prepare"
	HostBind         Kind = "host bind or host release"
	NovaCheck        Kind = "nova check"
	NovaConfigure    Kind = "nova configure"
	NovaExplain      Kind = "nova explain"
	NovaDrain        Kind = "nova drain or nova enable"
	FlavorCreate     Kind = "flavor create"
	FlavorDelete     Kind = "flavor delete"
	FlavorList       Kind = "flavor list"
	FlavorTest       Kind = "flavor test"
	ImageCheck       Kind = "image check"
	ImageSet         Kind = "image set"
	RDMAPrepare      Kind = "rdma prepare"
	RDMAScan         Kind = "rdma scan"
	RDMATest         Kind = "rdma test"
	RDMACheck        Kind = "rdma check"
	ContainerCheck   Kind = "container check"
	ContainerPrepare Kind = "container prepare"
	ContainerTest    Kind = "container test"
	FleetShow        Kind = "fleet show"
	FleetDiff        Kind = "fleet diff"
	FleetPlan        Kind = "fleet plan"
	FleetAliases     Kind = "fleet aliases"
	FleetStatus      Kind = "fleet status"
	RepairMigration  Kind = "repair-migration"
	History          Kind = "history"
	Undo             Kind = "undo"

	NovaConf Kind = "nova.conf" // not printed by a command: a configuration file of Nova
	Contract Kind = "contract"  // what host prepare records on a machine
	Failure  Kind = "failure"   // errors or refusals instead of a command's document
	Unknown  Kind = ""          // not a document of gpustack
)

// keysOfKinds are the fields by which each kind is recognized: those at the top level that together
// no other kind has. Failure is last: a plan may contain refusals. Documents that are collected
// from many machines are recognized by their last field too, so that YAML that is truncated after a
// line is not taken for a whole document.
var keysOfKinds = []struct {
	kind Kind
	keys []string
}{
	{HostGuests, []string{"nova_compute"}},
	{NovaExplain, []string{"conclusion", "judgements"}}, // before HostCheck
	{HostCheck, []string{"verdict", "findings", "system", "warnings"}},
	{RDMACheck, []string{"verdict", "findings", "reboot_required", "warnings"}},
	{ContainerCheck, []string{"verdict", "findings", "loaded_driver", "warnings"}},
	{ContainerPrepare, []string{"devices", "names", "notes"}},
	{ContainerTest, []string{"cdi_device", "runs", "comparison"}},
	{HostPrepare, []string{"devices", "arguments", "programs", "left"}},
	{HostScan, []string{"host", "devices", "warnings"}},
	{HostBind, []string{"functions", "load", "iommu_groups", "stop", "start"}},
	{NovaCheck, []string{"release", "passed", "findings"}},
	{NovaConfigure, []string{"release", "aliases", "device_specs"}},
	{ImageCheck, []string{"image_state", "findings"}},
	{ImageSet, []string{"cloud", "values", "left_out"}},
	{FlavorCreate, []string{"cloud", "before", "after"}},
	{FlavorDelete, []string{"cloud", "changes", "before"}},
	{FlavorList, []string{"cloud", "flavors"}},
	{FlavorTest, []string{"cloud", "wanted_from", "leftovers"}},
	{FleetShow, []string{"layouts", "odd"}},
	{FleetDiff, []string{"differences", "old_node_count"}},
	{FleetPlan, []string{"waves", "blocked_nodes"}},
	{FleetAliases, []string{"aliases", "node_count"}},
	{FleetStatus, []string{"drained", "enabled_count"}},
	{NovaDrain, []string{"cloud", "service", "in_progress"}},
	{RepairMigration, []string{"findings", "pools", "allocations"}},
	{RDMAPrepare, []string{"adapters", "notes", "left"}},
	{RDMAScan, []string{"adapters", "links", "netns"}},
	{RDMATest, []string{"sides", "untested"}},
	{History, []string{"entries"}},
	{Undo, []string{"drivers", "repairs", "requests"}},
	{Contract, []string{"driver", "selected", "allowed", "files"}},
	{Failure, []string{"refusals"}},
	{Failure, []string{"errors"}},
}

// KindOf returns the kind of a document by the names of its fields.
func KindOf[T any](fields map[string]T) Kind {
	return kindOf(func(name string) bool {
		_, ok := fields[name]
		return ok
	})
}

// kindOf returns the kind of a document that has fields.
func kindOf(has func(name string) bool) Kind {
	if !has("schema") {
		return Unknown
	}
	for _, k := range keysOfKinds {
		if !slices.ContainsFunc(k.keys, func(key string) bool { return !has(key) }) {
			return k.kind
		}
	}
	return Unknown
}

// Recognize returns the kind of the first document in a text, or Unknown.
func Recognize(text []byte) Kind {
	is := Unknown
	split("", bytes.NewReader(text))(func(d Document, err error) bool {
		if err == nil {
			is = d.Kind
		}
		return false
	})
	return is
}

// String returns the name for messages: "the output of host scan".
func (k Kind) String() string {
	switch k {
	case Unknown:
		return "no document of gpustack"
	case NovaConf:
		return "a configuration file of Nova"
	case Contract:
		return "the record of host prepare"
	case Failure:
		return "the error report of a failed command"
	}
	return "the output of " + string(k)
}

// isOutput reports whether a command prints documents of the kind when it has not failed.
func (k Kind) isOutput() bool {
	return !slices.Contains([]Kind{NovaConf, Contract, Failure, Unknown}, k)
}

// Kinds are kinds of documents, any of which is read.
type Kinds []Kind

// String returns the names for messages: "the output of host scan or host check".
func (want Kinds) String() string {
	if len(want) == 1 {
		return want[0].String()
	}
	names := make([]string, len(want))
	for i, k := range want {
		names[i] = string(k)
	}
	last := len(names) - 1
	return "the output of " + strings.Join(names[:last], ", ") + " or " + names[last]
}

// hint returns the command that prints a document of the first kind.
func (want Kinds) hint() string { return want[0].hint() }

// hint returns the command that prints a document of the kind.
func (k Kind) hint() string {
	switch k {
	case NovaConf:
		return "give /etc/nova/nova.conf of that machine, or a copy"
	case HostScan, HostGuests:
		return "on the compute node, run: gpustack " + string(k) + " -o json > FILE"
	}
	return "run: gpustack " + string(k) + " -o json > FILE"
}

// hintFor returns the hint for a file that does not exist. A word that could be the name of a host
// is taken for one.
func (k Kind) hintFor(file string) string {
	if k != HostScan && k != HostGuests || strings.ContainsAny(file, "/") || isDocument(file) {
		return k.hint()
	}
	return fmt.Sprintf("a file is expected; of a host of this name: ssh %s gpustack %s -o json > %s.json", file, string(k), file)
}

// Expected returns the error of a text that is not a document of the kind that was expected. It
// names the kind that it is, and has the command to run as a hint.
func Expected(name string, want, is Kind) error {
	return Kinds{want}.expected(name, is)
}

func (want Kinds) expected(name string, is Kind) error {
	err := fmt.Errorf("%s: not %s", name, want)
	if is != Unknown {
		err = fmt.Errorf("%s: is %s; expected %s", name, is, want)
	}
	return host.WithHint(err, want.hint())
}

// Malformed returns the error of a document of a kind whose fields are not as docs/json.md
// describes them, for each of joined errors.
func Malformed(name string, is Kind, err error) error {
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	for i, err := range all {
		all[i] = host.WithHint(fmt.Errorf("%s: malformed: %w", name, err), is.hint())
	}
	return errors.Join(all...)
}

// check returns an error unless a document is of one of the kinds, in the version that this program
// reads.
func (d Document) check(want Kinds) error {
	is := d.Kind
	switch {
	case is == Failure:
		return host.WithHint(fmt.Errorf("%s: is %s; expected %s: %s", d.Name, is, want, failures(d.Text)), want.hint())
	case !slices.Contains(want, is) && (is != Unknown || d.schema == "" || d.schema == schemaText):
		return want.expected(d.Name, is)
	case d.schema != schemaText:
		// The fields of another version may have other names.
		return host.WithHint(fmt.Errorf("%s: schema %s is of another version of gpustack; this version reads schema %s", d.Name, d.schema, schemaText),
			"with this version of gpustack, "+want.hint())
	}
	return nil
}

// schemaText is Schema as a document has it.
var schemaText = strconv.Itoa(Schema)

// failures returns the first message of a document of the kind Failure.
func failures(text []byte) string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(text, &fields) != nil {
		return "without a message"
	}
	var messages []struct{ Message, Address, Reason string }
	for _, key := range []string{"errors", "refusals"} {
		var list []struct{ Message, Address, Reason string }
		if json.Unmarshal(fields[key], &list) == nil {
			messages = append(messages, list...)
		}
	}
	for _, m := range messages {
		switch {
		case m.Message != "":
			return m.Message
		case m.Address != "":
			return m.Address + ": " + m.Reason
		case m.Reason != "":
			return m.Reason
		}
	}
	return "without a message"
}
