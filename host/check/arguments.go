package check

import (
	"cmp"
	"strings"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/machine"
)

// arguments compares the arguments of the running kernel with the recorded ones.
func (v view) arguments() []host.Finding {
	const lost = "what they configure is not in effect"
	switch {
	case !v.Running.Seen():
		return unread(v.Running)
	case v.phase == unseen, v.phase == unprepared:
		return checklist.NA("nothing is recorded to compare them with")
	case v.phase == pending && v.off:
		return checklist.NA("%s leaves every function with the host until the next boot", offArgument)
	case v.phase == pending && len(v.lacking) > 0:
		return checklist.NA("added at the next boot: %s", strings.Join(v.lacking, " "))
	case v.phase == pending && len(v.against) > 0:
		return checklist.NA("removed at the next boot: %s", v.against)
	}
	var findings []host.Finding
	fail := func(seen string, remedy host.Text) {
		findings = append(findings, host.Finding{Status: host.Fail, File: machine.CmdlineFile, Seen: seen, Effect: lost, Remedy: remedy})
	}
	if len(v.lacking) > 0 {
		fail("running kernel was booted without "+strings.Join(v.lacking, " "), host.Plain("boot an entry that has them; next_boot shows which entries do"))
	}
	for _, arg := range v.against {
		fail(arg+" conflicts with the prepared configuration", host.Textf("remove it and reboot: %s", host.NewCommand("host prepare")))
	}
	return checklist.OrPass(findings, "as recorded: %s", cmp.Or(strings.Join(v.wantedArguments(), " "), "none is needed"))
}
