package nova

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"gpustack/host"
	"gpustack/nova/conf"
)

// Render returns what is wanted as text of nova.conf, for a deployment tool to merge.
func Render(o Options, w Want) (string, error) {
	read := newSources(o, DefaultConf, nil)
	aliases := planAliases(read, o, w.Aliases)
	specs := planSpecs(read, o, read.after(aliases), w.Specs)
	var filters step
	if o.Role.Controls() {
		enabled, _, added := o.rendered(w)
		available := conf.Setting{Names: o.Release.availableNames()[:1], Values: added, Multi: true}
		list := conf.Setting{Names: o.Release.FilterNames()[:1], Values: []string{strings.Join(enabled, ",")}}
		filters.settings = []setting{{DefaultConf, available, nil}, {DefaultConf, list, nil}}
	}
	after, _, err := read.with(aliases, specs, filters, planReporting(read, o), planAsking(read, o))
	errs := []error{err}
	for _, c := range ConflictsOf(after, o.Release) {
		errs = append(errs, host.WithHint(errors.New(c.Seen), c.Remedy))
	}
	return string(after.Files[0].File.Bytes()), errors.Join(errs...)
}

// renderTripleO returns what is wanted as an environment file of TripleO, in YAML (puppet-nova,
// manifests/pci.pp and config.pp; tripleo-heat-templates, nova-compute-container-puppet.yaml and
// nova-scheduler-container-puppet.yaml). It is of aliases and device specs that [Render] accepts.
func renderTripleO(o Options, w Want) string {
	// JSON is a subset of YAML.
	line := func(text *strings.Builder, indent int, format string, args ...any) {
		fmt.Fprintf(text, "%s"+format+"\n", append([]any{strings.Repeat(" ", indent)}, args...)...)
	}
	var text strings.Builder
	extra := func(role, option string, isOn bool) {
		line(&text, 2, "%sExtraConfig:", role)
		line(&text, 4, "nova::pci::aliases:")
		for _, a := range w.Aliases {
			line(&text, 4, "- %s", conf.Written(a))
		}
		if isOn {
			line(&text, 4, "nova::config::nova_config:")
			line(&text, 6, "%s: {\"value\": true}", option)
		}
	}
	line(&text, 0, "parameter_defaults:")
	if o.Role.Computes() {
		line(&text, 2, "ComputeParameters:")
		line(&text, 4, "NovaPCIPassthrough:")
		for _, s := range w.Specs {
			line(&text, 4, "- %s", conf.Written(s))
		}
		extra("Compute", "pci/report_in_placement", o.Placement)
	}
	if o.Role.Controls() {
		extra("Controller", "filter_scheduler/pci_in_placement", o.Placement && o.Release >= Antelope)
		list := func(parameter string, values []string) {
			if len(values) > 0 {
				line(&text, 2, "%s:", parameter)
			}
			for _, value := range values {
				line(&text, 2, "- %s", value)
			}
		}
		enabled, available, _ := o.rendered(w)
		list("NovaSchedulerAvailableFilters", available)
		// The parameter was renamed in Wallaby.
		parameter := "NovaSchedulerEnabledFilters"
		if o.Release < Wallaby {
			parameter = "NovaSchedulerDefaultFilters"
		}
		list(parameter, enabled)
	}
	return text.String()
}

// lineStart matches the first character of each line that has one.
var lineStart = host.LazyRegexp(`(?m)^.`)

// renderRHOSO returns what is wanted for Red Hat OpenStack Services on OpenShift, in YAML: for
// controllers a part of the OpenStackControlPlane, for compute nodes a ConfigMap, whose keys must
// end with nova.conf to be read (edpm-ansible, roles/edpm_nova/templates/config.json.j2).
func renderRHOSO(o Options, w Want) (string, error) {
	var documents []string
	ini := func(role Role, indent int) (string, error) {
		part := o
		part.Role = role
		text, err := Render(part, w)
		return lineStart().ReplaceAllString(text, strings.Repeat(" ", indent)+"$0"), err
	}
	if o.Role.Controls() {
		text, err := ini(Controller, 10)
		if err != nil {
			return "", err
		}
		document := "spec:\n  nova:\n    template:\n"
		for _, service := range []string{"apiServiceTemplate", "schedulerServiceTemplate"} {
			document += "      " + service + ":\n        customServiceConfig: |\n" + text
		}
		if o.Placement && o.Release >= Antelope {
			document += "      cellTemplates:\n"
			for _, cell := range []string{"cell0", "cell1"} {
				document += "        " + cell + ":\n          conductorServiceTemplate:\n            customServiceConfig: |\n" +
					"              [filter_scheduler]\n              pci_in_placement = true\n"
			}
		}
		documents = append(documents, document)
	}
	if o.Role.Computes() {
		text, err := ini(Compute, 4)
		if err != nil {
			return "", err
		}
		documents = append(documents, "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: nova-pci-passthrough\ndata:\n  30-pci-passthrough-nova.conf: |\n"+text)
	}
	return strings.Join(documents, "---\n"), nil
}

// Form is the form in which options are rendered for a deployment tool.
type Form string

// The forms. FormINI is plain nova.conf.
const (
	FormINI     Form = "ini"
	FormKolla   Form = "kolla"
	FormTripleO Form = "tripleo"
	FormRHOSO   Form = "rhoso"
)

// FormFor returns the form for the tool that generates the file which [NewPlan] has refused.
func FormFor(err error) Form {
	var owned *OwnedError
	if !errors.As(err, &owned) {
		return FormINI
	}
	return cmp.Or(map[string]Form{ownerKolla: FormKolla, "TripleO": FormTripleO, "RHOSO": FormRHOSO}[owned.Owner], FormINI)
}

// Render returns what is wanted in the form, for a deployment tool to merge.
func (f Form) Render(o Options, w Want) (string, error) {
	text, err := Render(o, w) // checks the aliases
	switch {
	case err != nil:
	case f == FormKolla:
		return RenderKolla(o, w)
	case f == FormTripleO:
		return renderTripleO(o, w), nil
	case f == FormRHOSO:
		return renderRHOSO(o, w)
	}
	return text, err
}
