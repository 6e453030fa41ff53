package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/host/rdma"
)

// shapesDir is the folder of machines of real shapes. Its README.md says how to add one.
const shapesDir = top + "/integration/testdata/shapes"

// shape is a machine of a real shape, made from sources that its comment names.
type shape struct {
	name    string
	subject string // a key of subjectCommands
	root    host.Root
	columns int // of the page; 0 if it has no width
}

// subjectCommands are the commands whose output of each shape of a subject is in its golden file.
func subjectCommands(subject string) []string {
	return map[string][]string{
		"rdma": {"rdma scan", "rdma scan --gids", "rdma scan -o json", "rdma check", "rdma check -o json", "host scan"},
		"containers": {
			"container check", "container check -o json", "container check --image-dir IMAGES", "container prepare --dry-run",
			"container prepare --device GPU --dry-run",
			"container prepare --device GPU --static --dry-run", "host scan",
		},
	}[subject]
}

// readOnly are the command lines that every shape has to survive. ADDRESS is each function that is
// no bridge, one after the other, and FILE a file that does not exist.
func readOnly() []string {
	return []string{
		"host scan", "host scan --all -o tree", "host scan --all -o json", "host check --all", "host check -o json",
		"host guests -o json", "host snapshot FILE", "host prepare --dry-run", "host prepare --none --dry-run -o json",
		"host prepare --device ADDRESS --dry-run -o json", "host bind --device ADDRESS --dry-run -o json", "host release --device ADDRESS --dry-run -o json",
		"rdma scan --topology", "rdma scan --gids -o json", "rdma check --all", "rdma check -o json", "rdma prepare --none --dry-run -o json",
		"rdma prepare --device ADDRESS --vfs 2 --dry-run -o json", "rdma prepare --device ADDRESS --whole --dry-run",
		"container check --all", "container check -o json", "container prepare --dry-run", "container prepare --none --dry-run -o json",
		"container prepare --device ADDRESS --dry-run -o json", "container prepare --hca ADDRESS --dry-run",
		"nova check", "nova configure --dry-run -o json", "history -o json", "status", "status -o json",
	}
}

// notOnShapes are the commands that no shape is tried with, and why.
func notOnShapes() map[string]string {
	const cloud, itself = "needs a cloud", "says nothing of a machine"
	return map[string]string{
		"host unpack": itself, "completion": itself, "fleet show": itself, "fleet diff": itself, "fleet plan": itself,
		"help": itself, "nova explain": cloud, "nova devices": cloud, "nova drain": cloud, "nova enable": cloud, "repair-migration": "needs a database",
		"rdma test": "runs on the machine itself only", "container test": "runs on the machine itself only", "undo": "nothing is recorded",
		"flavor create": cloud, "flavor list": cloud, "flavor delete": cloud, "flavor test": cloud, "image check": cloud, "image set": cloud,
	}
}

// readShapes lays out every shape.
func readShapes(t *testing.T) (shapes []shape) {
	t.Helper()
	files, err := filepath.Glob(shapesDir + "/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d shapes: %v", len(files), err)
	}
	for _, file := range files {
		text := hosttest.Read(t, file)
		s := shape{name: strings.TrimSuffix(filepath.Base(file), ".txtar")}
		sources := 0
		for line := range strings.Lines(string(txtar.Parse([]byte(text)).Comment)) {
			line = strings.TrimSpace(line)
			if subject, ok := strings.CutPrefix(line, "# subject: "); ok {
				s.subject = subject
			}
			if source, ok := strings.CutPrefix(line, "# source: "); ok && source != "" {
				sources++
			}
		}
		if subjectCommands(s.subject) == nil || sources == 0 {
			t.Errorf("%s: the comment at its head needs lines \"# subject: rdma\" (or containers) and \"# source: …\"", file)
			continue
		}
		s.root = hosttest.Lay(t, text)
		shapes = append(shapes, s)
	}
	return shapes
}

// output is what a command line has printed, with ROOT instead of the path of the root.
type output struct {
	status         int
	stdout, stderr string
}

// run runs a command line on the shape, in this process. A panic is an error.
func (s shape) run(t *testing.T, line string) (o output) {
	t.Helper()
	o = s.runHere(t, line)
	placed := strings.NewReplacer(s.root.Path("/"), "ROOT/", strings.TrimSuffix(s.root.Path("/"), "/"), "ROOT")
	o.stdout, o.stderr = placed.Replace(o.stdout), placed.Replace(o.stderr)
	return o
}

// runHere is run with the path of the root as it is.
func (s shape) runHere(t *testing.T, line string) (o output) {
	t.Helper()
	words := append(append([]string{"gpustack"}, strings.Fields(s.fill(t, line))...), "--root", s.root.Path("/"))
	dir := t.TempDir()
	open := func(name string, flags int) *os.File {
		f, err := os.OpenFile(name, flags, 0o600)
		hosttest.NoError(t, err)
		return f
	}
	stdin, stdout, stderr := open(os.DevNull, os.O_RDONLY), open(dir+"/stdout", os.O_CREATE|os.O_RDWR), open(dir+"/stderr", os.O_CREATE|os.O_RDWR)
	for _, f := range []*os.File{stdin, stdout, stderr} {
		defer f.Close()
	}
	for i, word := range words {
		if word == "FILE" {
			words[i] = filepath.Join(dir, "snapshot.txtar")
		}
	}
	u := term.New(stdin, stdout, stderr, func(name string) string {
		return map[string]string{"LANG": "C.UTF-8", "XDG_STATE_HOME": dir, "COLUMNS": strconv.Itoa(s.columns)}[name]
	})
	func() {
		defer func() {
			if p := recover(); p != nil {
				t.Errorf("gpustack %s: panic: %v\n%s", line, p, debug.Stack())
				o.status = 1
			}
		}()
		a := newApp(u, words)
		r := execute(t.Context(), u, a, nil)
		switch {
		case r.err != nil:
			u.Fail(r.err)
			o.status = 1
		case r.different:
			o.status = 2
		}
	}()
	read := func(f *os.File) string {
		return hosttest.Read(t, f.Name())
	}
	o.stdout, o.stderr = read(stdout), read(stderr)
	if strings.Contains(o.stdout+o.stderr, "\u2800") {
		t.Errorf("gpustack %s: the mark of package term that keeps words in one line is printed:\n%s%s", line, o.stdout, o.stderr)
	}
	return o
}

// fill replaces GPU by the first GPU of NVIDIA's, and IMAGES by the images in /srv/images, which
// lie below the root to be in one file with the machine.
func (s shape) fill(t *testing.T, line string) string {
	t.Helper()
	if strings.Contains(line, " GPU") {
		devices := hosttest.Devices(t, s.root)
		if i := slices.IndexFunc(devices, func(d pci.Device) bool { return d.IsNVIDIAGPU() }); i >= 0 {
			line = strings.ReplaceAll(line, " GPU", " "+devices[i].Address.String())
		}
	}
	images, err := filepath.Glob(s.root.Path("/srv/images/*"))
	hosttest.NoError(t, err)
	if images == nil {
		return strings.ReplaceAll(line, " --image-dir IMAGES", "")
	}
	return strings.ReplaceAll(line, "IMAGES", strings.Join(images, " --image-dir "))
}

// dated are the lines of a document that differ between two runs.
var dated = host.LazyRegexp(`(?m)^ "(version|time)": .*\n`)

// golden returns an output as the golden file of a shape has it: a JSON document is indented, and
// has neither its time nor the version of gpustack.
func (o output) golden() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "exit status %d\n", o.status)
	b.WriteString(o.stderr)
	if err := json.Indent(&b, []byte(o.stdout), "", " "); err != nil {
		b.WriteString(o.stdout)
	}
	return dated().ReplaceAll(b.Bytes(), nil)
}

// TestShapes compares what the commands of its subject print of each shape with its golden file,
// NAME.golden beside NAME.txtar. -update writes it; read it before you commit it.
func TestShapes(t *testing.T) {
	for _, s := range readShapes(t) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			var got txtar.Archive
			for _, line := range subjectCommands(s.subject) {
				got.Files = append(got.Files, txtar.File{Name: line, Data: s.run(t, line).golden()})
			}
			file := filepath.Join(shapesDir, s.name+".golden")
			if *update {
				hosttest.NoError(t, os.WriteFile(file, txtar.Format(&got), 0o644))
				return
			}
			want := hosttest.Read(t, file)
			hosttest.EqualIn(t, file+"; -update writes it", strings.Split(want, "\n"), strings.Split(string(txtar.Format(&got)), "\n"))
		})
	}
}

// TestShapesSurvive runs all commands that change nothing on every shape: none panics, prints a
// value that was not formatted, or prints a document that its schema does not describe.
func TestShapesSurvive(t *testing.T) {
	tried := map[string]bool{}
	for _, line := range readOnly() {
		command, _, _ := strings.Cut(line, " -")
		tried[strings.TrimSuffix(command, " FILE")] = true
	}
	for command := range args.Visible(newApp(testUI(t), []string{"gpustack"}).Commands) {
		if _, without := notOnShapes()[command]; without == tried[command] {
			t.Errorf("%s: list it either in readOnly or in notOnShapes", command)
		}
	}
	for _, s := range readShapes(t) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			for _, line := range s.lines(t, readOnly()) {
				o := s.run(t, line)
				for _, sign := range []string{"%!", "(PANIC", "nil pointer", "runtime error"} {
					if strings.Contains(o.stdout+o.stderr, sign) {
						t.Errorf("gpustack %s printed %q:\n%s%s", line, sign, o.stderr, o.stdout)
					}
				}
				if o.status == 1 && !strings.Contains(o.stderr, "gpustack: error: ") && !strings.Contains(line, " check") {
					t.Errorf("gpustack %s: exit status 1 without an error:\n%s", line, o.stderr)
				}
				if command, json := strings.CutSuffix(line, " -o json"); json {
					command, _, _ = strings.Cut(command, " -")
					if err := checkDocument(command, term.FormatJSON, []byte(o.stdout)); err != nil {
						t.Errorf("gpustack %s: %v", line, err)
					}
				}
			}
		})
	}
}

// lines returns command lines for the shape: ADDRESS is each function that is no bridge.
func (s shape) lines(t *testing.T, of []string) (lines []string) {
	t.Helper()
	devices := hosttest.Devices(t, s.root)
	devices = slices.DeleteFunc(devices, func(d pci.Device) bool { return d.Class != nil && d.Class.IsBridge() })
	if len(devices) == 0 {
		t.Fatal("the shape has no PCI function")
	}
	for _, line := range of {
		if !strings.Contains(line, "ADDRESS") {
			lines = append(lines, line)
			continue
		}
		for _, d := range devices[:min(len(devices), 6)] {
			lines = append(lines, strings.ReplaceAll(line, "ADDRESS", d.Address.String()))
		}
	}
	return lines
}

// TestShapesRemedies: container prepare accepts the commands that container check names, on each
// shape, also where only an adapter is recorded.
func TestShapesRemedies(t *testing.T) {
	prepare := regexp.MustCompile(`gpustack (container prepare(?: --[a-z-]+(?: [0-9a-f]{4}:[0-9a-f:.]+)?)*)`)
	ran := make(chan string, 1000)
	t.Run("shapes", func(t *testing.T) {
		for _, s := range readShapes(t) {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				named := func() {
					out := strings.ReplaceAll(s.run(t, "container check --all --image-dir IMAGES").stdout, " --root ROOT/", "")
					for _, found := range prepare.FindAllStringSubmatch(out, -1) {
						command := found[1]
						if strings.HasSuffix(command, "--device") {
							continue // an ADDRESS that the user knows
						}
						ran <- s.name + ": " + command
						if o := s.run(t, command+" --static --dry-run"); o.status == 1 {
							t.Errorf("%s: %s", command, o.stderr)
						}
					}
				}
				named()
				stack, err := rdma.Read(s.root, nil, rdma.Options{})
				if err != nil || len(stack.Adapters) == 0 || stack.Adapters[0].Address == nil {
					return
				}
				if o := s.run(t, "container prepare --static --yes --hca "+stack.Adapters[0].Address.String()); o.status == 0 {
					named()
				}
			})
		}
	})
	if len(ran) < 5 {
		t.Errorf("only %d commands were named", len(ran))
	}
}
