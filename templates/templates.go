// Package templates holds the literal texts of the files that gpustack owns, and
// nothing else.
package templates

import _ "embed" // for the texts

// Completion scripts. They ask the binary itself for what can come next, and so
// never fall behind its commands.
var (
	//go:embed completion/bash
	BashCompletion string
	//go:embed completion/zsh
	ZshCompletion string
	//go:embed completion/fish
	FishCompletion string
)
