package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// carried is the program that gpustack carries, without its architecture.
const carried = "cmd/cudaprobe/embedded/cudaprobe-"

// withCarried returns the modules of a binary and of the program that it carries, by path. It is an
// error if the binary does not carry the program.
func withCarried(modules []*debug.Module, binary []byte, file string) ([]*debug.Module, error) {
	compressed, err := os.ReadFile(file + ".gz")
	if err != nil {
		return nil, err
	}
	if !bytes.Contains(binary, compressed) {
		return nil, fmt.Errorf("gpustack does not carry %s", file)
	}
	r, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	program, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for _, module := range info.Deps {
		if !slices.ContainsFunc(modules, func(m *debug.Module) bool { return m.Path == module.Path }) {
			modules = append(modules, module)
		}
	}
	slices.SortFunc(modules, func(a, b *debug.Module) int { return strings.Compare(a.Path, b.Path) })
	return modules, nil
}

// used returns the modules that are part of a binary, each as it was replaced.
func used(info *debug.BuildInfo) (modules []*debug.Module) {
	for _, module := range info.Deps {
		modules = append(modules, cmp.Or(module.Replace, module))
	}
	return modules
}

// licenses returns the licenses of the modules that are part of a binary, and Go's own: they
// demand to be distributed with it. ids are their identifiers by module, those of Go at "std".
func (r *release) licenses(info *debug.BuildInfo) (texts []byte, ids map[string][]string, err error) {
	goroot, err := output("go", "env", "GOROOT")
	if err != nil {
		return nil, nil, err
	}
	var b bytes.Buffer
	ids = map[string][]string{}
	b.WriteString("The program gpustack contains Go's standard library and the Go modules below, under these licenses.\n")
	if ids["std"], err = addLicenses(&b, "Go "+strings.TrimPrefix(info.GoVersion, "go"), goroot); err != nil {
		return nil, nil, err
	}
	list := []string{"list", "-m", "-f", "{{.Path}}\t{{.Dir}}"}
	for _, module := range used(info) {
		list = append(list, module.Path)
	}
	folders, err := output("go", list...)
	if err != nil {
		return nil, nil, err
	}
	for i, line := range strings.Split(folders, "\n") {
		path, dir, _ := strings.Cut(line, "\t")
		if ids[path], err = addLicenses(&b, path+" "+used(info)[i].Version, dir); err != nil {
			return nil, nil, err
		}
	}
	return b.Bytes(), ids, nil
}

// addLicenses appends what a module's folder has for licenses and notices, and returns the
// identifiers of the licenses.
func addLicenses(b *bytes.Buffer, module, dir string) (ids []string, err error) {
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		name := strings.ToUpper(entry.Name())
		if !strings.HasPrefix(name, "LICEN") && !strings.HasPrefix(name, "COPYING") && !strings.HasPrefix(name, "NOTICE") || entry.IsDir() {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return nil, err
		}
		ids = append(ids, licensesIn(string(text))...)
		fmt.Fprintf(b, "\n==== %s: %s\n\n%s\n", module, entry.Name(), bytes.TrimSpace(text))
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("%s has no license in %s, or one of an unknown text", module, dir)
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// licensesIn returns the identifiers of the licenses in a text (https://spdx.org/licenses/).
func licensesIn(text string) (ids []string) {
	words := strings.Join(strings.Fields(text), " ")
	has := func(sentence string) bool { return strings.Contains(words, sentence) }
	for id, in := range map[string]bool{
		"Apache-2.0":   has("Apache License, Version 2.0") || has("Apache License Version 2.0"),
		"MIT":          has("Permission is hereby granted, free of charge, to any person obtaining a copy of this software"),
		"MPL-2.0":      has("Mozilla Public License Version 2.0"),
		"BSD-2-Clause": has("Redistribution and use in source and binary forms") && !has("used to endorse or promote"),
		"BSD-3-Clause": has("Redistribution and use in source and binary forms") && has("used to endorse or promote"),
	} {
		if in {
			ids = append(ids, id)
		}
	}
	return ids
}

// output returns what a program prints.
func output(program string, args ...string) (string, error) {
	out, err := exec.Command(program, args...).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", program, strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// A bom is a software bill of materials, as CycloneDX 1.6 defines it
// (https://cyclonedx.org/docs/1.6/json/).
type bom struct {
	Schema       string       `json:"$schema"`
	Format       string       `json:"bomFormat"`
	SpecVersion  string       `json:"specVersion"`
	SerialNumber string       `json:"serialNumber"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Timestamp time.Time `json:"timestamp"`
	Component component `json:"component"`
}

type component struct {
	Type     string    `json:"type"`
	Ref      string    `json:"bom-ref"`
	Name     string    `json:"name"`
	Version  string    `json:"version"`
	Hashes   []hash    `json:"hashes,omitempty"`
	Licenses []license `json:"licenses,omitempty"`
	PURL     string    `json:"purl"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type license struct {
	License struct {
		ID string `json:"id"`
	} `json:"license"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn,omitempty"`
}

// sbom returns the bill of materials of a binary, from the build info that Go records in it: Go's
// standard library and the modules that are part of the binary. The hash of a module is that of
// go.sum, in hexadecimal digits.
func (r *release) sbom(info *debug.BuildInfo, program []byte, ids map[string][]string) ([]byte, error) {
	sum := sha256.Sum256(program)
	b := bom{
		Schema:      "http://cyclonedx.org/schema/bom-1.6.schema.json",
		Format:      "CycloneDX",
		SpecVersion: "1.6",
		// The same binary has the same number.
		SerialNumber: uuid.NewSHA1(uuid.NameSpaceOID, sum[:]).URN(),
		Version:      1,
		Metadata: metadata{r.time, component{
			Type: "application", Ref: "gpustack", Name: "gpustack", Version: r.version, PURL: "pkg:generic/" + product + "@" + url.PathEscape(r.version),
			Hashes: []hash{{"SHA-256", hex.EncodeToString(sum[:])}}, Licenses: licensed("Apache-2.0"),
		}},
	}
	b.add("std", strings.TrimPrefix(info.GoVersion, "go"), nil, ids["std"])
	for _, module := range used(info) {
		h1, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(module.Sum, "h1:"))
		if err != nil || len(h1) != sha256.Size {
			return nil, fmt.Errorf("module %s %s has no checksum: %q", module.Path, module.Version, module.Sum)
		}
		b.add(module.Path, module.Version, []hash{{"SHA-256", hex.EncodeToString(h1)}}, ids[module.Path])
	}
	root := dependency{Ref: "gpustack"}
	for _, c := range b.Components {
		root.DependsOn = append(root.DependsOn, c.Ref)
	}
	b.Dependencies = []dependency{root}
	text, err := json.MarshalIndent(b, "", "  ")
	return append(text, '\n'), err
}

// add adds a module, with its package URL (https://github.com/package-url/purl-spec, type golang,
// whose names are in lower case).
func (b *bom) add(path, version string, hashes []hash, licenses []string) {
	purl := "pkg:golang/" + strings.ToLower(path) + "@" + url.QueryEscape(version)
	b.Components = append(b.Components, component{Type: "library", Ref: purl, Name: path, Version: version, Hashes: hashes,
		Licenses: licensed(licenses...), PURL: purl})
}

// licensed returns licenses as a component has them.
func licensed(ids ...string) (all []license) {
	for _, id := range ids {
		var l license
		l.License.ID = id
		all = append(all, l)
	}
	return all
}
