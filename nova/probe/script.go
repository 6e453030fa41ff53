package probe

import (
	"strings"

	"gpustack/templates"
)

// Options are the options of a script.
type Options struct {
	Driver bool // ask nvidia-smi too
}

// Script returns a POSIX shell script for a server's user_data, which cloud-init runs at the first
// boot of the server. The script prints its report three times within about ten seconds, with
// Options.Driver up to a minute later, to its standard output and to all consoles. It runs in the
// background, needs no network and changes nothing. nonce tells the report from other output and
// must consist of hexadecimal digits.
func Script(nonce string, o Options) string {
	driver := "no"
	if o.Driver {
		driver = "yes"
	}
	return strings.NewReplacer("{{nonce}}", nonce, "{{driver}}", driver).Replace(templates.Probe)
}
