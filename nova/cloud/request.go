package cloud

// Request is a request that changes an object of an API, as a plan shows it.
type Request struct {
	Method string `json:"method"`
	Path   string `json:"path"` // below the address of the API; ID stands for the id of a new object
	Body   any    `json:"body"`
}
