package host

import "fmt"

// Bool is the answer to a question of yes or no that the machine, or a service, may leave open.
// JSON has it as true, false or null.
type Bool uint8

// Answers.
const (
	Unknown Bool = iota
	No
	Yes
)

// BoolOf returns Yes or No.
func BoolOf(is bool) Bool {
	if is {
		return Yes
	}
	return No
}

// Known reports whether b is Yes or No.
func (b Bool) Known() bool { return b != Unknown }

// String returns unknown, no or yes.
func (b Bool) String() string {
	switch b {
	case Unknown:
		return "unknown"
	case No:
		return "no"
	case Yes:
		return "yes"
	}
	return fmt.Sprintf("Bool(%d)", uint8(b))
}

// MarshalJSON returns true, false or null.
func (b Bool) MarshalJSON() ([]byte, error) {
	switch b {
	case Unknown:
		return []byte("null"), nil
	case No:
		return []byte("false"), nil
	case Yes:
		return []byte("true"), nil
	}
	return nil, fmt.Errorf("no answer has the number %d", b)
}

// UnmarshalJSON accepts true, false and null.
func (b *Bool) UnmarshalJSON(data []byte) error {
	switch string(data) {
	case "null":
		*b = Unknown
	case "false":
		*b = No
	case "true":
		*b = Yes
	default:
		return fmt.Errorf("%.60s is neither true nor false nor null", data)
	}
	return nil
}
