package probe

import (
	"math"
	"strconv"
	"strings"

	"gpustack/templates"
)

// Options are the options of a script.
type Options struct {
	Command Command // run it after the devices are counted
}

// Script returns a POSIX shell script for a server's user_data, which cloud-init runs at the first
// boot of the server. The script prints its report three times within about ten seconds, and that
// of Options.Command after it has ended, to its standard output and to all consoles. It runs in the
// background, needs no network and changes nothing by itself. nonce tells the report from other
// output and must consist of hexadecimal digits.
func Script(nonce string, o Options) string {
	run := "no"
	if !o.Command.IsNone() {
		run = "yes"
	}
	seconds := int(math.Ceil(o.Command.wait.Seconds()))
	return strings.NewReplacer("{{nonce}}", nonce, "{{run}}", run, "{{patience}}", strconv.Itoa(seconds),
		"{{interpreter}}", o.Command.interpreter, "{{command}}", o.Command.escaped()).Replace(templates.Probe)
}
