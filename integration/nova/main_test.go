package nova

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"gpustack/integration/binary"
)

// lab is the one control plane of all tests; gpustack is the binary under test, made
// as make build makes it.
var (
	lab      *Lab
	gpustack string
)

func TestMain(m *testing.M) {
	binary.Main(m, "nova", func(built, scratch string) (stop func() error, err error) {
		gpustack = built
		begin := time.Now()
		if lab, err = Start(context.Background(), filepath.Join(scratch, "lab")); err != nil {
			return nil, err
		}
		if testing.Verbose() {
			fmt.Printf("the lab is up after %.1f s\n", time.Since(begin).Seconds())
		}
		return func() error {
			if testing.Verbose() {
				for _, t := range lab.Timings() {
					fmt.Printf("%-22s %6.1f s\n", t.Step, t.Took.Seconds())
				}
			}
			return lab.Stop()
		}, nil
	}, nil)
}
