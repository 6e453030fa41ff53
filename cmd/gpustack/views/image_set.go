package views

import (
	"fmt"

	udiff "github.com/aymanbagabas/go-udiff"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/nova/cloud"
	"gpustack/nova/image"
)

// ImageSet is the output of image set (docs/json.md).
type ImageSet struct {
	Report
	Cloud        string          `json:"cloud"`        // the address of Nova's API
	Microversion string          `json:"microversion"` // the newest of the cloud
	For          image.Purpose   `json:"for"`          // which guests the image is for
	Changes      []cloud.Request `json:"changes"`      // the request; empty if nothing changes
	Values       []image.Value   `json:"values"`       // the values that are changed
	// properties that guests need and the cloud does not support
	LeftOut []image.LeftOut `json:"left_out"`
	Before  cloud.Image     `json:"before"` // the image before the change
	After   cloud.Image     `json:"after"`  // the image after the change
}

// NewImageSet returns the report of a plan of an image. head is its common part.
func NewImageSet(head Report, c *cloud.Compute, purpose image.Purpose, plan image.Plan) ImageSet {
	return ImageSet{
		Report: head, Cloud: c.URL, Microversion: c.Newest.String(), For: purpose, Changes: plan.Requests(), Values: plan.Values,
		LeftOut: plan.LeftOut, Before: plan.Image, After: plan.After,
	}
}

// PrintImagePlan prints the plan of an image as text.
func PrintImagePlan(u *term.UI, r ImageSet) {
	notes := r.Before.Visibility + ", of project " + r.Before.Owner + either(r.Before.Protected, ", protected from deletion", "") +
		either(r.Before.Hidden, ", hidden", "")
	u.Printf("image %s at %s (%s)\n", term.Printable(r.Before.Name), term.Printable(r.Cloud), term.Printable(notes))
	if r.Changed {
		name := "image " + r.Before.Name
		u.Diff(udiff.Unified(name, name, image.Text(r.Before), image.Text(r.After)))
	} else {
		u.Printf("%s\nnothing to do: the image is as planned\n", term.Printable(indented(image.Text(r.Before))))
	}
	explained := host.Filter(r.Values, func(v image.Value) bool { return v.Why != "" })
	printLines(u, "reasons", host.Map(explained, func(v image.Value) string { return "  " + v.Name + ": " + v.Why }))
	printLines(u, "left out", host.Map(r.LeftOut, func(l image.LeftOut) string { return fmt.Sprintf("  %s=%s: %s", l.Name, l.Value, l.Reason) }))
	if r.Changed {
		printRequests(u, r.Changes)
	}
}
