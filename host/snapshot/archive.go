package snapshot

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpustack/host"

	"golang.org/x/tools/txtar"
)

// Format is the format of an archive.
type Format int

// The formats: text that people can read and edit, also as part of a test, and an archive that
// every machine can unpack without gpustack.
const (
	Txtar Format = iota
	TarGz
)

// Standard stands for standard input or standard output where a file is named. Its format is that
// of text, or is recognized.
const Standard = "-"

// FormatOf returns the format by the suffix of a file's name.
func FormatOf(file string) (Format, error) {
	switch {
	case strings.HasSuffix(file, ".txtar"):
		return Txtar, nil
	case strings.HasSuffix(file, ".tar.gz"), strings.HasSuffix(file, ".tgz"):
		return TarGz, nil
	}
	return 0, host.WithHint(fmt.Errorf("%s: neither .txtar nor .tar.gz", file), "name the file so that it ends in one of them")
}

// maxArchive is the maximum number of bytes to read of an archive, packed or unpacked.
const maxArchive = 256 << 20

// Write writes the tree to an archive. The same tree always gives the same bytes.
func (t *Tree) Write(w io.Writer, format Format) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name := range t.entries {
		if err := check(name); err != nil {
			return err
		}
	}
	if format == TarGz {
		return t.writeTarGz(w)
	}
	return t.writeTxtar(w)
}

// readAny reads a tree from an archive whose format is recognized by its first bytes.
func readAny(r io.Reader) (*Tree, error) {
	buffered := bufio.NewReader(r)
	head, err := buffered.Peek(2)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if bytes.Equal(head, []byte{0x1f, 0x8b}) { // gzip (RFC 1952, 2.3.1)
		return Read(buffered, TarGz)
	}
	return Read(buffered, Txtar)
}

// Read reads a tree from an archive that Write or a person has written.
func Read(r io.Reader, format Format) (*Tree, error) {
	r = io.LimitReader(r, maxArchive)
	if format == TarGz {
		return readTarGz(r)
	}
	return readTxtar(r)
}

func (t *Tree) writeTarGz(w io.Writer) error {
	z := gzip.NewWriter(w)
	archive := tar.NewWriter(z)
	for _, name := range t.names() {
		e := t.entries[name]
		h := tar.Header{Name: name, Mode: 0o644, ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
		switch e.kind {
		case folder:
			h.Typeflag, h.Mode, h.Name = tar.TypeDir, 0o755, name+"/"
		case file:
			h.Typeflag, h.Size, h.Mode = tar.TypeReg, int64(len(e.data)), int64(e.perm())
		case link:
			h.Typeflag, h.Mode, h.Linkname = tar.TypeSymlink, 0o777, e.data
		case unreadable:
			h.Typeflag, h.Mode = tar.TypeReg, 0
		}
		if err := archive.WriteHeader(&h); err != nil {
			return err
		}
		if e.kind == file {
			if _, err := io.WriteString(archive, e.data); err != nil {
				return err
			}
		}
	}
	return errors.Join(archive.Close(), z.Close())
}

func readTarGz(r io.Reader) (*Tree, error) {
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, err
	}
	t := &Tree{}
	unzipped := io.LimitReader(z, maxArchive)
	archive := tar.NewReader(unzipped)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			_, err := io.Copy(io.Discard, unzipped) // verifies the checksum at the end
			return t, err
		}
		if err != nil {
			return nil, err
		}
		name := path.Clean(h.Name)
		if name == "." {
			continue
		}
		if err := check(name); err != nil {
			return nil, err
		}
		switch h.Typeflag {
		case tar.TypeDir:
			t.put(name, entry{kind: folder})
		case tar.TypeSymlink:
			t.put(name, entry{kind: link, data: h.Linkname})
		case tar.TypeReg:
			data, err := io.ReadAll(archive)
			if err != nil {
				return nil, err
			}
			if h.Mode&0o444 == 0 {
				t.put(name, entry{kind: unreadable})
				continue
			}
			t.put(name, entry{kind: file, data: string(data)})
			t.Mode(name, fs.FileMode(h.Mode).Perm())
		default:
			return nil, fmt.Errorf("%s: not a file, directory or symbolic link", name)
		}
	}
}

// In a txtar archive, the comment before the first file has a line for each entry that is not a
// plain text file. Except base64, the lines are commands of testscript, so that the archive is also
// a test script.
const (
	cmdFolder     = "mkdir "     // mkdir NAME
	cmdLink       = "symlink "   // symlink NAME -> TARGET
	arrow         = " -> "       //
	cmdMode       = "chmod "     // chmod 600 NAME: the permissions of that file
	cmdUnreadable = "chmod 000 " // chmod 000 NAME
	cmdBase64     = "base64 "    // base64 NAME: the content of that file is base64
)

func (t *Tree) writeTxtar(w io.Writer) error {
	var comment strings.Builder
	var archive txtar.Archive
	implied := map[string]bool{} // directories that contain an entry
	for name := range t.entries {
		for dir := path.Dir(name); dir != "." && !implied[dir]; dir = path.Dir(dir) {
			implied[dir] = true
		}
	}
	for _, name := range t.names() {
		e := t.entries[name]
		switch e.kind {
		case folder:
			if !implied[name] {
				fmt.Fprintf(&comment, "%s%s\n", cmdFolder, name)
			}
		case link:
			if strings.ContainsAny(e.data, "\n\r") || strings.Contains(name, arrow) {
				return fmt.Errorf("%s: a symbolic link that a txtar archive cannot contain", name)
			}
			fmt.Fprintf(&comment, "%s%s%s%s\n", cmdLink, name, arrow, e.data)
		case unreadable:
			fmt.Fprintf(&comment, "%s%s\n", cmdUnreadable, name)
		case file:
			data := []byte(e.data)
			if !plain(name, data) {
				fmt.Fprintf(&comment, "%s%s\n", cmdBase64, name)
				data = encode64(data)
			}
			if e.perm() != usual {
				fmt.Fprintf(&comment, "%s%03o %s\n", cmdMode, e.perm(), name)
			}
			archive.Files = append(archive.Files, txtar.File{Name: name, Data: data})
		}
	}
	archive.Comment = []byte(comment.String())
	_, err := w.Write(txtar.Format(&archive))
	return err
}

// plain reports whether a txtar archive can contain a file without encoding.
func plain(name string, data []byte) bool {
	back := txtar.Parse(txtar.Format(&txtar.Archive{Files: []txtar.File{{Name: name, Data: data}}}))
	return len(back.Files) == 1 && back.Files[0].Name == name && bytes.Equal(back.Files[0].Data, data) &&
		!bytes.ContainsFunc(data, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r == '\ufffd' })
}

func encode64(data []byte) []byte {
	var lines []byte
	for line := range slices.Chunk([]byte(base64.StdEncoding.EncodeToString(data)), 76) {
		lines = append(append(lines, line...), '\n')
	}
	return lines
}

func readTxtar(r io.Reader) (*Tree, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	archive := txtar.Parse(data)
	t := &Tree{}
	encoded := map[string]bool{}
	modes := map[string]fs.FileMode{}
	number := 0
	for line := range strings.Lines(string(archive.Comment)) {
		number++
		if err := t.command(strings.TrimSpace(line), encoded, modes); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
	}
	for _, f := range archive.Files {
		if err := check(f.Name); err != nil {
			return nil, err
		}
		if encoded[f.Name] {
			if f.Data, err = base64.StdEncoding.DecodeString(strings.ReplaceAll(string(f.Data), "\n", "")); err != nil {
				return nil, fmt.Errorf("%s: %w", f.Name, err)
			}
		}
		t.File(f.Name, f.Data, nil)
		t.Mode(f.Name, modes[f.Name])
	}
	if len(t.entries) == 0 {
		return nil, errors.New("not a txtar archive: contains no files")
	}
	return t, nil
}

// command parses a line of the comment: a command, a remark after #, or an empty line.
func (t *Tree) command(line string, encoded map[string]bool, modes map[string]fs.FileMode) error {
	name, target := "", ""
	e := entry{}
	switch {
	case line == "" || strings.HasPrefix(line, "#"):
		return nil
	case strings.HasPrefix(line, cmdFolder):
		name = line[len(cmdFolder):]
	case strings.HasPrefix(line, cmdUnreadable):
		name, e.kind = line[len(cmdUnreadable):], unreadable
	case strings.HasPrefix(line, cmdMode):
		var digits string
		digits, name, _ = strings.Cut(line[len(cmdMode):], " ")
		mode, err := strconv.ParseUint(digits, 8, 9)
		if err != nil {
			return fmt.Errorf("permissions must be three octal digits: %q", line)
		}
		modes[name] = fs.FileMode(mode)
		return check(name)
	case strings.HasPrefix(line, cmdBase64):
		name = line[len(cmdBase64):]
		encoded[name] = true
		return check(name)
	case strings.HasPrefix(line, cmdLink):
		var ok bool
		if name, target, ok = strings.Cut(line[len(cmdLink):], arrow); !ok || target == "" {
			return fmt.Errorf("symbolic link without target: %q", line)
		}
		if strings.Contains(target, "\r") {
			return fmt.Errorf("symbolic link whose target has a carriage return: %q", line)
		}
		e = entry{kind: link, data: target}
	default:
		return fmt.Errorf("must be mkdir, symlink, chmod, base64 or a remark with #: %q", line)
	}
	if err := check(name); err != nil {
		return err
	}
	t.put(name, e)
	return nil
}
