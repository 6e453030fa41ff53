package main

import (
	"errors"
	"strings"
	"testing"

	"gpustack/cmd/gpustack/term"
	"gpustack/host/container/containerprepare"
	"gpustack/host/hosttest"
	"gpustack/host/machine"
	"gpustack/host/rdma/rdmaprepare"
)

// TestObservedOnce: a plan and whether a reboot is pending need the same functions, which a command
// reads once.
func TestObservedOnce(t *testing.T) {
	text, err := machine.RecordText(&machine.Contract{Driver: machine.VFIO}, nil)
	hosttest.NoError(t, err)
	recorded := string(text)
	for name, run := range map[string]func(*term.UI, given) error{
		"container prepare": func(u *term.UI, plan given) error {
			return runContainerPrepare(t.Context(), u, plan, containerprepare.Options{None: true})
		},
		"rdma prepare": func(u *term.UI, plan given) error {
			return runRDMAPrepare(t.Context(), u, plan, rdmaPrepareOptions{prepare: rdmaprepare.Options{None: true}})
		},
	} {
		for state, step := range map[string]hosttest.Step{
			"nothing is recorded": hosttest.Steps(),
			"a record":            hosttest.Write(machine.ContractFile, recorded),
		} {
			root := hosttest.Bare(t)
			step(t, root)
			read := folders{listed: map[string]int{}, attributes: map[string]int{}}
			if err := run(testUI(t), given{root: root.Recorded(&read), format: term.FormatJSON, dryRun: true}); err != nil && !errors.Is(err, errDifferent) {
				t.Errorf("%s, %s: %v", name, state, err)
			}
			classes := 0
			for file, n := range read.attributes {
				if strings.HasSuffix(file, "/class") && n > 1 {
					t.Errorf("%s, %s: %s is read %d times", name, state, file, n)
				}
				classes++
			}
			if classes < 4 {
				t.Errorf("%s, %s: only %d attributes of functions are read", name, state, classes)
			}
		}
	}
}
