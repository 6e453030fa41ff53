package change

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Pick returns entry id, or the latest that is not undone if id is 0.
func Pick(entries []Entry, id int) (Entry, error) {
	for _, e := range slices.Backward(entries) {
		switch {
		case id == 0 && e.Status != Undone:
			return e, nil
		case id == e.ID && e.Status == Undone:
			return Entry{}, fmt.Errorf("entry %d: %w", id, ErrUndone)
		case id == e.ID:
			return e, nil
		}
	}
	if id == 0 {
		return Entry{}, ErrNothing
	}
	return Entry{}, fmt.Errorf("entry %d: %w", id, ErrNoEntry)
}

// PickFrom returns what [Pick] does from the first store that has it, with that store.
func PickFrom(stores []Store, id int) (Store, Entry, error) {
	var first error
	for _, store := range stores {
		entries, err := store.List()
		if err != nil {
			return store, Entry{}, err
		}
		entry, err := Pick(entries, id)
		if err == nil || errors.Is(err, ErrUndone) {
			return store, entry, err
		}
		first = cmp.Or(first, err)
	}
	return Store{}, Entry{}, first
}

// FindIn returns the first store that has entry id, its entries, and the place of the entry.
func FindIn(stores []Store, id int) (store Store, entries []Entry, place int, err error) {
	for _, store := range stores {
		entries, err := store.List()
		if err != nil {
			return store, nil, 0, err
		}
		if i := slices.IndexFunc(entries, func(e Entry) bool { return e.ID == id }); i >= 0 {
			return store, entries, i, nil
		}
	}
	return Store{}, nil, 0, fmt.Errorf("entry %d: %w", id, ErrNoEntry)
}
