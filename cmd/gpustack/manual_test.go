package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gpustack/cmd/gpustack/args"
)

// TestManualEnvironment: the manual names every environment variable that the program reads.
func TestManualEnvironment(t *testing.T) {
	listed := map[string]bool{}
	for _, variable := range args.ManualEnvironment {
		for name := range strings.SplitSeq(variable.Name, ", ") {
			listed[name] = true
		}
	}
	variable := regexp.MustCompile(`"((?:OS|XDG|SSH|SUDO|NO|LC)_[A-Z_]+|HOME|LANG|TERM)"`)
	found := map[string]bool{}
	for _, file := range sources(t, ".go") {
		if strings.HasSuffix(file, "_test.go") || strings.HasPrefix(file, "integration/") || strings.Contains(file, "cloudtest/") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(repository, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range variable.FindAllStringSubmatch(string(text), -1) {
			found[name[1]] = true
			if !listed[name[1]] {
				t.Errorf("%s: %s is not in manualEnvironment", file, name[1])
			}
		}
	}
	if len(found) < 20 {
		t.Errorf("only %d variables are found", len(found))
	}
}
