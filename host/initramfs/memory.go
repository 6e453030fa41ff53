package initramfs

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/edit"
)

// The file in which images are remembered: data that can be computed again (Filesystem Hierarchy
// Standard 3.0, 5.5).
const (
	memoryDir  = "/var/cache/gpustack"
	memoryFile = "initramfs.json"
)

// memoryFormat is the version of the file and of what it holds of an image. Whatever changes the
// result of essence must change it.
const memoryFormat = 1

// Memory keeps what images contain, because unpacking one takes seconds. It holds contents and no
// verdicts: what is expected of an image may change while the image stays the same.
//
// An image is identified by its size, inode, mtime and ctime, which no program can set back. Where
// that may not be so, it is identified by its hash: on file systems that keep no ctime, such as FAT
// of an EFI system partition, and for two seconds after a change, within which a second change may
// get the same time. A nil Memory keeps nothing. Several goroutines may use a Memory at once.
type Memory struct {
	root    host.Root
	program string
	now     func() time.Time
	stable  func(unix.Statfs_t) bool // hasCTime
	once    sync.Once
	known   map[string]remembered // of earlier runs, by path on the machine
	mutex   sync.Mutex
	read    map[string]remembered // of this run
}

// remembered is what the file holds of an image.
type remembered struct {
	Stamp *stamp            `json:"stamp"` // nil where it does not prove that the image is unchanged
	Hash  string            `json:"hash"`
	Names string            `json:"names"` // of the essence, with newlines between them
	Files map[string][]byte `json:"files"`
}

// stamp are the attributes of a file that change with its content.
type stamp struct {
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
	Size   int64  `json:"size"`
	MTime  int64  `json:"mtime"` // in nanoseconds
	CTime  int64  `json:"ctime"`
}

// memoryDocument is the file.
type memoryDocument struct {
	Format  int                   `json:"format"`
	Program string                `json:"program"`
	Images  map[string]remembered `json:"images"`
}

// NewMemory returns the memory of images below root. It reads the file before the first image. What
// another version of the program has written, a folder that another user can write to, or a
// malformed file counts as nothing. So does a file that the user may not read.
func NewMemory(root host.Root, program string) *Memory {
	return &Memory{root: root, program: program, now: time.Now, stable: hasCTime, read: map[string]remembered{}}
}

// load reads the file.
func (m *Memory) load() {
	data, err := m.cache().Read(memoryFile)
	var d memoryDocument
	if err == nil && json.Unmarshal(data, &d) == nil && d.Format == memoryFormat && d.Program == m.program {
		m.known = d.Images
		maps.DeleteFunc(m.known, func(_ string, r remembered) bool { return !r.isWhole() })
	}
}

func (m *Memory) cache() edit.Cache {
	return edit.Cache{Root: m.root, Dir: memoryDir}
}

// Save writes the contents of the images that were read, for later runs, and drops those of others.
// It writes nothing if the file has the same contents already, nor on a read-only file system or if
// the user may not write there, which is no error.
//
// Errors: edit.ErrUnsafe, if another user can write to the folder.
func (m *Memory) Save() error {
	if m == nil {
		return nil
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if len(m.read) == 0 || maps.EqualFunc(m.known, m.read, remembered.equal) {
		return nil
	}
	data, err := json.Marshal(memoryDocument{memoryFormat, m.program, m.read})
	if err == nil {
		err = m.cache().Write(memoryFile, append(data, '\n'))
	}
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) {
		return nil
	}
	return err
}

// equal compares two records of an image. The hash stands for its content.
func (r remembered) equal(other remembered) bool {
	same := r.Stamp == nil && other.Stamp == nil || r.Stamp != nil && other.Stamp != nil && *r.Stamp == *other.Stamp
	return same && r.Hash == other.Hash
}

// Read returns the essence of an image: what Verify needs of it. Only an image that is not
// remembered is unpacked.
func (m *Memory) Read(root host.Root, name string) (Content, error) {
	if m == nil {
		return ReadEssence(root, name)
	}
	m.once.Do(m.load)
	known, ok := m.known[name]
	if ok && known.Stamp != nil && *known.Stamp == lookAt(root, name) {
		m.keep(name, known)
		return known.content(name), nil
	}
	f, err := root.Open(name)
	if err != nil {
		return Content{}, err
	}
	defer f.Close() //nolint:errcheck // only read from
	before, settled := m.stampOf(f)
	hash, err := edit.HashOf(f)
	if err != nil {
		return Content{}, host.OfFile(name, err)
	}
	if ok && known.Hash == hash {
		known.Stamp = nil
		if after, _ := m.stampOf(f); settled && after == before {
			known.Stamp = &before
		}
		m.keep(name, known)
		return known.content(name), nil
	}
	content, err := ReadEssence(root, name)
	if err != nil {
		return content, err
	}
	r := remembered{Hash: hash, Names: strings.Join(content.Names, "\n"), Files: content.Files}
	// The image must be the same throughout: the file was read twice, and may have been replaced.
	if after := lookAt(root, name); settled && after == before {
		r.Stamp = &before
	} else if again, err := rehash(root, name); err != nil || again != hash {
		return content, nil
	}
	if slices.Equal(r.names(), content.Names) { // none has a newline
		m.keep(name, r)
	}
	return content, nil
}

func (m *Memory) keep(name string, r remembered) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.read[name] = r
}

// isWhole reports whether a record that was read is complete. The names are searched, so they must
// be sorted.
func (r remembered) isWhole() bool {
	return r.Hash != "" && slices.IsSorted(r.names())
}

func (r remembered) names() []string {
	if r.Names == "" {
		return nil
	}
	return strings.Split(r.Names, "\n")
}

func (r remembered) content(name string) Content {
	return Content{Image: name, Names: r.names(), Files: r.Files}
}

// ReadEssence unpacks an image and returns what Verify needs of it, with the names of all modules.
// A snapshot of the machine holds that.
func ReadEssence(root host.Root, name string) (Content, error) {
	content, err := Read(root, name, Wanted)
	content.Names = essence(content.Names)
	if root.IsRecorded() {
		record(root, name, content, err)
	}
	return content, err
}

// essence returns those names of an image that Verify looks for. Modules are without their
// directory and suffix, by which nothing distinguishes them.
func essence(names []string) []string {
	var all []string
	for _, name := range names {
		switch release, module, ok := moduleIn(name); {
		case ok:
			all = append(all, path.Join("lib/modules", release, module+".ko"))
		case Wanted(name), name == "init", strings.HasSuffix(name, systemdName), strings.HasSuffix(name, preUdevName):
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// racy is the time after a change within which another change may get the same time: file systems
// store whole seconds at worst, where they have a ctime.
const racy = 2 * time.Second

// stampOf returns the stamp of an open image, and whether a later change would change it.
func (m *Memory) stampOf(f *os.File) (stamp, bool) {
	var stat unix.Stat_t
	var system unix.Statfs_t
	if unix.Fstat(int(f.Fd()), &stat) != nil || unix.Fstatfs(int(f.Fd()), &system) != nil {
		return stamp{}, false
	}
	s := newStamp(stat)
	return s, m.stable(system) && time.Unix(0, s.CTime).Add(racy).Before(m.now())
}

// lookAt returns the stamp of an image, which it does not open, or the zero stamp.
func lookAt(root host.Root, name string) stamp {
	var stat unix.Stat_t
	place, err := root.Resolve(name)
	if err != nil || unix.Stat(place, &stat) != nil {
		return stamp{}
	}
	return newStamp(stat)
}

func newStamp(stat unix.Stat_t) stamp {
	return stamp{stat.Dev, stat.Ino, stat.Size, stat.Mtim.Nano(), stat.Ctim.Nano()}
}

// hasCTime reports whether a file system is one of those that set ctime at each change and store
// it and the number of the inode (statfs(2); linux/magic.h). FAT has neither: Linux shows the mtime
// as ctime (fs/fat/misc.c, fat_truncate_time). Servers of network file systems have other clocks.
func hasCTime(system unix.Statfs_t) bool {
	switch system.Type {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, unix.TMPFS_MAGIC:
		return true
	}
	return false
}

// rehash opens an image and returns its hash.
func rehash(root host.Root, name string) (string, error) {
	f, err := root.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // only read from
	return edit.HashOf(f)
}
