package main

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"gpustack/cmd/gpustack/args"
)

// TestRecipes: the recipes of docs/images.md are commands that a shell accepts, with the scripts
// that they write, and options that gpustack has; the user data is what cloud-init reads.
func TestRecipes(t *testing.T) {
	text, err := os.ReadFile("../../docs/images.md")
	if err != nil {
		t.Fatal(err)
	}
	parse := func(script string) {
		t.Helper()
		cmd := exec.Command("bash", "-n")
		cmd.Stdin = strings.NewReader(script)
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%v: %s\n%s", err, out, script)
		}
	}
	fences := regexp.MustCompile("(?s)```(bash|yaml)\n(.*?)```").FindAllSubmatch(text, -1)
	inner := regexp.MustCompile(`(?s)<<'EOT'\n(#!/bin/bash.*?)\nEOT\n`)
	a := newApp(testUI(t), []string{"gpustack"})
	shells, scripts, commands := 0, 0, 0
	for _, fence := range fences {
		body := string(fence[2])
		if string(fence[1]) == "yaml" {
			if !strings.HasPrefix(body, "#cloud-config\n") {
				t.Errorf("no user data of cloud-init: %s", body)
			}
			var data map[string]any
			d := yaml.NewDecoder(bytes.NewReader(fence[2]))
			if err := d.Decode(&data); err != nil {
				t.Fatal(err)
			}
			for key := range data { // cloud-init 22.4, doc/rtd/reference/modules.rst
				if !slices.Contains([]string{"package_update", "packages", "apt", "power_state"}, key) {
					t.Errorf("not a key of cloud-init: %s", key)
				}
			}
			continue
		}
		shells++
		parse(body)
		if !strings.HasPrefix(body, "set -eu\n") {
			t.Errorf("goes on after an error: %s", body)
		}
		for _, script := range inner.FindAllStringSubmatch(body, -1) {
			scripts++
			parse(script[1])
		}
		for line := range strings.Lines(body) {
			words := strings.Fields(line)
			if len(words) < 4 || words[0] != "gpustack" {
				continue
			}
			commands++
			line := args.Parse(a.App, words)
			if line.Command == nil || line.Unknown {
				t.Errorf("no command of gpustack: %q", words)
				continue
			}
			for _, word := range words {
				if name, ok := strings.CutPrefix(word, "--"); ok && args.FindFlag(line.Command.Flags, name) == nil {
					t.Errorf("%s has no option --%s", line.Command.FullName(), name)
				}
			}
		}
	}
	if shells != 2 || scripts != 1 || commands != 2 {
		t.Errorf("found %d recipes, %d scripts and %d commands of gpustack", shells, scripts, commands)
	}
}
