package modprobe

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"gpustack/host"
)

// maxModule is the largest size of a module that is read. Modules with debugging information are
// larger than others, but below it.
const maxModule = 256 << 20

// ErrModule is the error of a module whose file cannot be read.
var ErrModule = host.WithHint(errors.New("not a kernel module"), "reinstall the package of that kernel, and run depmod")

// Info is the fields of a module's section .modinfo, as modinfo prints them: "version=550.163.01".
type Info []string

// Value returns the first value of a key, such as "version", or "".
func (i Info) Value(key string) string {
	for _, field := range i {
		if k, value, ok := strings.Cut(field, "="); ok && k == key {
			return value
		}
	}
	return ""
}

// ReadInfo reads the section .modinfo of a module's file. A snapshot contains it as lines of text.
//
// A compressed module is unpacked as a whole: callers should choose a small one.
func ReadInfo(root host.Root, file string) (Info, error) {
	if f, err := root.Open(file); err == nil {
		defer f.Close() //nolint:errcheck // only read from
		head := make([]byte, len(snapshotFields))
		if _, err := io.ReadFull(f, head); err == nil && string(head) == snapshotFields {
			text, err := root.ReadFile(file)
			return strings.Split(string(text), "\n")[1:], err
		}
	}
	text, err := readModinfo(root, file)
	if err != nil {
		if errors.Is(err, ErrModule) {
			root.Record(file, nil) // no module either
		}
		return nil, err
	}
	fields := strings.FieldsFunc(string(text), func(c rune) bool { return c == 0 })
	var kept strings.Builder
	for _, field := range fields {
		if key, _, _ := strings.Cut(field, "="); !strings.HasPrefix(key, "parm") && key != "alias" && !strings.Contains(field, "\n") {
			kept.WriteString("\n" + field)
		}
	}
	root.Record(file, []byte(snapshotFields+kept.String()+"\n"))
	return fields, nil
}

// snapshotFields begins the content of a module in a snapshot.
const snapshotFields = ".modinfo"

// Files returns the files of the modules of the kernel of that release whose names are wanted, with
// "_" for "-". Modules that are built in have none.
func Files(root host.Root, release string, wanted func(name string) bool) (files []string, err error) {
	dep, err := readList(root, release, "modules.dep", namesOnly)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(dep)) {
		file, _, ok := strings.Cut(line, ":")
		if !ok || !wanted(Name(file)) {
			continue
		}
		if !path.IsAbs(file) {
			file = path.Join(host.ModulesDir, release, file)
		}
		files = append(files, file)
	}
	return files, nil
}

// readModinfo returns the section .modinfo of a module's file.
func readModinfo(root host.Root, file string) ([]byte, error) {
	f, err := root.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read from
	var module *elf.File
	if path.Ext(file) == ".ko" {
		module, err = elf.NewFile(f)
	} else {
		var text []byte
		if text, err = decompressed(f, path.Ext(file)); err == nil {
			module, err = elf.NewFile(bytes.NewReader(text))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrModule, err)
	}
	section := module.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("%w: it has no section .modinfo", ErrModule)
	}
	return section.Data()
}

// decompressed returns the content of a module whose name has that suffix (modules_install in
// Linux, scripts/Makefile.modinst).
func decompressed(f io.Reader, suffix string) ([]byte, error) {
	var err error
	switch suffix {
	case ".gz":
		f, err = gzip.NewReader(f)
	case ".xz":
		f, err = xz.NewReader(f)
	case ".zst":
		var d *zstd.Decoder
		if d, err = zstd.NewReader(f, zstd.WithDecoderConcurrency(1)); err == nil {
			defer d.Close()
			f = d
		}
	}
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxModule+1))
	if err == nil && len(text) > maxModule {
		err = fmt.Errorf("larger than %d MiB", maxModule>>20)
	}
	return text, err
}
