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

// Parameter is a parameter of a module as the module itself describes it.
type Parameter struct {
	Name string
	Type string // as the kernel names it: "int", "array of byte", "string"; "" if the module gives none
	Text string // of MODULE_PARM_DESC
}

// maxModule is the largest size of a module that is read. Modules with debugging information are
// larger than others, but below it.
const maxModule = 256 << 20

// ErrModule is the error of a module whose file cannot be read.
var ErrModule = host.WithHint(errors.New("not a kernel module"), "reinstall the package of that kernel, and run depmod")

// ReadParameters returns the parameters of a module of the kernel of that release, as modinfo -p
// prints them. known is false if the kernel has no such module.
//
// A module describes them in the section .modinfo of its file (Linux,
// include/linux/moduleparam.h), one that is built in, in modules.builtin.modinfo (Linux,
// Documentation/kbuild/kbuild.rst), which kernels before 5.2 do not have.
func ReadParameters(root host.Root, release, module string) (parameters []Parameter, known bool, err error) {
	files, err := Files(root, release, func(name string) bool { return name == Normal(module) })
	if err != nil {
		return nil, false, err
	}
	if len(files) > 0 {
		info, err := readModinfo(root, files[0])
		if err != nil {
			return nil, false, host.OfFile(files[0], err)
		}
		return parseParameters(info, ""), true, nil
	}
	info, err := readList(root, release, "modules.builtin.modinfo", whole)
	if err != nil {
		return nil, false, err
	}
	prefix := Normal(module) + "."
	return parseParameters(info, prefix), bytes.Contains(append([]byte{0}, info...), []byte("\x00"+prefix)), nil
}

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

// parseParameters parses the entries parm=NAME:TEXT and parmtype=NAME:TYPE, which end with a zero.
func parseParameters(info []byte, prefix string) (parameters []Parameter) {
	at := map[string]int{}
	for entry := range strings.SplitSeq(string(info), "\x00") {
		entry, ok := strings.CutPrefix(entry, prefix)
		if !ok {
			continue
		}
		key, value, _ := strings.Cut(entry, "=")
		name, text, _ := strings.Cut(value, ":")
		if key != "parm" && key != "parmtype" {
			continue
		}
		i, ok := at[name]
		if !ok {
			i = len(parameters)
			at[name], parameters = i, append(parameters, Parameter{Name: name})
		}
		if key == "parm" {
			parameters[i].Text = text
		} else {
			parameters[i].Type = text
		}
	}
	return parameters
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
