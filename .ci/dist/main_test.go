package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestPackageVersion(t *testing.T) {
	committed := time.Date(2026, 11, 22, 18, 5, 9, 0, time.FixedZone("", 3600))
	for describe, want := range map[string]string{
		"v1.2.3":                       "1.2.3",
		"1.2":                          "1.2",
		"v1.2.3-dirty":                 "1.2.3+dirty",
		"v1.2.3-5-g0a1b2c3":            "1.2.3+5.g0a1b2c3",
		"v1.2.3-rc.1":                  "1.2.3~rc.1",
		"v1.2.3-rc1-12-g0a1b2c3-dirty": "1.2.3~rc1+12.g0a1b2c3+dirty",
		"4d2234a":                      "0~20261122170509.g4d2234a",
		"1234567":                      "0~20261122170509.g1234567",
		"4d2234a-dirty":                "0~20261122170509.g4d2234a+dirty",
	} {
		if got, err := packageVersion(describe, committed); got != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", describe, got, err, want)
		}
	}
	for _, describe := range []string{"", "unreleased", "latest", "v1", "v1.2.3 ", "v1.2.3-x", "deadbee-1-gdeadbee", "v1.2.3\n"} {
		if got, err := packageVersion(describe, committed); err == nil {
			t.Errorf("%q: %q", describe, got)
		}
	}
}

func TestSemanticVersion(t *testing.T) {
	for describe, want := range map[string]string{
		"v1.2.3":                       "1.2.3",
		"1.2":                          "1.2.0",
		"v1.2.3-dirty":                 "1.2.3+dirty",
		"v1.2.3-5-g0a1b2c3":            "1.2.3+5.g0a1b2c3",
		"v1.2.3-rc.1":                  "1.2.3-rc.1",
		"v1.2.3-rc1-12-g0a1b2c3-dirty": "1.2.3-rc1+12.g0a1b2c3.dirty",
		"4d2234a":                      "0.0.0-dev+g4d2234a",
		"1234567-dirty":                "0.0.0-dev+g1234567.dirty",
	} {
		if got, err := semanticVersion(describe); got != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", describe, got, err, want)
		}
	}
	for _, describe := range []string{"", "unreleased", "v1.2.3.4", "v1.02.3", "v1.2.3-rc.01", "v1.2.3-rc.", "v1.2.3-x"} {
		if got, err := semanticVersion(describe); err == nil {
			t.Errorf("%q: %q", describe, got)
		}
	}
}

// TestCollection: the files of the collection and what describes them, whatever lies around.
func TestCollection(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"galaxy.yml": "namespace: gpustack\nname: nova\nversion: 0.0.0-dev\nreadme: README.md\nauthors: [us]\ndescription: d\nlicense_file: LICENSE\n" +
			"tags: [gpu]\n",
		"README.md": "readme", "plugins/modules/scan_info.py": "module", "plugins/modules/__pycache__/scan_info.pyc": "x", ".ansible-lint": "x",
		".cache/file":               "x",
		"roles/node/tasks/main.yml": "---",
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("README.md", filepath.Join(dir, "LICENSE")); err != nil {
		t.Fatal(err)
	}
	c, err := newCollection(dir, "1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range c.files {
		names = append(names, fmt.Sprintf("%o %s %d", f.mode, f.path, len(f.data)))
	}
	want := []string{"644 MANIFEST.json", "644 FILES.json", "644 LICENSE 6", "644 README.md 6", "755 plugins/ 0", "755 plugins/modules/ 0",
		"644 plugins/modules/scan_info.py 6", "755 roles/ 0", "755 roles/node/ 0", "755 roles/node/tasks/ 0", "644 roles/node/tasks/main.yml 3"}
	if len(names) != len(want) || !slices.Equal(names[2:], want[2:]) || !strings.HasPrefix(names[0], want[0]) || !strings.HasPrefix(names[1], want[1]) ||
		c.file != "gpustack-nova-1.2.3.tar.gz" {
		t.Errorf("%s: %q", c.file, names)
	}
	if !bytes.Contains(c.files[0].data, []byte(`"version": "1.2.3"`)) || len(c.unpacked()) != 6 {
		t.Errorf("%s\n%d files", c.files[0].data, len(c.unpacked()))
	}
	galaxy := filepath.Join(dir, "galaxy.yml")
	for text, want := range map[string]string{"namespace: gpustack\nhomepage: x\n": "homepage", "- x": "galaxy.yml"} {
		if err := os.WriteFile(galaxy, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := newCollection(dir, "1.2.3"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestLicensesIn(t *testing.T) {
	const bsd = "Redistribution and use in source and binary forms, with or\n  without modification, are permitted"
	for text, want := range map[string][]string{
		"Apache License\n   Version 2.0, January 2004":   {"Apache-2.0"},
		"Licensed under the Apache License, Version 2.0": {"Apache-2.0"},
		"Mozilla Public License Version 2.0\n====":       {"MPL-2.0"},
		bsd: {"BSD-2-Clause"},
		bsd + "\nMy name may not be used\nto endorse or promote products":                                               {"BSD-3-Clause"},
		"MIT License\n\nPermission is hereby granted, free of charge, to any person\nobtaining a copy of this software": {"MIT"},
		"All rights reserved.": nil,
	} {
		if got := licensesIn(text); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
