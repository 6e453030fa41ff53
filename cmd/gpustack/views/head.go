package views

import "time"

// Head is what every document begins with (docs/json.md): what it is, and where, when and by which
// version it was made. Reports have no such members of their own, apart from a time other than that of printing,
// and those of host scan, whose order has nova_host among them.
type Head struct {
	Kind string `json:"kind"` // the command that printed the document, or "failure"
	// Host is the hostname of the machine that the command line names: the running machine's, or
	// the one in etc/hostname below --root; null if no file there shows it.
	Host    *string   `json:"host"`
	Version string    `json:"version"` // the version of gpustack, as gpustack --version prints it
	Time    time.Time `json:"time"`    // when the document was made, in UTC
}
