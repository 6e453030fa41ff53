package check

import (
	"strings"

	"gpustack/host"
	"gpustack/host/machine"
)

// arguments holds what the kernel runs with against what is recorded.
func (v view) arguments() []host.Finding {
	const lost = "what they are there for is not in effect"
	switch {
	case !v.Running.Seen():
		return unread(v.Running)
	case v.phase == unseen, v.phase == unprepared:
		return na("nothing is recorded that they could be held against")
	case v.phase == pending && v.off:
		return na("%s leaves every function to the host until the next boot", offArgument)
	case v.phase == pending && len(v.lacking) > 0:
		return na("come with the next boot: %s", strings.Join(v.lacking, " "))
	case v.phase == pending && len(v.against) > 0:
		return na("goes with the next boot: %s", v.against)
	}
	var findings []host.Finding
	fail := func(seen, remedy string) {
		findings = append(findings, host.Finding{Status: host.Fail, File: machine.CmdlineFile, Seen: seen, Effect: lost, Remedy: remedy})
	}
	if len(v.lacking) > 0 {
		fail("booted since, and yet without "+strings.Join(v.lacking, " "), "boot the entry that has them; next_boot tells whether each one does")
	}
	for _, arg := range v.against {
		fail(arg+" stands against what is recorded", "take it out, and boot anew: gpustack host prepare")
	}
	if findings == nil {
		return pass("as recorded: %s", strings.Join(v.wantedArguments(), " "))
	}
	return findings
}
