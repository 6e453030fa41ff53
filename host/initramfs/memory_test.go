package initramfs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/edit"
	"gpustack/host/hosttest"
)

const imageName = "/boot/initrd.img-6.1"

// scriptImage returns an image whose script has that text. Images of texts of the same length have
// the same length.
func scriptImage(script string) string {
	return early + cpioOf(
		member{name: "bin/sh", text: "x"},
		member{name: "etc/modprobe.d/zz-gpustack.conf", text: "options\n"},
		member{name: scriptName, text: script},
		member{name: "usr/lib/modules/6.1/kernel/drivers/vfio/pci/vfio-pci.ko.xz", text: "x"},
		end)
}

// memoryTest is a machine with one image, on a file system that stores ctimes.
type memoryTest struct {
	*testing.T
	root    host.Root
	later   time.Duration // how much later than it is the next run seems to be
	unsure  bool          // the file system stores no ctimes
	program string
}

func newMemoryTest(t *testing.T) *memoryTest {
	t.Helper()
	root := hosttest.Root(t, t.TempDir())
	m := &memoryTest{T: t, root: root, later: time.Hour, program: "1.0"}
	m.write(imageName, scriptImage("first"))
	return m
}

func (m *memoryTest) write(name, text string) {
	m.Helper()
	place := m.root.Path(name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(place), 0o755), os.WriteFile(place, []byte(text), 0o600)); err != nil {
		m.Fatal(err)
	}
}

func (m *memoryTest) file() string { return m.root.Path(memoryDir + "/" + memoryFile) }

func (m *memoryTest) memory() *Memory {
	memory := NewMemory(m.root, m.program)
	memory.now = func() time.Time { return time.Now().Add(m.later) }
	memory.stable = func(unix.Statfs_t) bool { return !m.unsure }
	return memory
}

// run is one run of the program, which must see that script. It returns how often the image was
// opened.
func (m *memoryTest) run(script string) (opens int) {
	m.Helper()
	memory := m.memory()
	opens = m.opens(func() {
		c, err := memory.Read(m.root, imageName)
		if err != nil {
			m.Fatal(err)
		}
		want := Content{
			Image: imageName,
			Names: []string{"etc/modprobe.d/zz-gpustack.conf", "lib/modules/6.1/vfio_pci.ko", scriptName},
			Files: map[string][]byte{"etc/modprobe.d/zz-gpustack.conf": []byte("options\n"), scriptName: []byte(script)},
		}
		if diff := cmp.Diff(want, c); diff != "" {
			m.Errorf("(-want +got):\n%s", diff)
		}
	})
	if err := memory.Save(); err != nil {
		m.Fatal(err)
	}
	return opens
}

// opens returns how often a function opens the image (inotify(7)).
func (m *memoryTest) opens(do func()) (n int) {
	m.Helper()
	watch, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		m.Fatal(err)
	}
	defer unix.Close(watch)
	if _, err := unix.InotifyAddWatch(watch, m.root.Path(imageName), unix.IN_OPEN); err != nil {
		m.Fatal(err)
	}
	do()
	buf := make([]byte, 1<<16) // events without a name; equal ones in a row are one
	size, err := unix.Read(watch, buf)
	if errors.Is(err, unix.EAGAIN) {
		return 0
	}
	if err != nil {
		m.Fatal(err)
	}
	return size / unix.SizeofInotifyEvent
}

// replace writes another image with the same mtime in place of the image or into it.
func (m *memoryTest) replace(script string, inPlace bool) {
	m.Helper()
	place := m.root.Path(imageName)
	before, err := os.Stat(place)
	if err != nil {
		m.Fatal(err)
	}
	// The kernel's clock for timestamps moves in ticks of up to 10 ms.
	time.Sleep(25 * time.Millisecond)
	text := scriptImage(script)
	if inPlace {
		err = os.WriteFile(place, []byte(text), 0o600)
	} else {
		m.write(imageName+".new", text)
		err = os.Rename(place+".new", place)
	}
	if err = errors.Join(err, os.Chtimes(place, before.ModTime(), before.ModTime())); err != nil {
		m.Fatal(err)
	}
	if after, err := os.Stat(place); err != nil || after.Size() != before.Size() || !after.ModTime().Equal(before.ModTime()) {
		m.Fatalf("not the same size and mtime: %v, %v", after, err)
	}
}

// TestRemembered: an unchanged image is opened by the first run only.
func TestRemembered(t *testing.T) {
	m := newMemoryTest(t)
	if n := m.run("first"); n == 0 {
		t.Error("the image was not opened")
	}
	before, err := os.Stat(m.file())
	hosttest.NoError(t, err)
	for range 2 {
		hosttest.EqualIn(t, "times that the image was opened", 0, m.run("first"))
	}
	if after, err := os.Stat(m.file()); err != nil || !os.SameFile(before, after) {
		t.Errorf("the file was written again, %v", err)
	}
	if mode := before.Mode().Perm(); mode != 0o600 {
		t.Errorf("mode %o", mode)
	}
}

// TestYoungImage: an image that was changed a moment before is opened until its times prove that it
// is unchanged since.
func TestYoungImage(t *testing.T) {
	m := newMemoryTest(t)
	m.later = 0
	for run, want := range []bool{true, true, true, false} {
		if run == 2 {
			m.later = time.Hour
		}
		if n := m.run("first"); n > 0 != want {
			t.Errorf("run %d: opened %d times", run, n)
		}
	}
}

// TestReplacedImage: no image is taken for an earlier one of the same size and mtime.
func TestReplacedImage(t *testing.T) {
	for name, c := range map[string]struct {
		later   time.Duration
		unsure  bool
		inPlace bool
	}{
		"replaced":                            {later: time.Hour},
		"written to":                          {later: time.Hour, inPlace: true},
		"changed a moment before the run":     {later: 0},
		"written to a moment before the run":  {later: 0, inPlace: true},
		"on FAT":                              {later: time.Hour, unsure: true},
		"written to on FAT":                   {later: time.Hour, unsure: true, inPlace: true},
		"the clock was an hour ahead in fact": {later: -time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMemoryTest(t)
			m.later, m.unsure = c.later, c.unsure
			m.run("first")
			m.replace("other", c.inPlace)
			m.run("other")
			m.later = time.Hour
			m.run("other")
		})
	}
}

// TestSameHash: an image whose times prove nothing is read to compare its hash, and not unpacked.
func TestSameHash(t *testing.T) {
	for name, again := range map[string]func(m *memoryTest){
		"changed a moment before the first run": func(m *memoryTest) { m.later = time.Hour },
		"on FAT":                                func(m *memoryTest) { m.unsure = true },
		"restored from a backup":                func(m *memoryTest) { m.later = time.Hour; m.replace("first", false) },
	} {
		t.Run(name, func(t *testing.T) {
			m := newMemoryTest(t)
			m.later = 0
			m.run("first")
			text := hosttest.Read(t, m.file())
			// Only the memory has this name.
			marked := bytes.Replace([]byte(text), []byte(`lib/modules/6.1/vfio_pci.ko`), []byte(`lib/modules/6.1/vfio_zzz.ko`), 1)
			m.write(memoryDir+"/"+memoryFile, string(marked))
			again(m)
			memory := m.memory()
			c, err := memory.Read(m.root, imageName)
			if err != nil || !c.hasModule("6.1", "vfio-zzz") {
				t.Errorf("%v, %v", c.Names, err)
			}
			hosttest.NoError(t, memory.Save())
			if opens := m.opens(func() { c, err = m.memory().Read(m.root, imageName) }); err != nil || opens > 0 != m.unsure {
				t.Errorf("then opened %d times, %v", opens, err)
			}
		})
	}
}

// TestBadMemory: a memory that another version has written, or that is damaged, counts as nothing, and
// is replaced.
func TestBadMemory(t *testing.T) {
	marked := func(old, new string) func(*memoryTest) {
		return func(m *memoryTest) {
			text, err := os.ReadFile(m.file())
			if err != nil || !strings.Contains(string(text), old) {
				m.Fatalf("no %q: %v", old, err)
			}
			lie := strings.Replace(string(text), `vfio_pci.ko`, `vfio_zzz.ko`, 1)
			m.write(memoryDir+"/"+memoryFile, strings.Replace(lie, old, new, 1))
		}
	}
	lie := marked(`"format"`, `"format"`)
	for name, spoil := range map[string]func(*memoryTest){
		"of another version":      func(m *memoryTest) { lie(m); m.program = "1.1" },
		"of another format":       marked(fmt.Sprintf(`"format":%d`, memoryFormat), `"format":99`),
		"cut off":                 marked("}\n", ""),
		"empty":                   func(m *memoryTest) { m.write(memoryDir+"/"+memoryFile, "") },
		"zeros":                   func(m *memoryTest) { m.write(memoryDir+"/"+memoryFile, strings.Repeat("\x00", 4096)) },
		"without a hash":          marked(`"hash":"sha256`, `"hash":"","was":"sha256`),
		"with names out of order": marked(`"names":"`, `"names":"z\n`),
		"of another image":        marked(imageName, imageName+".old"),
	} {
		t.Run(name, func(t *testing.T) {
			m := newMemoryTest(t)
			m.run("first")
			spoil(m)
			memory := m.memory()
			content, err := memory.Read(m.root, imageName)
			if err != nil || !content.hasModule("6.1", "vfio-pci") || content.hasModule("6.1", "vfio-zzz") {
				t.Errorf("%v, %v", content.Names, err)
			}
			if err := memory.Save(); err != nil {
				t.Error(err)
			}
			hosttest.EqualIn(t, "times that it was opened then", 0, m.run("first"))
		})
	}
}

func chmod(t testing.TB, name string, mode os.FileMode) {
	t.Helper()
	hosttest.NoError(t, os.Chmod(name, mode))
}

// TestUnsafeFolder: a folder that another user can write to is not used, and not repaired.
func TestUnsafeFolder(t *testing.T) {
	m := newMemoryTest(t)
	m.run("first")
	chmod(t, filepath.Dir(m.file()), 0o777)
	memory := m.memory()
	if n := m.opens(func() { memory.Read(m.root, imageName) }); n == 0 {
		t.Error("the image was not opened")
	}
	if err := memory.Save(); !errors.Is(err, edit.ErrUnsafe) {
		t.Error(err)
	}
}

// TestForgotten: images that are gone are forgotten. A run that reads none changes nothing.
func TestForgotten(t *testing.T) {
	m := newMemoryTest(t)
	m.write("/boot/initrd.img-6.0", scriptImage("older"))
	memory := m.memory()
	for _, name := range []string{imageName, "/boot/initrd.img-6.0"} {
		if _, err := memory.Read(m.root, name); err != nil {
			t.Fatal(err)
		}
	}
	hosttest.NoError(t, memory.Save())
	has := func(want bool) {
		t.Helper()
		text, err := os.ReadFile(m.file())
		if err != nil || strings.Contains(string(text), "6.0") != want {
			t.Errorf("%s, %v", text, err)
		}
	}
	has(true)
	hosttest.NoError(t, m.memory().Save())
	has(true)
	m.run("first")
	has(false)
}

// TestUnreadImage: an image that cannot be read is an error in each run, and is not remembered.
func TestUnreadImage(t *testing.T) {
	m := newMemoryTest(t)
	m.run("first")
	m.write(imageName, "no image")
	for range 2 {
		memory := m.memory()
		if _, err := memory.Read(m.root, imageName); !errors.Is(err, errMalformed) {
			t.Errorf("%v", err)
		}
		if _, err := memory.Read(m.root, "/boot/none"); !host.IsAbsent(err) {
			t.Errorf("%v", err)
		}
		if err := memory.Save(); err != nil {
			t.Error(err)
		}
	}
}

// TestParallelRuns: runs at the same time all see the image, and leave a memory that is whole.
func TestParallelRuns(t *testing.T) {
	m := newMemoryTest(t)
	var runs sync.WaitGroup
	for range 16 {
		runs.Go(func() { m.memoryRun() })
	}
	runs.Wait()
	hosttest.EqualIn(t, "times that it was opened then", 0, m.run("first"))
	names, err := os.ReadDir(filepath.Dir(m.file()))
	if err != nil || len(names) != 1 {
		t.Errorf("%v, %v", names, err)
	}
}

func (m *memoryTest) memoryRun() {
	memory := m.memory()
	if c, err := memory.Read(m.root, imageName); err != nil || string(c.Files[scriptName]) != "first" {
		m.Errorf("%+v, %v", c, err)
	}
	if err := memory.Save(); err != nil {
		m.Error(err)
	}
}

// TestEssence pins what is remembered. If it changes, memoryFormat must change: what an earlier
// build has written would be taken for the new essence.
func TestEssence(t *testing.T) {
	got := fmt.Sprint(memoryFormat, essence([]string{
		".", "bin/sh", "init", "usr/bin/init", "etc/modprobe.d/a.conf", "etc/modprobe.d/zzz-gpustack.conf", orderName, scriptName, "scripts/init-top/udev",
		"lib/dracut/hooks/pre-udev/00-gpustack.sh", "lib/dracut/hooks/pre-udev/01-other.sh", "usr/lib/systemd/systemd", "lib/systemd/systemd-udevd",
		"usr/lib/systemd/system/initrd.target.wants/dracut-pre-udev.service", "usr/lib/modules/6.1/modules.dep", "lib/modules",
		"lib/modules/6.1/kernel/a-b.ko", "usr/lib/modules/6.1/updates/a_b.ko.zst", "usr/lib/modules/6.2/c.ko.xz", "usr/lib/modules/6.2/c.kobject",
	}))
	const want = "1 [etc/modprobe.d/zzz-gpustack.conf init lib/dracut/hooks/pre-udev/00-gpustack.sh lib/modules/6.1/a_b.ko lib/modules/6.2/c.ko" +
		" scripts/init-top/ORDER scripts/init-top/gpustack usr/lib/systemd/system/initrd.target.wants/dracut-pre-udev.service usr/lib/systemd/systemd]"
	hosttest.Equal(t, want, got)
}
