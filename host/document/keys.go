package document

import (
	"bytes"
	"encoding/json"
)

// manyKeys is the number of keys of an object from which on they are looked up in a map.
const manyKeys = 48

// RepeatedKey returns a key that an object of a text in valid JSON has twice. Keys that differ only
// in case count as the same, as they do where a document is decoded: what such a document means
// depends on its reader.
func RepeatedKey(text []byte) (key string, is bool) {
	var open []keysOf // objects and lists around a place
	wantsKey := false
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '{':
			open, wantsKey = append(open, keysOf{}), true
		case '[':
			open, wantsKey = append(open, keysOf{isList: true}), false
		case '}', ']':
			open, wantsKey = open[:len(open)-1], false
		case ',':
			wantsKey = len(open) > 0 && !open[len(open)-1].isList
		case '"':
			end := endOfString(text, i)
			if wantsKey && !open[len(open)-1].add(nameOf(text[i:end])) {
				return string(nameOf(text[i:end])), true
			}
			i, wantsKey = end-1, false
		}
	}
	return "", false
}

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
		for _, other := range k.few {
			if bytes.EqualFold(other, key) {
				return false
			}
		}
		k.few = append(k.few, key)
		if len(k.few) < manyKeys {
			return true
		}
		k.many = map[string]bool{}
		for _, key := range k.few {
			k.many[string(bytes.ToLower(key))] = true
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
