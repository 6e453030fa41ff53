// Package metrics encodes what a monitoring system gets of a run: samples ([Encode]) in the text
// format of Prometheus, which the textfile collector of node_exporter reads. Families are beside
// their subjects, not here, and package edit writes the file.
//
// node_exporter collects all files of a folder together. It refuses a series that two files have,
// and a family whose help differs between files (node_exporter, collector/textfile.go;
// client_golang, prometheus/registry.go). So a family that several commands write has the label
// "command", and its help never changes: files of two releases of gpustack are in one folder until
// each command has run again.
//
// Samples have no timestamps: node_exporter refuses files with any. When a command has last
// completed is a sample of its own.
package metrics

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Type is the type of a family.
type Type string

// The types. A counter only grows until it restarts at 0.
const (
	Gauge   Type = "gauge"
	Counter Type = "counter"
)

// Family is metrics of one name, which differ in their labels (Prometheus, "Metric and label
// naming").
type Family struct {
	Name   string
	Type   Type
	Help   string   // one line
	Labels []string // their names
}

// Sample is a value of a family.
type Sample struct {
	family Family
	labels []string // the values of its labels
	value  float64
}

// Of returns a sample of the family with these values of its labels, in the family's order.
func (f Family) Of(value float64, labels ...string) Sample {
	return Sample{f, labels, value}
}

// OfBool returns a sample that is 1 if a state is given, and 0 if it is not.
func (f Family) OfBool(is bool, labels ...string) Sample {
	if is {
		return f.Of(1, labels...)
	}
	return f.Of(0, labels...)
}

// Set returns a sample for each state of a set, 1 for the current one and 0 for the others. The
// state is the last label of the family, and labels are the values of those before it.
func Set[S ~string](f Family, states []S, current S, labels ...string) (samples []Sample) {
	for _, state := range states {
		samples = append(samples, f.OfBool(state == current, append(slices.Clone(labels), string(state))...))
	}
	return samples
}

var (
	lastRun = Family{"gpustack_last_run_timestamp_seconds", Gauge,
		"When the command last completed, in seconds since 1970.", []string{"command"}}
	buildInfo = Family{"gpustack_build_info", Gauge,
		"The version of gpustack that wrote the metrics of a command; always 1.", []string{"command", "version"}}
)

// OfRun returns the samples that every command writes: when it completed, and its version.
func OfRun(command, version string, at time.Time) []Sample {
	return []Sample{lastRun.Of(float64(at.Unix()), command), buildInfo.Of(1, command, version)}
}

// Encode returns samples in the text format, version 0.0.4, by family in the order of the names.
//
// Errors: a sample without a value for each label, or of the same series as another; two families
// of one name.
func Encode(samples []Sample) ([]byte, error) {
	samples = slices.Clone(samples)
	slices.SortStableFunc(samples, func(a, b Sample) int { return strings.Compare(a.family.Name, b.family.Name) })
	var text bytes.Buffer
	seen := map[string]bool{}
	var family Family
	for _, s := range samples {
		switch f := s.family; {
		case f.Name != family.Name:
			family = f
			fmt.Fprintf(&text, "# HELP %s %s\n# TYPE %s %s\n", f.Name, helpEscapes.Replace(f.Help), f.Name, f.Type)
		case f.Type != family.Type || f.Help != family.Help:
			return nil, fmt.Errorf("metric %s: two families have this name", f.Name)
		}
		series, err := s.series()
		if err != nil {
			return nil, err
		}
		if seen[series] {
			return nil, fmt.Errorf("metric %s: two samples", series)
		}
		seen[series] = true
		fmt.Fprintf(&text, "%s %s\n", series, strconv.FormatFloat(s.value, 'f', -1, 64))
	}
	return text.Bytes(), nil
}

// series returns the name and labels of a sample in the text format.
func (s Sample) series() (string, error) {
	f := s.family
	if len(s.labels) != len(f.Labels) {
		return "", fmt.Errorf("metric %s: %d values for the labels %s", f.Name, len(s.labels), strings.Join(f.Labels, ", "))
	}
	if len(f.Labels) == 0 {
		return f.Name, nil
	}
	var pairs []string
	for i, name := range f.Labels {
		pairs = append(pairs, name+`="`+valueEscapes.Replace(strings.ToValidUTF8(s.labels[i], "\uFFFD"))+`"`)
	}
	return f.Name + "{" + strings.Join(pairs, ",") + "}", nil
}

// What the text format escapes in help and in values of labels (Prometheus, "Exposition formats").
var (
	helpEscapes  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	valueEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)
