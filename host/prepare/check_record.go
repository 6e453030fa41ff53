package prepare

import (
	"errors"
	"fmt"
	"time"

	"gpustack/host"
	"gpustack/host/change"
)

// files holds the files that host prepare has written against their hashes.
func (v view) files() []host.Finding {
	switch v.phase {
	case unseen:
		return na("what is recorded is not known")
	case unprepared:
		return na("nothing is recorded")
	}
	var findings []host.Finding
	for i, f := range v.Contract.Value.Files {
		finding := host.Finding{File: f.Name, Remedy: "gpustack host prepare writes it anew"}
		switch now := v.Files[i]; {
		case !now.seen():
			finding = blind(f.Name, now.Err)
		case now.Value == "":
			finding.Status, finding.Seen = host.Fail, f.Name+" is gone"
			finding.Effect = "a kernel that is installed or an initramfs that is made from now on does without it"
		case now.Value != f.Hash:
			finding.Status, finding.Seen = host.Warn, f.Name+" was changed since"
			finding.Effect = "the next boot may not do what was planned"
		default:
			continue
		}
		findings = append(findings, finding)
	}
	if findings == nil {
		return pass("%s as written", plural(len(v.Files), "file"))
	}
	return findings
}

// interrupted looks for a run that was cut off.
func (v view) interrupted() []host.Finding {
	switch e := v.CutOff.Value; {
	case errors.Is(v.CutOff.Err, change.ErrLocked):
		return one(host.Finding{
			Status: host.Warn, File: change.Dir + "/journal", Seen: v.CutOff.Err.Error(),
			Effect: "some of this is as it was, and some as it will be",
			Remedy: "wait until it is done, and check again",
		})
	case !v.CutOff.seen():
		return v.CutOff.blind()
	case e != nil:
		effect := "files may be half of one plan and half of another"
		if e.Kind == change.KindDrivers {
			effect = "functions may be without a driver, or a group with two parties, until the next boot"
		}
		return one(host.Finding{
			Status: host.Fail, File: change.Dir + "/journal", Seen: fmt.Sprintf("entry %d (%s) was cut off while %s", e.ID, e.Command, e.Status),
			Effect: effect,
			Remedy: "run gpustack host prepare: it puts that right first",
		})
	}
	if open := v.OpenRows; len(open) > 0 {
		var findings []host.Finding
		for _, e := range open {
			findings = append(findings, host.Finding{
				Status: host.Warn, File: change.Dir + "/journal", Seen: fmt.Sprintf("entry %d (%s) was interrupted, and its outcome is unknown", e.ID, e.Command),
				Effect: "rows of Nova's database and Placement's allocations may not match",
				Remedy: fmt.Sprintf("gpustack repair-migration --apply determines it and completes or reverts the repair; gpustack undo %d undoes it", e.ID),
			})
		}
		return findings
	}
	return pass("no run was cut off")
}

// prepared tells whether the machine has been prepared. It is not held against a machine
// that something else keeps from it.
func (v view) prepared(mended bool) host.Finding {
	f := host.Finding{Check: aboutPrepared, Status: host.NA, File: ContractFile}
	switch {
	case v.phase == unseen:
		f = blind(ContractFile, v.Contract.Err)
		f.Check = aboutPrepared
	case v.phase != unprepared:
		c := v.Contract.Value
		f.Status, f.Seen = host.Pass, fmt.Sprintf("%s recorded for %s", plural(len(c.Functions), "function"), c.Driver)
	case !mended:
		f.Seen = "not yet: first what has failed above"
	default:
		f.Status, f.Seen = host.Fail, "gpustack host prepare has not been run here"
		f.Effect = "the host keeps its GPUs"
		f.Remedy = "gpustack host prepare --dry-run shows what it would do"
	}
	return f
}

// reboot tells whether what is recorded awaits a boot.
func (v view) reboot(mended bool) host.Finding {
	f := host.Finding{Check: aboutReboot, Status: host.NA}
	switch {
	case v.phase == unseen:
		f.Seen = "what is recorded is not known"
	case v.phase == unprepared:
		f.Seen = "nothing is recorded"
	case v.phase == booted && (!v.Running.seen() || !v.Devices.seen()):
		f.Seen = fmt.Sprintf("cannot be told without %s and %s", cmdlineFile, devicesDir)
	case v.phase == booted:
		f.Status, f.Seen = host.Pass, "nothing awaits one"
	case !mended:
		f.Seen = "to come, but first what has failed above"
	case v.off:
		f.Status, f.File, f.Seen = host.Fail, cmdlineFile, "booted with "+offArgument
		f.Effect = "every function is the host's until the next boot"
		f.Remedy = "reboot without it"
	default:
		f.Status, f.File, f.Seen = host.Fail, ContractFile, "what is recorded takes effect at the next boot"
		if v.Prepared.Value != nil {
			f.Seen = fmt.Sprintf("what was recorded at %s takes effect at the next boot", v.Prepared.Value.UTC().Format(time.RFC3339))
		}
		f.Effect = "until then the host keeps its GPUs"
		f.Remedy = "reboot; gpustack host check then tells whether all is as planned"
	}
	return f
}
