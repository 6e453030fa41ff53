package check_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/check"
	"gpustack/host/hosttest"
	"gpustack/host/machine"
	startup "gpustack/host/steps" // steps are what changes a tree here
)

// TestStartup: one finding for each step that did not succeed, and for a unit that is not there.
func TestStartup(t *testing.T) {
	t.Parallel()
	wanted := []startup.Step{{ID: "vfs 0000:0c:00.0"}}
	ran := func(status startup.Status, text string) startup.State {
		return startup.State{Wanted: wanted, Result: &startup.Result{Steps: []startup.StepResult{{ID: "vfs 0000:0c:00.0", Status: status, Error: text}}}}
	}
	for name, test := range map[string]struct {
		state  startup.State
		status host.Status
		seen   string
	}{
		"nothing":   {startup.State{Missing: []string{startup.UnitFile}}, "", ""},
		"done":      {ran(startup.Done, ""), host.Pass, "1 step of this boot succeeded"},
		"unchanged": {ran(startup.Unchanged, ""), host.Pass, "1 step of this boot succeeded"},
		"failed":    {ran(startup.Failed, "is not there"), host.Fail, "step vfs 0000:0c:00.0: failed: is not there"},
		"skipped":   {ran(startup.Skipped, "needs netns"), host.NA, "step vfs 0000:0c:00.0: skipped: needs netns"},
		"running":   {ran(startup.Running, ""), host.Warn, "step vfs 0000:0c:00.0 is running"},
		"not run":   {startup.State{Wanted: wanted}, host.NA, "no step was carried out since this boot"},
		"part run": {func() startup.State {
			s := ran(startup.Done, "")
			s.Wanted = append(wanted, startup.Step{ID: "cdi gpu"})
			return s
		}(),
			host.NA, "1 step not carried out since this boot: cdi gpu"},
		"not ordered": {func() startup.State {
			s := ran(startup.Done, "")
			s.Unordered = []string{"edpm_nova_compute.service", "compute.service"}
			return s
		}(),
			host.Warn, "not ordered after gpustack-boot.service: edpm_nova_compute.service, compute.service"},
		"masked":  {startup.State{Wanted: wanted, Masked: true}, host.Fail, "gpustack-boot.service is masked"},
		"missing": {startup.State{Wanted: wanted, Missing: []string{startup.WantsFile}}, host.Fail, startup.WantsFile + " missing, although steps are recorded"},
		"missing, of host prepare": {startup.State{Wanted: []startup.Step{{ID: "driver 0000:c3:00.0", Goal: startup.Goal{Function: &machine.Function{}}}}, Missing: []string{startup.UnitFile}},
			host.Fail, startup.UnitFile + " missing, although steps are recorded"},
		"unreadable": {startup.State{Wanted: wanted, Err: errors.New("permission denied")}, host.NA, "permission denied"},
	} {
		findings, _ := check.Verify(machine.Machine{}, nil, test.state)
		findings = slices.DeleteFunc(findings, func(f host.Finding) bool { return f.Check != "startup" })
		if test.status == "" {
			if len(findings) > 0 {
				t.Errorf("%s: %+v", name, findings)
			}
			continue
		}
		if len(findings) != 1 || findings[0].Status != test.status || findings[0].Seen != test.seen ||
			name == "missing, of host prepare" && findings[0].Remedy.String() != "run gpustack host prepare: it writes the unit again" {
			t.Errorf("%s: %+v", name, findings)
		}
	}
}

// TestStartupUnread: each file that cannot be read is a finding of its own, with a remedy for it.
func TestStartupUnread(t *testing.T) {
	t.Parallel()
	denied := fmt.Errorf("%s: %w", startup.WantsFile, unix.EACCES)
	state := startup.Observe(hosttest.Lay(t, "-- run/gpustack/boot.json --\n{bad\n"), machine.Machine{})
	state.Err = errors.Join(state.Err, denied)
	findings, _ := check.Verify(machine.Machine{}, nil, state)
	findings = slices.DeleteFunc(findings, func(f host.Finding) bool { return f.Check != "startup" })
	for i := range findings {
		if strings.HasPrefix(findings[i].Seen, startup.ResultFile+": malformed JSON: ") {
			findings[i].Seen = "malformed"
		}
	}
	want := []host.Finding{
		{Check: "startup", Status: host.NA, Seen: "malformed",
			Remedy: host.Plain("reboot: the file ends with the boot; without it, what this boot has made cannot be reverted")},
		{Check: "startup", Status: host.NA, Seen: denied.Error(), Remedy: host.AsRoot()},
	}
	hosttest.Equal(t, want, findings)
}
