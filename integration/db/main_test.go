package db

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"gpustack/host/hosttest"
	"gpustack/integration/binary"
)

// database is the one of all tests; gpustack is the binary under test, made as make
// build makes it.
var (
	database *DB
	gpustack string
)

func TestMain(m *testing.M) {
	binary.Main(m, "db", func(built, scratch string) (stop func() error, err error) {
		gpustack = built
		begin := time.Now()
		if database, err = Start(context.Background(), filepath.Join(scratch, "db")); err != nil {
			return nil, err
		}
		if testing.Verbose() {
			fmt.Printf("the databases are up after %.1f s\n", time.Since(begin).Seconds())
		}
		return database.Stop, nil
	}, nil)
}

// reset gives a test empty databases.
func reset(t *testing.T) {
	t.Helper()
	hosttest.NoError(t, database.Reset(t.Context()))
}
