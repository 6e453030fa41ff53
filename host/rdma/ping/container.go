package ping

import (
	"context"
	"errors"
	"fmt"

	"gpustack/host"
	"gpustack/host/engine"
)

// ErrImageRping says that an image has no rping.
var ErrImageRping = host.WithHint(errors.New("the image has no rping"),
	"install rdmacm-utils and ibverbs-providers (Debian, Ubuntu) or librdmacm-utils and libibverbs (RHEL) in the image")

// contained runs rping in a container. Containers of a test share the machine's network namespace,
// which has the IP address of the adapter.
func contained(ctx context.Context, c engine.Container, r host.Runner, rping []string) ([]byte, error) {
	stdout, err := c.Run(ctx, r, "gpustack-rdma-test-", rping)
	if errors.Is(err, engine.ErrNoProgram) {
		err = fmt.Errorf("%s: %w", c.Image, ErrImageRping)
	}
	return stdout, err
}
