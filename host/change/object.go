package change

import (
	"fmt"

	"gpustack/host"
)

// Object is the record of a change of one object of a cloud, the detail of an entry of kind
// objects.
type Object interface {
	// ObjectType returns the type that the record names.
	ObjectType() string
	// Valid returns an error unless the record is that of a change of such an object.
	Valid() error
}

// ParseObject returns the record of an entry of kind objects, whose objects must be of the type.
func ParseObject[R Object](e Entry, objects string) (R, error) {
	var r, none R
	err := host.DecodeJSON(e.Detail(), &r)
	switch {
	case err != nil:
	case r.ObjectType() != objects:
		err = fmt.Errorf("type %q is not supported: it was written by another version of gpustack", r.ObjectType())
	default:
		err = r.Valid()
	}
	if err != nil {
		return none, fmt.Errorf("entry %d: objects: %w", e.ID, err)
	}
	return r, nil
}
