package document

import (
	"bytes"
	"encoding/json"
	"slices"

	"gpustack/host"
)

// manyKeys is the number of keys of an object from which on they are looked up in a map.
const manyKeys = 48

// RepeatedKey returns a key that an object of a text in valid JSON has twice. Keys that differ only
// in case count as the same, as they do where a document is decoded: what such a document means
// depends on its reader.
func RepeatedKey(text []byte) (key string, is bool) {
	o := outlineOf(text)
	return o.repeated, o.isRepeated
}

// outline is what one look at a text in JSON shows.
type outline struct {
	fields     map[string][]byte // values in JSON of the document, if it is an object
	repeated   string            // a key that an object has twice
	isRepeated bool
}

// outlineOf returns the outline of a text in valid JSON.
func outlineOf(text []byte) (o outline) {
	var open nesting
	o.fields = map[string][]byte{}
	wantsKey, field, value := false, "", -1 // the document's last field, and where its value begins
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '{':
			open.push(false)
			wantsKey = true
		case '[':
			open.push(true)
			wantsKey = false
		case ',', '}', ']':
			if open.depth == 1 && value >= 0 {
				o.fields[field], value = bytes.TrimSpace(text[value:i]), -1
			}
			if text[i] == ',' {
				wantsKey = open.depth > 0 && !open.top().isList
				continue
			}
			open.depth--
			wantsKey = false
		case '"':
			end := endOfString(text, i)
			if wantsKey {
				name := nameOf(text[i:end])
				if !open.top().add(name) {
					o.repeated, o.isRepeated = string(name), true
					return o
				}
				if open.depth == 1 {
					field, value = string(name), end+bytes.IndexByte(text[end:], ':')+1
				}
			}
			i, wantsKey = end-1, false
		}
	}
	return o
}

// nesting is the objects and lists around a place. What it had allocated is used again.
type nesting struct {
	levels []keysOf
	depth  int
}

func (n *nesting) push(isList bool) {
	if n.depth == len(n.levels) {
		n.levels = append(n.levels, keysOf{})
	}
	level := &n.levels[n.depth]
	level.isList, level.few, level.many = isList, level.few[:0], nil
	n.depth++
}

func (n *nesting) top() *keysOf { return &n.levels[n.depth-1] }

// endOfString returns the offset behind the string that begins at start.
func endOfString(text []byte, start int) int {
	i := start + 1
	for i < len(text) && text[i] != '"' {
		if text[i] == '\\' {
			i++
		}
		i++
	}
	return min(i+1, len(text))
}

// textOf returns the content of a value in JSON that is a string, or nil.
func textOf(value []byte) []byte {
	if len(value) == 0 || value[0] != '"' {
		return nil
	}
	return nameOf(value)
}

// nameOf returns the content of a quoted string.
func nameOf(quoted []byte) []byte {
	var name string
	if bytes.IndexByte(quoted, '\\') < 0 || json.Unmarshal(quoted, &name) != nil {
		return quoted[1 : len(quoted)-1]
	}
	return []byte(name)
}

// keysOf are the keys of an object so far, or a list.
type keysOf struct {
	isList bool
	few    [][]byte
	many   map[string]bool // in lower case
}

// add adds a key. It returns false if the object has it.
func (k *keysOf) add(key []byte) bool {
	if k.many == nil {
		if slices.ContainsFunc(k.few, func(other []byte) bool { return bytes.EqualFold(other, key) }) {
			return false
		}
		if k.few = append(k.few, key); len(k.few) == manyKeys {
			k.many = host.Set(host.Map(k.few, func(key []byte) string { return string(bytes.ToLower(key)) }))
		}
		return true
	}
	folded := string(bytes.ToLower(key))
	if k.many[folded] {
		return false
	}
	k.many[folded] = true
	return true
}
