package node

import "gpustack/host/change"

// Recorded is an entry of a journal, with what its changes of files were.
type Recorded struct {
	Store change.Store
	Entry change.Entry
	Past  []change.Past
}

// ReadHistory returns the entries of journals: entry id, or all if id is 0.
func ReadHistory(stores []change.Store, id int) (all []Recorded, err error) {
	if id != 0 {
		store, entries, i, err := change.FindIn(stores, id)
		if err != nil {
			return nil, err
		}
		return []Recorded{{store, entries[i], recordedFiles(store.Root).Past(entries, i)}}, nil
	}
	for _, store := range stores {
		entries, err := store.List()
		if err != nil {
			return nil, err
		}
		files := recordedFiles(store.Root)
		for i, e := range entries {
			all = append(all, Recorded{store, e, files.Past(entries, i)})
		}
	}
	return all, nil
}
