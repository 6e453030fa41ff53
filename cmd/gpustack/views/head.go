package views

import "time"

// Head is what every document begins with (docs/json.md): where, when and by which version it was
// made. Reports have no such members of their own, apart from a time other than that of printing,
// and those of host scan, whose order has nova_host among them.
type Head struct {
	Host    *string   `json:"host"` // null if no file below the root shows it
	Version string    `json:"version"`
	Time    time.Time `json:"time"`
}
