package mariadb

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpustack/host/hosttest"
)

// helper names the environment variable that makes the test binary the process of
// TestNothingIsLeft: its value is where the server has its data.
const helper = "MARIADB_TEST_HELPER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(helper); dir != "" {
		if _, err := Start(context.Background(), filepath.Join(dir, "server"), filepath.Join(dir, "log")); err != nil {
			panic(err)
		}
		os.Stdout.WriteString("started\n")
		select {}
	}
	os.Exit(m.Run())
}

// folder is like t.TempDir, with a name short enough for a socket in it.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mariadb-")
	hosttest.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// TestServer: what was committed is there after a kill and after a stop, and the
// user comes in by the port.
func TestServer(t *testing.T) {
	dir := folder(t)
	s, err := Start(t.Context(), filepath.Join(dir, "server"), filepath.Join(dir, "log"))
	hosttest.NoError(t, err)
	t.Cleanup(func() { s.Stop() })
	query := func(statements string) [][]string {
		t.Helper()
		rows, err := s.Query(t.Context(), statements)
		hosttest.NoError(t, err)
		return rows
	}
	query(`CREATE DATABASE d; CREATE TABLE d.t (a int, b text); INSERT INTO d.t VALUES (1, 'x\ty\n\\n'), (2, NULL)`)
	want := [][]string{{"1", "x\ty\n\\n"}, {"2", "NULL"}}
	for _, end := range []func() error{s.Kill, s.Stop} {
		hosttest.NoError(t, end())
		if left := processes(t, dir); left != "" {
			t.Fatalf("left:\n%s", left)
		}
		hosttest.NoError(t, s.Start(t.Context()))
		hosttest.Equal(t, want, query("SELECT a, b FROM d.t ORDER BY a"))
	}
	if _, err := s.Query(t.Context(), "SELECT * FROM d.none"); err == nil || !strings.Contains(err.Error(), "doesn't exist") {
		t.Errorf("a table that is not there: %v", err)
	}
	host, port, _ := strings.Cut(s.Address, ":")
	out, err := exec.Command("mariadb", "--no-defaults", "--protocol=tcp", "--host="+host, "--port="+port, "--user="+s.User, "--password="+s.Password, "--batch", "--execute=SELECT count(*) FROM d.t").CombinedOutput()
	if err != nil || string(out) != "count(*)\n2\n" {
		t.Errorf("by the port: %v, %s", err, out)
	}
}

// TestDoesNotStart: a server that ends at once is noticed at once, and its log says
// why.
func TestDoesNotStart(t *testing.T) {
	dir := folder(t)
	s, err := Start(t.Context(), filepath.Join(dir, "server"), filepath.Join(dir, "log"))
	hosttest.NoError(t, err)
	hosttest.NoError(t, s.Stop())
	s.Argv = append(s.Argv, "--no-such-option")
	if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "mariadb: has ended") || !strings.Contains(err.Error(), "unknown option '--no-such-option'") {
		t.Error(err)
	}
}

// TestNothingIsLeft: the server goes with the process that started it, when that is
// killed.
func TestNothingIsLeft(t *testing.T) {
	dir := folder(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helper+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	hosttest.NoError(t, err)
	hosttest.NoError(t, cmd.Start())
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "started\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if before := processes(t, dir); !strings.Contains(before, "mariadbd") {
		t.Fatalf("runs:\n%s", before)
	}
	hosttest.NoError(t, cmd.Process.Kill())
	cmd.Wait()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		left := processes(t, dir)
		if left == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left:\n%s", left)
		}
	}
}

// processes lists the command lines of those that run and have the folder in their
// command line or environment.
func processes(t *testing.T, dir string) (list string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*")
	hosttest.NoError(t, err)
	for _, proc := range all {
		// Both are empty for one that has just ended.
		cmdline, _ := os.ReadFile(filepath.Join(proc, "cmdline"))
		environ, _ := os.ReadFile(filepath.Join(proc, "environ"))
		if bytes.Contains(cmdline, []byte(dir)) || bytes.Contains(environ, []byte(dir)) {
			list += string(bytes.ReplaceAll(cmdline, []byte{0}, []byte{' '})) + "\n"
		}
	}
	return list
}
