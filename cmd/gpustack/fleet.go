package main

import (
	"runtime/debug"
	"slices"
	"strconv"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/fleet"
	"gpustack/host/document"
)

// fleetDocuments is the part of the help of commands on a fleet that says what they read.
const fleetDocuments = `Reads the output of host scan, host check and host guests, as JSON or YAML: files,
folders, or - for standard input, with one document a file or several (JSON lines). Of one
host and kind the newest document counts. gpustack connects to no node: docs/fleet.md says
how to collect the documents.`

// fleetFiles returns the paths of documents, of which there must be at least one. Standard input
// may be given once; a flag may name it too.
func fleetFiles(c *cli.Context, f *args.Faults, flags ...string) []string {
	files := c.Args().Slice()
	if len(files) == 0 {
		f.Add(args.UsageError("FILE is missing", f.SeeHelp()))
	}
	stdin := 0
	for _, file := range files {
		if file == "" {
			f.Add(args.UsageError(strconv.Quote(file)+" is an empty path", f.SeeHelp()))
		}
		if file == document.Stdin {
			stdin++
		}
	}
	if slices.ContainsFunc(flags, func(flag string) bool { return c.String(flag) == document.Stdin }) {
		stdin++
	}
	if stdin > 1 {
		f.Add(args.UsageError("standard input is given more than once", "give - once, and files or folders for the rest"))
	}
	return files
}

// readFleet reads documents, and prints warnings about them.
func readFleet(u *term.UI, files ...string) (fleet.Fleet, error) {
	debug.SetGCPercent(100) // main sets more for short runs; this one may read thousands of documents
	found, err := fleet.Read(documentsAt(u, files...))
	if err != nil {
		return fleet.Fleet{}, err
	}
	u.Warn(found.Warnings...)
	return found, nil
}
