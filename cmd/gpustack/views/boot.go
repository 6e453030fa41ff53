package views

import (
	"gpustack/cmd/gpustack/term"
	"gpustack/host/steps"
)

// PrintSteps prints the result of each step of a boot.
func PrintSteps(u *term.UI, result steps.Result) {
	for _, s := range result.Steps {
		line := s.ID + ": " + string(s.Status)
		if s.Error != "" {
			line += ": " + s.Error
		}
		u.Printf("%s\n", term.Printable(line))
	}
}
