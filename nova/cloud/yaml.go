package cloud

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"gpustack/host"
)

// keys are keys of YAML with their values: string, bool, nil, []any, keys, or misread.
type keys map[string]any

// misread is a number, such as 0123, that YAML 1.1 reads as another one than was written.
type misread struct{}

// maxValues and maxDepth limit a file: aliases can multiply its values and contain themselves.
const (
	maxValues = 100_000
	maxDepth  = 100
)

var (
	errMalformed = errors.New("not valid YAML")
	errTooLarge  = errors.New("too many values, or values that contain themselves")
)

// parseKeys reads a mapping of YAML with the values that PyYAML reads (yaml/resolver.py): they
// differ from those of other parsers, which read "verify: no" as a text. Errors contain no values,
// which may be secrets.
func parseKeys(text []byte) (keys, error) {
	var document, second yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	if err := decoder.Decode(&document); err != nil && !errors.Is(err, io.EOF) {
		return nil, atLine(err)
	}
	if err := decoder.Decode(&second); err == nil {
		return nil, errors.New("more than one document")
	} else if !errors.Is(err, io.EOF) {
		return nil, atLine(err)
	}
	reader := yamlReader{left: maxValues}
	value, err := reader.value(&document, 0)
	if err != nil {
		return nil, err
	}
	if value == nil {
		return keys{}, nil
	}
	mapping, ok := value.(keys)
	if !ok {
		return nil, errors.New("the document is not a mapping")
	}
	return mapping, nil
}

// atLine returns an error of the parser without its text, which may contain a secret.
func atLine(err error) error {
	if _, after, ok := strings.Cut(err.Error(), "line "); ok {
		if line, _, ok := strings.Cut(after, ":"); ok {
			if _, err := strconv.Atoi(line); err == nil {
				return errors.New("line " + line + " is not valid YAML")
			}
		}
	}
	return errMalformed
}

type yamlReader struct {
	left int // values that may still be read
}

func (r *yamlReader) value(n *yaml.Node, depth int) (any, error) {
	if r.left--; r.left < 0 || depth > maxDepth {
		return nil, errTooLarge
	}
	switch n.Kind {
	case yaml.DocumentNode:
		return r.value(n.Content[0], depth+1)
	case yaml.AliasNode:
		return r.value(n.Alias, depth+1)
	case yaml.MappingNode:
		return r.mapping(n, depth)
	case yaml.SequenceNode:
		list := []any{}
		for _, element := range n.Content {
			value, err := r.value(element, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, value)
		}
		return list, nil
	}
	return scalar(n), nil
}

// mapping reads a mapping. Of a key that is given twice, the last one counts; those of "<<" count
// less than its own.
func (r *yamlReader) mapping(n *yaml.Node, depth int) (any, error) {
	own, merged := keys{}, keys{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		value, err := r.value(n.Content[i+1], depth+1)
		if err != nil {
			return nil, err
		}
		if key.Tag != "!!merge" {
			own[key.Value] = value
			continue
		}
		sources, ok := value.([]any)
		if !ok {
			sources = []any{value}
		}
		for _, source := range slices.Backward(sources) {
			mapping, ok := source.(keys)
			if !ok {
				return nil, fmt.Errorf("line %d: << is neither a mapping nor a list of mappings", key.Line)
			}
			maps.Copy(merged, mapping)
		}
	}
	maps.Copy(merged, own)
	return merged, nil
}

// yamlNumber matches what PyYAML reads as a number (yaml/resolver.py).
var yamlNumber = host.LazyRegexp(`^[-+]?(0b[01_]+|0[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+|[1-9][0-9_]*(:[0-5]?[0-9])+|` +
	`[0-9][0-9_]*\.[0-9_]*([eE][-+][0-9]+)?|\.[0-9][0-9_]*([eE][-+][0-9]+)?|[0-9][0-9_]*(:[0-5]?[0-9])+\.[0-9_]*|\.(inf|Inf|INF))$|^\.(nan|NaN|NAN)$`)

// sameNumber matches numbers that Python prints as they are written.
var sameNumber = host.LazyRegexp(`^-?(0|[1-9][0-9]*)$|^-?[1-9][0-9]{0,5}\.([0-9]{0,5}[1-9]|0)$`)

// scalar returns a string, bool or nil, or misread.
func scalar(n *yaml.Node) any {
	if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 || n.Style&yaml.TaggedStyle != 0 && n.Tag == "!!str" {
		return n.Value
	}
	switch strings.ToLower(n.Value) {
	case "", "~", "null":
		return nil
	case "yes", "true", "on":
		return true
	case "no", "false", "off":
		return false
	}
	if yamlNumber().MatchString(n.Value) && !sameNumber().MatchString(n.Value) {
		return misread{}
	}
	return n.Value
}
