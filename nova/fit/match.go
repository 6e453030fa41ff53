package fit

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Match reports whether a value agrees with what an extra spec requires of it, by operators of
// words (nova/scheduler/filters/extra_specs_ops.py).
//
// Errors: numbers are compared, and one of them is none: nova-scheduler fails with it.
func Match(value, required string) (bool, error) {
	words := strings.Fields(required)
	if len(words) == 0 {
		return value == required, nil
	}
	operator, words := words[0], words[1:]
	switch operator {
	case "<or>":
		for i := 0; i < len(words); i += 2 {
			if words[i] == value {
				return true, nil
			}
		}
		return false, nil
	case "<all-in>":
		return len(words) > 0 && !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(value, word) }), nil
	case "<in>":
		return len(words) > 0 && strings.Contains(value, words[0]), nil
	case "s==", "s!=", "s<", "s<=", "s>", "s>=":
		return len(words) > 0 && holds(operator[1:], cmp.Compare(value, words[0])), nil
	case "=", "==", "!=", ">=", "<=":
		if len(words) == 0 {
			return false, nil
		}
		has, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return false, fmt.Errorf("%q is not a number", value)
		}
		want, err := strconv.ParseFloat(words[0], 64)
		if err != nil {
			return false, fmt.Errorf("%q is not a number", words[0])
		}
		return holds(operator, cmp.Compare(has, want)), nil
	}
	return value == required, nil
}

// Python returns a value of JSON as Python's str prints it, with which extra specs are compared.
func Python(value any) string {
	if text, ok := value.(string); ok {
		return text
	}
	return repr(value)
}

func repr(value any) string {
	switch v := value.(type) {
	case string:
		return "'" + v + "'"
	case bool:
		if v {
			return "True"
		}
		return "False"
	case nil:
		return "None"
	case []any:
		var words []string
		for _, one := range v {
			words = append(words, repr(one))
		}
		return "[" + strings.Join(words, ", ") + "]"
	}
	return fmt.Sprint(value)
}
