module gpustack

go 1.26.0

require (
	github.com/cyphar/filepath-securejoin v0.7.0
	github.com/google/go-cmp v0.7.0
	golang.org/x/sys v0.49.0
	golang.org/x/tools v0.52.0
)
