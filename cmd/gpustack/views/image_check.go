package views

import (
	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/nova/cloud"
	"gpustack/nova/image"
)

// ImageCheck is the output of image check (docs/json.md).
type ImageCheck struct {
	Schema       int            `json:"schema"`
	Cloud        string         `json:"cloud"`
	Microversion string         `json:"microversion"` // the newest of the cloud
	Passed       bool           `json:"passed"`
	Image        cloud.Image    `json:"image_state"`
	Flavor       cloud.Flavor   `json:"flavor"`
	For          image.Purpose  `json:"for"`
	Findings     []host.Finding `json:"findings"`
}

// NewImageCheck returns the report of the check of an image, for a flavor that seen has.
func NewImageCheck(c *cloud.Compute, purpose image.Purpose, seen image.Seen, findings []host.Finding) ImageCheck {
	return ImageCheck{
		Schema: 1, Cloud: c.URL, Microversion: c.Newest.String(), Passed: !host.Failed(findings),
		Image: seen.Image, Flavor: *seen.Flavor, For: purpose, Findings: findings,
	}
}

// PrintImageCheck prints the findings of an image as text.
func PrintImageCheck(u *term.UI, r ImageCheck) {
	u.Printf("image %s for flavor %s at %s\n\n", term.Printable(r.Image.Name), term.Printable(r.Flavor.Name), term.Printable(r.Cloud))
	printFindings(u, r.Findings)
}
