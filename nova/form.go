package nova

import (
	"cmp"
	"errors"
)

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
		return RenderTripleO(o, w)
	case f == FormRHOSO:
		return RenderRHOSO(o, w)
	}
	return text, err
}
