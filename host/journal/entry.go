package journal

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"gpustack/host"
	"gpustack/host/pci"
)

// Status is the state of an entry.
type Status string

// The statuses of an entry, in their order. A run that was killed leaves an entry with one of
// those that end in -ing.
const (
	Applying   Status = "applying"   // the change is being made
	Rebuilding Status = "rebuilding" // the change is made, programs regenerate the files that depend on it
	Done       Status = "done"
	Undoing    Status = "undoing"    // the change is being reverted
	Unbuilding Status = "unbuilding" // the change is reverted, programs regenerate the files that depend on it
	Undone     Status = "undone"
)

// Entry is one recorded change. Its detail is in the field of what it changes.
type Entry struct {
	Schema  int        `json:"schema"`
	Kind    string     `json:"kind"` // "journal entry"
	ID      int        `json:"id"`
	Changes string     `json:"changes"` // a kind of change, such as KindFiles
	Command string     `json:"command"`
	About   *Topic     `json:"about,omitempty"` // nil for other kinds than files
	Status  Status     `json:"status"`
	Started time.Time  `json:"started"`
	Ended   *time.Time `json:"ended"` // when the status became done or undone
	Origin  Origin     `json:"origin"`
	Files   []File     `json:"files"`
	// Unchanged are files of the same kind as Files that the change left as they were: a file that is
	// in neither list has come since.
	Unchanged []Unchanged    `json:"unchanged,omitempty"`
	Programs  []host.Program `json:"programs"`          // run after the change is made, and after it is undone
	Left      []host.Program `json:"left"`              // programs left to the operator
	Restart   []string       `json:"restart,omitempty"` // services that read the files when they start
	Allowed   []pci.Identity `json:"allowed,omitempty"` // functions that leave the host because --allow names them, by the change or its undo

	Rows    json.RawMessage `json:"rows,omitempty"`    // of KindRows
	Drivers json.RawMessage `json:"drivers,omitempty"` // of KindDrivers
	Objects json.RawMessage `json:"objects,omitempty"` // of KindObjects
}

// Origin is who made a change, where and how. A field is empty if it could not be determined.
type Origin struct {
	// User is the user who called gpustack: of sudo(8), else of the login, else of the process; ""
	// if that cannot be determined.
	User string `json:"user"`
	// the name of the machine that gpustack ran on; "" if that cannot be determined
	Host    string `json:"host"`
	Version string `json:"version"` // the version of gpustack
	// the arguments of the command line, without secrets; of URLs only the scheme
	Argv []string `json:"argv"`
	// Cloud is the cloud of the change, which its undo uses. It is nil, and absent, if OS_
	// variables chose it, and of changes of a machine.
	Cloud *Cloud `json:"os_cloud,omitempty"`
}

// Cloud is the cloud of clouds.yaml that a command spoke to: what its undo needs to find it again.
type Cloud struct {
	// the name in clouds.yaml; "" for credentials of OS_ variables
	Name     string `json:"name"`
	Region   string `json:"region,omitempty"`   // the value of --os-region-name
	CACert   string `json:"cacert,omitempty"`   // the value of --os-cacert
	Insecure bool   `json:"insecure,omitempty"` // true with --insecure
}

// Kinds of changes.
const (
	KindFiles   = "files"
	KindRows    = "rows"    // of Nova's databases, with Placement's allocations
	KindDrivers = "drivers" // of functions of the running machine
	KindObjects = "objects" // of OpenStack's APIs
)

// IsOpen reports whether the run that applied or undid the entry was not completed.
func (e Entry) IsOpen() bool {
	return e.Status != Done && e.Status != Undone
}

// SetDetail sets the detail of an entry of another kind than files.
func (e *Entry) SetDetail(detail any) error {
	text, err := json.Marshal(detail)
	if err != nil {
		return fmt.Errorf("entry %d: %w", e.ID, err)
	}
	field := e.detail()
	if field == nil {
		return fmt.Errorf("entry %d: kind %q has no such detail", e.ID, e.Changes)
	}
	*field = text
	return nil
}

// Detail returns the detail of an entry of another kind than files, nil if there is none.
func (e Entry) Detail() json.RawMessage {
	if field := e.detail(); field != nil {
		return *field
	}
	return nil
}

// detail returns the field that keeps the detail of a kind, nil for files and for an unknown kind.
func (e *Entry) detail() *json.RawMessage {
	switch e.Changes {
	case KindRows:
		return &e.Rows
	case KindDrivers:
		return &e.Drivers
	case KindObjects:
		return &e.Objects
	}
	return nil
}

// ObjectType returns the type of the object that an entry of KindObjects changes, such as "flavor".
// It is "" for entries of other kinds and for a detail that names no type.
func (e Entry) ObjectType() string {
	var object struct {
		Type string `json:"type"`
	}
	if e.Changes != KindObjects || json.Unmarshal(e.Objects, &object) != nil {
		return ""
	}
	return object.Type
}

// kind is what the file of an entry says it is.
const kind = "journal entry"

// parseEntry parses an entry in a file.
func parseEntry(file string, data []byte, id int) (Entry, error) {
	var e Entry
	if err := host.DecodeSchema(file, kind, data, &e); err != nil {
		return Entry{}, err
	}
	switch {
	case e.ID != id:
		return Entry{}, fmt.Errorf("contains entry %d", e.ID)
	case !slices.Contains([]Status{Applying, Rebuilding, Done, Undoing, Unbuilding, Undone}, e.Status):
		return Entry{}, fmt.Errorf("unknown status %q", e.Status)
	}
	return e, nil
}
