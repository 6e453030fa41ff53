package host_test

import (
	"io/fs"
	"os"
	"strings"
	"sync"
	"testing"

	"gpustack/host"
	"gpustack/host/hosttest"
)

type counter struct {
	sync.Mutex
	of map[string]int
}

func (c *counter) count(name string) {
	c.Lock()
	defer c.Unlock()
	c.of[name]++
}

func (c *counter) File(name string, _ []byte, _ error)  { c.count(name) }
func (c *counter) Link(name, _ string, _ error)         { c.count(name) }
func (c *counter) Dir(name string, _ []string, _ error) { c.count(name) }
func (c *counter) Mode(string, fs.FileMode)             {}

func TestOnce(t *testing.T) {
	root := hosttest.Lay(t, "-- etc/long --\n"+strings.Repeat("x", 99)+"\n-- etc/short --\nab\n-- etc/empty --\n")
	c := counter{of: map[string]int{}}
	once := root.Recorded(&c).Once()
	read := func(want string, wantErr bool, read func() ([]byte, error)) {
		t.Helper()
		if data, err := read(); string(data) != want || (err != nil) != wantErr {
			t.Errorf("%q, %v, want %q", data, err, want)
		}
	}
	head := func(name string, n int) func() ([]byte, error) {
		return func() ([]byte, error) { return once.ReadHead(name, n) }
	}
	file := func(name string) func() ([]byte, error) {
		return func() ([]byte, error) { return once.ReadFile(name) }
	}
	read("xxxxx", false, head("/etc/long", 5))
	read("xxx", false, head("etc/long", 3))
	read(strings.Repeat("x", 99)+"\n", false, file("etc/long"))
	read("xxxxxxx", false, head("etc/./long", 7))
	hosttest.EqualIn(t, "times read", 2, c.of["etc/long"])
	var readers sync.WaitGroup
	for range 9 {
		readers.Go(func() { read("ab\n", false, head("etc/short", 9)) })
		readers.Go(func() { read("ab\n", false, file("etc/short")) })
		readers.Go(func() { read("", false, file("etc/empty")) })
		readers.Go(func() { read("", true, file("etc/absent")) })
		readers.Go(func() {
			names, err := once.ReadDir("/etc")
			if err != nil || strings.Join(names, " ") != "empty long short" {
				t.Errorf("%q, %v", names, err)
			}
			clear(names) // each reader has its own
		})
	}
	readers.Wait()
	for _, name := range []string{"etc/short", "etc/empty", "etc"} {
		hosttest.EqualIn(t, name+": times read", 1, c.of[name])
	}
	hosttest.NoError(t, os.WriteFile(root.Path("etc/absent"), []byte("now"), 0o644))
	read("", true, file("etc/absent"))
	if data, err := root.ReadFile("etc/absent"); string(data) != "now" || err != nil {
		t.Errorf("the root itself remembers: %q, %v", data, err)
	}
}

func TestOnceTooLarge(t *testing.T) {
	root := hosttest.Lay(t, "mkdir proc\n")
	hosttest.NoError(t, os.WriteFile(root.Path("proc/large"), make([]byte, 5<<20), 0o644))
	once := root.Once()
	for range 2 {
		if data, err := once.ReadTable("proc/large"); len(data) != 5<<20 || err != nil {
			t.Errorf("%d, %v", len(data), err)
		}
		if data, err := once.ReadHead("proc/large", 4); len(data) != 4 || err != nil {
			t.Errorf("%d, %v", len(data), err)
		}
		if _, err := once.ReadFile("proc/large"); err == nil || !strings.Contains(err.Error(), "larger than") {
			t.Errorf("%v", err)
		}
	}
}

var _ host.Recorder = (*counter)(nil)
