package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host"
)

// errNoNetwork is the error of --print cni without an adapter that a plugin attaches containers to.
var errNoNetwork = host.WithHint(errors.New("no adapter has a network that a CNI plugin attaches containers to"),
	"name one with --hca; 'gpustack rdma scan' lists them")

// printContainer prints what another program needs, on standard output alone, so that it can be
// redirected.
func printContainer(u *term.UI, form, format string, r containerPrepareReport, notes []string) error {
	if form == printCNI {
		r.Warnings = append(r.Warnings, notes...)
	}
	r.Changed, r.Changes, r.AtBoot = false, []views.FileChange{}, []views.FileChange{}
	u.Document.Show(&r)
	u.Warn(r.Warnings...)
	switch {
	case form == printCNI && len(r.CNI) == 0:
		return errNoNetwork
	case format != term.FormatTable:
		return nil
	case form == printDocker:
		u.Printf("%s\n", dockerText(r.Docker))
		return nil
	}
	for _, n := range r.CNI {
		u.Note("for /etc/cni/net.d/%s.conflist:", n.Name)
		var text bytes.Buffer
		if err := json.Indent(&text, n.Config, "", "  "); err != nil {
			return err
		}
		u.Printf("%s\n", text.String())
	}
	return nil
}

// dockerText returns a command line with an argument on each line, as a shell reads it.
func dockerText(argv []string) string {
	words := []string{strings.Join(argv[:2], " ")}
	for _, w := range argv[2:] {
		words = append(words, host.ShellWord(w))
	}
	return strings.Join(words, " \\\n  ")
}
