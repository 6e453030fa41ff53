package edit

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"gpustack/host"
)

// File is a regular file: its content, and the metadata that is kept when its content is replaced.
type File struct {
	Content []byte
	Meta
}

// Meta is the metadata of a file.
type Meta struct {
	Mode   uint32  `json:"mode"` // permissions and set-id bits, as in chmod(2)
	UID    int     `json:"uid"`
	GID    int     `json:"gid"`
	Xattrs []Xattr `json:"xattrs"` // by name; nil for those that a new file gets by default
}

// Xattr is an extended attribute, such as an SELinux label or an access control list.
type Xattr struct {
	Name  string `json:"name"`
	Value []byte `json:"value"`
}

// Equal reports whether content, permissions and owner are the same. Attributes are not compared:
// a new file gets a default label, and no plan changes attributes. Nil stands for no file.
func (f *File) Equal(g *File) bool {
	if f == nil || g == nil {
		return f == g
	}
	return bytes.Equal(f.Content, g.Content) && f.Mode == g.Mode && f.UID == g.UID && f.GID == g.GID
}

// Attributes in which the kernel stores digests and signatures (Linux, security/integrity):
// security.ima covers the content of a file, security.evm its other attributes and, unless it is a
// portable signature, its inode.
const (
	attributeIMA = "security.ima"
	attributeEVM = "security.evm"
)

// With returns the file with another content. It drops security.ima and security.evm, which are
// valid only for the old content; the kernel computes new ones.
func (f *File) With(content []byte) *File {
	g := &File{content, f.Meta}
	if f.Xattrs != nil && !bytes.Equal(f.Content, content) {
		g.Xattrs = slices.DeleteFunc(slices.Clone(f.Xattrs), func(x Xattr) bool { return x.Name == attributeIMA || x.Name == attributeEVM })
	}
	return g
}

// isPortable reports whether an attribute can be written to another inode. The kernel rejects
// security.evm unless it is a portable signature (Linux, security/integrity/evm/evm_main.c,
// evm_protect_xattr; security/integrity/integrity.h, EVM_XATTR_PORTABLE_DIGSIG).
func (x Xattr) isPortable() bool {
	const portable = 5
	return x.Name != attributeEVM || len(x.Value) > 0 && x.Value[0] == portable
}

// Hash returns the hash of the content, or "" for no file.
func (f *File) Hash() string {
	if f == nil {
		return ""
	}
	return host.Hash(f.Content)
}

// HashOf returns the hash of all that r has, which may be long, as host.Hash does.
func HashOf(r io.Reader) (string, error) {
	hash := sha256.New()
	if _, err := io.Copy(hash, r); err != nil {
		return "", err
	}
	return fmt.Sprintf("sha256:%x", hash.Sum(nil)), nil
}

// maxSize is the largest file that is changed, in bytes: configuration files are small.
const maxSize = 4 << 20

// Errors about files that cannot be changed safely.
var (
	errNotRegular = errors.New("not a regular file")
	errHardLinked = host.WithHint(errors.New("has several hard links, of which one alone would change"),
		"make it a file of its own: cp -p FILE FILE.new && mv FILE.new FILE")
	errDangling = host.WithHint(errors.New("a link to a file that does not exist"), "mount what it leads to, or remove the link")
)

// Read returns the file at name, or nil if it does not exist. It is an error if something other
// than a regular file is there.
func Read(root host.Root, name string) (*File, error) {
	place, err := root.Resolve(name)
	if err == nil {
		var f *File
		if f, err = read(place); err == nil {
			if f != nil {
				root.RecordMode(name, f.Content, fs.FileMode(f.Mode).Perm(), nil)
			}
			return f, nil
		}
	}
	root.RecordMode(name, nil, 0, err)
	return nil, host.OfFile(name, err)
}

// refuseLink returns an error if name, which leads to no file, is a link. The target of a mask,
// /dev/null, does not exist below the root of a mounted disk, and would be made there.
func refuseLink(root host.Root, name string) error {
	dir, err := root.Resolve(path.Dir(name))
	if err != nil {
		return err
	}
	var stat unix.Stat_t
	if err := unix.Lstat(filepath.Join(dir, path.Base(name)), &stat); err == nil && stat.Mode&unix.S_IFMT == unix.S_IFLNK {
		return host.OfFile(name, errDangling)
	}
	return nil
}

func read(place string) (*File, error) {
	var stat unix.Stat_t
	switch err := unix.Lstat(place, &stat); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case stat.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, errNotRegular
	case stat.Nlink > 1:
		return nil, errHardLinked
	}
	in, err := os.Open(place)
	if err != nil {
		return nil, err
	}
	defer in.Close() //nolint:errcheck // only read from
	var content bytes.Buffer
	content.Grow(int(min(stat.Size, maxSize)) + bytes.MinRead)
	if _, err := content.ReadFrom(io.LimitReader(in, maxSize+1)); err != nil {
		return nil, err
	}
	if content.Len() > maxSize {
		return nil, fmt.Errorf("larger than %d bytes", maxSize)
	}
	xattrs, err := readXattrs(int(in.Fd()))
	if err != nil {
		return nil, fmt.Errorf("extended attributes: %w", err)
	}
	return &File{content.Bytes(), Meta{stat.Mode &^ unix.S_IFMT, int(stat.Uid), int(stat.Gid), xattrs}}, nil
}

// readXattrs returns the attributes of a file, none if the file system does not support them.
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
