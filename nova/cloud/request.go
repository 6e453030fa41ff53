package cloud

// Request is a request that changes an object of an API, as a plan shows it.
type Request struct {
	Method string `json:"method"` // "POST", "PUT", "PATCH" or "DELETE"
	// the path below the address of the API; ID stands for the id of a new object
	Path string `json:"path"`
	Body any    `json:"body"` // the body; a list for an image, nil for none
}
