package cdi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"gpustack/host"
)

// WrittenVersion is the version of the specs that gpustack writes: the lowest one that allows
// device names that begin with a digit, as PCI addresses do, and one that podman 4.3.1 reads.
const WrittenVersion = "0.5.0"

// Text returns the content of a spec file: JSON of [WrittenVersion], the same bytes for the same
// value. The version in spec may be left empty. It is an error, with every problem, if the library
// would not accept the file.
func Text(spec specs.Spec) ([]byte, error) {
	spec.Version = cmp.Or(spec.Version, WrittenVersion)
	if spec.Version != WrittenVersion {
		return nil, fmt.Errorf("CDI spec of kind %s: cdiVersion %s, but only %s is written", spec.Kind, spec.Version, WrittenVersion)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(spec); err != nil {
		return nil, fmt.Errorf("CDI spec of kind %s: %w", spec.Kind, err)
	}
	_, problems := Parse("CDI spec of kind "+spec.Kind, b.Bytes())
	all := host.Map(host.Filter(problems, func(p Problem) bool { return p.Status == host.Fail }),
		func(p Problem) error { return errors.New(p.String()) })
	if len(all) > 0 {
		return nil, errors.Join(all...)
	}
	return b.Bytes(), nil
}
