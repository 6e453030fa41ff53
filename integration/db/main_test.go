package db

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

// database is the one of all tests; gpustack is the binary under test, made as make
// build makes it.
var (
	database *DB
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
	scratch, err := os.MkdirTemp("", "gpustack-db-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	if gpustack, err = binary.Build(scratch); err != nil {
		return 1, err
	}
	begin := time.Now()
	database, err = Start(context.Background(), filepath.Join(scratch, "db"))
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, database.Stop(), service.Left(scratch)) }()
	if testing.Verbose() {
		fmt.Printf("the databases are up after %.1f s\n", time.Since(begin).Seconds())
	}
	return m.Run(), nil
}

// reset gives a test empty databases.
func reset(t *testing.T) {
	t.Helper()
	if err := database.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
}
