package views

import (
	"gpustack/cmd/gpustack/term"
	"gpustack/nova/cloud"
	"gpustack/nova/flavor"
)

// FlavorDelete is the output of flavor delete (docs/json.md).
type FlavorDelete struct {
	Report
	Cloud   string          `json:"cloud"`   // the address of Nova's API
	Changes []cloud.Request `json:"changes"` // the request
	Before  flavor.State    `json:"before"`  // the flavor
}

// NewFlavorDelete returns the report of the deletion of a flavor. head is its common part.
func NewFlavorDelete(head Report, c *cloud.Compute, deletion flavor.Move) FlavorDelete {
	return FlavorDelete{Report: head, Cloud: c.URL, Changes: deletion.Requests(), Before: *deletion.Before}
}

// PrintFlavorDeletion prints the deletion of a flavor as text.
func PrintFlavorDeletion(u *term.UI, r FlavorDelete) {
	u.Printf("deletes flavor %s at %s:\n%s", term.Printable(r.Before.Name), term.Printable(r.Cloud), term.Printable(indented(flavor.Text(&r.Before))))
	printRequests(u, r.Changes)
}
