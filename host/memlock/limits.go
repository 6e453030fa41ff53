// Package memlock reads which limits of locked memory are configured for services and users: by
// units of systemd and their drop-ins, docker's daemon.json, and limits.conf(5). [Read] returns
// them with where each is set.
//
// It reads files below a root. It asks no running process for its limits, and judges none.
package memlock

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
	"gpustack/host/docker"
)

// Limits are the limits of locked memory that are configured below a root.
type Limits struct {
	Units   []UnitLimit // of the daemons that are installed
	Domains []UserLimit // of limits.conf(5), by domain
	Errs    []error     // each names its file
}

// Setting is a limit in bytes with where it is set; Unlimited stands for no limit.
type Setting struct {
	Bytes uint64 // the soft limit
	File  string
	Line  int
}

// Unlimited is the value of a limit that is none.
const Unlimited = math.MaxUint64

// UnitLimit is the limit of a service.
type UnitLimit struct {
	Unit  string // "docker.service"
	File  string // of the unit
	Limit *Setting
}

// DropIn returns gpustack's drop-in of a service whose containers may lock any amount of memory, by
// which RDMA programs register their buffers. It sorts after override.conf, which "systemctl edit"
// writes: of several files the last one counts (systemd.unit(5)).
func DropIn(unit string) string {
	return path.Join("/etc/systemd/system", unit+".d", "zz-gpustack-memlock.conf")
}

// Overrides reports whether the limit of a service holds in spite of gpustack's drop-in: that of
// docker's configuration, or a drop-in that is read later.
func (u UnitLimit) Overrides() bool {
	if u.Limit == nil {
		return false
	}
	dir, name := path.Split(u.Limit.File)
	ofUnit := slices.Contains([]string{u.Unit + ".d", "service.d"}, path.Base(dir))
	return u.Limit.File == docker.ConfFile || ofUnit && name > path.Base(DropIn(u.Unit))
}

// Place names where a limit is set: its line, where the file has lines.
func (s Setting) Place() string {
	if s.Line == 0 {
		return s.File
	}
	return fmt.Sprintf("%s:%d", s.File, s.Line)
}

// UserLimit is the limit of a domain of limits.conf(5): a user, "@group", or "*".
type UserLimit struct {
	Domain string
	Setting
}

// unitKey is the key of a service's limit (systemd.exec(5)).
const unitKey = "LimitMEMLOCK"

// Services returns the services whose children use adapters: containers and batch jobs.
func Services() []string {
	return []string{"docker.service", "containerd.service", "crio.service", "podman.service", "slurmd.service"}
}

// Read reads the limits of daemons and of users, as they are without the files in except.
func Read(root host.Root, except ...string) Limits {
	l := limitReader{root: root, except: except}
	for _, unit := range Services() {
		l.unit(unit)
	}
	l.users()
	return l.Limits
}

type limitReader struct {
	Limits
	root   host.Root
	except []string
}

func (l *limitReader) fail(file string, err error) {
	l.Errs = append(l.Errs, host.OfFile(file, err))
}

// read returns the content of a file, and whether it exists. A link to /dev/null masks a file. A
// snapshot contains what keep returns: these files may have passwords, such as those of proxies.
func (l *limitReader) read(file string, keep func([]byte) []byte) (text string, ok bool) {
	if slices.Contains(l.except, file) {
		return "", false
	}
	if target, err := l.root.Real(file); err == nil && target == "/dev/null" {
		return "", true
	}
	data, err := l.root.ReadReduced(file, keep)
	if err != nil && !host.IsAbsent(err) {
		l.fail(file, err)
	}
	return string(data), err == nil
}

// keepLines returns a function that replaces lines by empty ones, except those that contain the
// word, in any case.
func keepLines(word string) func([]byte) []byte {
	word = strings.ToLower(word)
	return func(data []byte) []byte {
		var kept strings.Builder
		for line := range strings.Lines(string(data)) {
			if text := strings.TrimSpace(line); strings.HasPrefix(text, "[") || strings.Contains(strings.ToLower(text), word) {
				kept.WriteString(text)
			}
			kept.WriteByte('\n')
		}
		return []byte(kept.String())
	}
}

// dropIns returns the .conf files in folders, of files with one name the first, in the order of
// their names, as systemd reads them.
func (l *limitReader) dropIns(dirs []string) []string {
	files := map[string]string{}
	for _, dir := range dirs {
		entries, err := l.root.ReadDir(dir)
		if err != nil && !host.IsAbsent(err) {
			l.fail(dir, err)
		}
		for _, name := range entries {
			if _, hidden := files[name]; !hidden && path.Ext(name) == ".conf" {
				files[name] = path.Join(dir, name)
			}
		}
	}
	return host.Map(slices.Sorted(maps.Keys(files)), func(name string) string { return files[name] })
}

// below returns the folders, each with a name added.
func below(dirs []string, name string) (all []string) {
	return host.Map(dirs, func(dir string) string { return path.Join(dir, name) })
}

// unit adds the limit of a service that is installed and not masked.
func (l *limitReader) unit(unit string) {
	var file string
	dirs := host.UnitDirs()
	for _, candidate := range below(dirs, unit) {
		if text, ok := l.read(candidate, keepLines(unitKey)); ok {
			if text == "" {
				return // masked
			}
			file = candidate
			break
		}
	}
	if file == "" {
		return
	}
	// A file for the unit hides one with the same name for all services.
	files := append([]string{file}, l.dropIns(append(below(dirs, unit+".d"), below(dirs, "service.d")...))...)
	limit := l.last(files)
	if unit == "docker.service" {
		limit = cmp.Or(l.docker(), limit)
	}
	l.Units = append(l.Units, UnitLimit{unit, file, limit})
}

// docker returns the default limit of docker's containers, nil if there is none.
func (l *limitReader) docker() *Setting {
	conf, err := docker.ReadConf(l.root)
	if err != nil {
		l.Errs = append(l.Errs, err)
	}
	if conf == nil {
		return nil
	}
	limit, ok := conf.Ulimits["memlock"]
	switch {
	case !ok:
		return nil
	case limit.Soft < 0:
		return &Setting{Unlimited, docker.ConfFile, 0}
	}
	return &Setting{uint64(limit.Soft), docker.ConfFile, 0}
}

// last returns the last limit of a service in files, nil if there is none.
func (l *limitReader) last(files []string) (limit *Setting) {
	for _, file := range files {
		text, _ := l.read(file, keepLines(unitKey))
		in, number := "", 0
		for line := range strings.Lines(text) {
			number++
			line = strings.TrimSpace(line)
			if strings.HasPrefix(line, "[") {
				in = strings.Trim(line, "[]")
				continue
			}
			name, value, ok := strings.Cut(line, "=")
			if !ok || in != "Service" || strings.TrimSpace(name) != unitKey {
				continue
			}
			soft, _, _ := strings.Cut(strings.TrimSpace(value), ":")
			if soft == "" {
				limit = nil // an empty value returns to the default
				continue
			}
			bytes, err := parseBytes(soft)
			if err != nil {
				l.fail(fmt.Sprintf("%s:%d", file, number), err) // systemd ignores the line
				continue
			}
			limit = &Setting{bytes, file, number}
		}
	}
	return limit
}

// parseBytes parses a size as systemd does: a number with a suffix to the base 1024, or infinity
// (systemd.exec(5), "Process Properties").
func parseBytes(text string) (uint64, error) {
	if text == "infinity" {
		return Unlimited, nil
	}
	number, unit := text, uint64(1)
	if i := strings.IndexByte("KMGTPE", text[len(text)-1]); i >= 0 {
		number, unit = strings.TrimSpace(text[:len(text)-1]), 1<<(10*(i+1))
	}
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil || n > Unlimited/unit {
		return 0, fmt.Errorf("not a size: %q", text)
	}
	return n * unit, nil
}

// UsersFile and UsersDir are where the limits of users are set.
const (
	UsersFile = "/etc/security/limits.conf"
	UsersDir  = "/etc/security/limits.d"
)

// users reads the soft limits of users (limits.conf(5)): limits.conf, then the files of limits.d in
// the order of their names. The last line of a domain counts. Type, item and value may be written
// in any case, and what follows the value is ignored (pam_limits.c, parse_config_file).
func (l *limitReader) users() {
	var order []string
	found := map[string]UserLimit{}
	for _, file := range append([]string{UsersFile}, l.dropIns([]string{UsersDir})...) {
		text, _ := l.read(file, keepLines("memlock"))
		number := 0
		for line := range strings.Lines(text) {
			number++
			line, _, _ = strings.Cut(line, "#")
			words := strings.Fields(line)
			if len(words) < 4 || !strings.EqualFold(words[2], "memlock") || !strings.EqualFold(words[1], "soft") && words[1] != "-" {
				continue
			}
			bytes, err := parseKilobytes(words[3])
			if err != nil {
				l.fail(fmt.Sprintf("%s:%d", file, number), err)
				continue
			}
			if _, ok := found[words[0]]; !ok {
				order = append(order, words[0])
			}
			found[words[0]] = UserLimit{words[0], Setting{bytes, file, number}}
		}
	}
	l.Domains = append(l.Domains, host.Map(order, func(domain string) UserLimit { return found[domain] })...)
}

var errLimit = errors.New("neither a number of KiB nor unlimited")

func parseKilobytes(text string) (uint64, error) {
	if slices.Contains([]string{"unlimited", "infinity", "-1"}, strings.ToLower(text)) {
		return Unlimited, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n > Unlimited>>10 {
		return 0, fmt.Errorf("%w: %q", errLimit, text)
	}
	return n << 10, nil
}
