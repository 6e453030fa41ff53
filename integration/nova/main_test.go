package nova

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gpustack/integration/binary"
	"gpustack/integration/service"
)

// lab is the one control plane of all tests; gpustack is the binary under test, made
// as make build makes it.
var (
	lab      *Lab
	gpustack string
)

func TestMain(m *testing.M) {
	flag.Parse()
	status, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	os.Exit(status)
}

func runTests(m *testing.M) (status int, err error) {
	scratch, err := os.MkdirTemp("", "gpustack-nova-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	if gpustack, err = binary.Build(scratch); err != nil {
		return 1, err
	}
	begin := time.Now()
	lab, err = Start(context.Background(), filepath.Join(scratch, "lab"))
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, lab.Stop(), service.Left(scratch)) }()
	if testing.Verbose() {
		fmt.Printf("the lab is up after %.1f s\n", time.Since(begin).Seconds())
		defer func() {
			for _, t := range lab.Timings() {
				fmt.Printf("%-22s %6.1f s\n", t.Step, t.Took.Seconds())
			}
		}()
	}
	return m.Run(), nil
}
