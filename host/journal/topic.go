package journal

// Subject is what a change of files is about.
type Subject string

// Subjects of changes of files.
const (
	OfGuests     Subject = "guests"     // what host prepare records
	OfAdapters   Subject = "adapters"   // what rdma prepare records
	OfContainers Subject = "containers" // what container prepare records
	OfNova       Subject = "nova"       // the files that nova configure edits
)

// Topic is what a change of files is about, as far as later commands decide by it.
type Topic struct {
	Subject Subject `json:"subject"`
	None    bool    `json:"none"` // after the change nothing is selected
	Role    string  `json:"role"` // of nova configure, "" for other subjects
}

// Topic returns what a change of files is about, the zero value for other kinds.
func (e Entry) Topic() Topic {
	if e.About != nil {
		return *e.About
	}
	return Topic{}
}

// NextBoot reports whether undoing the change of files takes effect only at the next boot. What
// containers get is reverted on the running machine: the program that an entry of container prepare
// runs is gpustack boot --revert, which also sets VFs and drivers of other records.
func (e Entry) NextBoot() bool {
	return e.Topic().Subject != OfContainers && len(e.Programs)+len(e.Left) > 0
}
