package trial

import (
	"context"
	"errors"
	"fmt"

	"gpustack/host"
	"gpustack/host/engine"
)

// contained returns what runs a program in a container. Containers of a test share the machine's
// network namespace, which has the IP address of the adapter.
func (p Programs) contained(c engine.Container, r host.Runner) func(context.Context, []string) ([]byte, error) {
	return func(ctx context.Context, argv []string) ([]byte, error) {
		stdout, err := c.Run(ctx, r, "gpustack-rdma-test-", argv)
		if errors.Is(err, engine.ErrNoProgram) {
			err = fmt.Errorf("%s: %w", c.Image, p.MissingInImage)
		}
		return stdout, err
	}
}
