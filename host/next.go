package host

import "strings"

// Next is the next step of an operator: a command, where it is run, and what comes first.
type Next struct {
	Command Command `json:"command"` // as it is to be run
	// where it is run
	Machine Place  `json:"run_on"`
	Needs   []Need `json:"requires"` // what comes first, in order
}

// Place is a machine, as the run that prints it sees it.
type Place string

// Places of commands.
const (
	Here   Place = "here"   // the machine of this run
	Target Place = "target" // the machine whose files --root names
)

// Need is what an operator does before a command.
type Need string

// Needs of commands.
const (
	NeedRemedies Need = "remedies" // follow the remedies of the findings
	NeedGuests   Need = "guests"   // stop the guests that use functions, or migrate them
	NeedReboot   Need = "reboot"   // reboot the machine
	NeedRestart  Need = "restart"  // restart the services that the document names
	NeedReports  Need = "reports"  // write the guest reports that the command names
	NeedValues   Need = "values"   // replace the words in capitals
)

// NewNext returns the step that runs a command after what it needs.
func NewNext(c Command, needs ...Need) *Next {
	n := Next{Command: c, Machine: Here, Needs: needs}
	if c.IsElsewhere() {
		n.Machine = Target
	}
	for _, w := range c.words {
		if w.value != "" && strings.ToUpper(w.value) == w.value && strings.ToLower(w.value) != w.value && !strings.ContainsAny(w.value, "0123456789:") {
			n.Needs = append(n.Needs, NeedValues)
			break
		}
	}
	return &n
}

// Sentence returns the step in words: "reboot, then run 'gpustack host check'". line returns a
// command as it is to be run.
func (n *Next) Sentence(line func(Command) string) string {
	text := ""
	for _, need := range n.Needs {
		switch need {
		case NeedRemedies:
			text += "follow the remedies below, then "
		case NeedGuests:
			text += "stop the guests, then "
		case NeedReboot:
			text += "reboot, then "
		case NeedRestart:
			text += "restart the services, then "
		case NeedReports, NeedValues: // the command names them
		}
	}
	return text + "run '" + line(n.Command) + "'"
}
