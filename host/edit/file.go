package edit

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"gpustack/host"
)

// File is a regular file as it stands: what it holds, and what is kept when its
// content is replaced.
type File struct {
	Content []byte
	Meta
}

// Meta is what a file has beside its content.
type Meta struct {
	Mode   uint32  `json:"mode"` // permissions and set-id bits, as chmod(2) takes them
	UID    int     `json:"uid"`
	GID    int     `json:"gid"`
	Xattrs []Xattr `json:"xattrs"` // by name; nil: those that a new file gets by itself
}

// Xattr is an extended attribute: an SELinux label, an access control list.
type Xattr struct {
	Name  string `json:"name"`
	Value []byte `json:"value"`
}

// Equal tells whether content, permissions and owner are the same. Attributes do
// not count: a new file gets a label by itself, and no plan changes one. Nil
// stands for no file.
func (f *File) Equal(g *File) bool {
	if f == nil || g == nil {
		return f == g
	}
	return bytes.Equal(f.Content, g.Content) && f.Mode == g.Mode && f.UID == g.UID && f.GID == g.GID
}

// Attributes in which the kernel keeps digests and signatures (Linux, security/integrity):
// security.ima is over the content of a file, security.evm over its other attributes and, unless
// it is a portable signature, over its inode.
const (
	attributeIMA = "security.ima"
	attributeEVM = "security.evm"
)

// With returns the file with another content. Attributes that hold for the old content only,
// security.ima and security.evm, do not go over to it: the kernel computes its own.
func (f *File) With(content []byte) *File {
	g := &File{content, f.Meta}
	if f.Xattrs != nil && !bytes.Equal(f.Content, content) {
		g.Xattrs = slices.DeleteFunc(slices.Clone(f.Xattrs), func(x Xattr) bool { return x.Name == attributeIMA || x.Name == attributeEVM })
	}
	return g
}

// isPortable returns whether an attribute can be written to another inode. The kernel refuses
// security.evm unless it is a portable signature (Linux, security/integrity/evm/evm_main.c,
// evm_protect_xattr; security/integrity/integrity.h, EVM_XATTR_PORTABLE_DIGSIG).
func (x Xattr) isPortable() bool {
	const portable = 5
	return x.Name != attributeEVM || len(x.Value) > 0 && x.Value[0] == portable
}

// Hash identifies the content; no file has "".
func (f *File) Hash() string {
	if f == nil {
		return ""
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(f.Content))
}

// maxSize bounds the files that are changed: configuration is small.
const maxSize = 4 << 20

// Errors about files that cannot be changed safely.
var (
	ErrNotRegular = errors.New("not a regular file")
	ErrHardLinked = host.WithHint(errors.New("has several hard links, of which one alone would change"), "make it a file of its own: cp -p FILE FILE.new && mv FILE.new FILE")
)

// Read returns the file at name, or nil where there is none. It is an error if
// something else is there, or a link that leads nowhere.
func Read(root host.Root, name string) (*File, error) {
	place, err := root.Resolve(name)
	if err == nil {
		var f *File
		if f, err = read(place); err == nil {
			return f, nil
		}
	}
	return nil, fmt.Errorf("%s: %w", name, host.Cause(err))
}

func read(place string) (*File, error) {
	var stat unix.Stat_t
	switch err := unix.Lstat(place, &stat); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case stat.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, ErrNotRegular
	case stat.Nlink > 1:
		return nil, ErrHardLinked
	}
	in, err := os.Open(place)
	if err != nil {
		return nil, err
	}
	defer in.Close() //nolint:errcheck // only read from
	content, err := io.ReadAll(io.LimitReader(in, maxSize+1))
	if err != nil {
		return nil, err
	}
	if len(content) > maxSize {
		return nil, fmt.Errorf("larger than %d bytes", maxSize)
	}
	xattrs, err := readXattrs(int(in.Fd()))
	if err != nil {
		return nil, fmt.Errorf("extended attributes: %w", err)
	}
	return &File{content, Meta{stat.Mode &^ unix.S_IFMT, int(stat.Uid), int(stat.Gid), xattrs}}, nil
}

// readXattrs returns none where the file system has none to give.
func readXattrs(fd int) ([]Xattr, error) {
	buf := make([]byte, 1<<16) // XATTR_LIST_MAX, and XATTR_SIZE_MAX (linux/limits.h)
	n, err := unix.Flistxattr(fd, buf)
	if errors.Is(err, unix.ENOTSUP) {
		return []Xattr{}, nil
	}
	if err != nil {
		return nil, err
	}
	xattrs := []Xattr{}
	for name := range bytes.SplitSeq(bytes.TrimSuffix(buf[:n], []byte{0}), []byte{0}) {
		if len(name) == 0 {
			continue
		}
		value := make([]byte, 1<<16)
		n, err := unix.Fgetxattr(fd, string(name), value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		xattrs = append(xattrs, Xattr{string(name), value[:n]})
	}
	slices.SortFunc(xattrs, func(a, b Xattr) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
	return xattrs, nil
}
