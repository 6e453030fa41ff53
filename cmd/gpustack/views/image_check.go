package views

import (
	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/nova/cloud"
	"gpustack/nova/image"
)

// ImageCheck is the output of image check (docs/json.md).
type ImageCheck struct {
	Schema       int           `json:"schema"`
	Cloud        string        `json:"cloud"`        // the address of Nova's API
	Microversion string        `json:"microversion"` // the newest of the cloud
	Passed       bool          `json:"passed"`       // whether no check has failed
	Image        cloud.Image   `json:"image_state"`  // the image
	Flavor       cloud.Flavor  `json:"flavor"`       // the flavor of the guests
	For          image.Purpose `json:"for"`          // which guests the image is checked for
	// Findings are the results of the checks "image" (its status), "properties" (values that Nova
	// rejects, ignores, or that differ from the flavor's), "disk", "ram", "bars" (machine type,
	// firmware and addresses for large memory regions, with an inventory), "windows", "hypervisor"
	// (hidden without need), "secure_boot" and "traits" (demanded of compute nodes). Their file is
	// "".
	Findings []host.Finding `json:"findings"`
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
	printFindings(u, r.Findings, term.Elsewhere)
}
