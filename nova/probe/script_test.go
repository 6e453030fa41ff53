package probe_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gpustack/host"
	"gpustack/host/hosttest"
	"gpustack/nova/probe"
)

// guest runs the script with a folder as its /sys, /dev and programs that come before its others.
// The shell is the one that is called sh; TestProbeShells of integration runs these tests with
// others.
type guest struct {
	dir string // with sys, dev and bin
	t   *testing.T
}

func newGuest(t *testing.T) guest {
	t.Helper()
	g := guest{t.TempDir(), t}
	for _, dir := range []string{"sys/bus/pci/devices", "dev", "bin", "run"} {
		hosttest.NoError(t, os.MkdirAll(filepath.Join(g.dir, dir), 0o755))
	}
	g.program("dmesg", "exit 1")
	return g
}

func (g guest) path(name string) string {
	return filepath.Join(g.dir, name)
}

func (g guest) write(name, text string) {
	g.t.Helper()
	file := g.path(name)
	hosttest.NoError(g.t, errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)))
}

func (g guest) program(name, text string) {
	g.t.Helper()
	hosttest.NoError(g.t, os.WriteFile(g.path("bin/"+name), []byte("#!/bin/sh\n"+text+"\n"), 0o755))
}

// function adds a PCI function.
func (g guest) function(address, class, vendor, device, resource, config string) {
	g.t.Helper()
	dir := "sys/bus/pci/devices/" + address + "/"
	for name, text := range map[string]string{"class": "0x" + class + "\n", "vendor": "0x" + vendor + "\n", "device": "0x" + device + "\n"} {
		g.write(dir+name, text)
	}
	if resource != "" {
		g.write(dir+"resource", resource)
	}
	if config != "" {
		g.write(dir+"config", config)
	}
}

// script is the script as the guest runs it, without its pauses.
func (g guest) script(o probe.Options) string {
	g.t.Helper()
	text := probe.Script(nonce, o)
	for _, replace := range [][2]string{
		{" sys=/sys dev=/dev\n", " sys=" + g.path("sys") + " dev=" + g.path("dev") + "\n"},
		{"for pause in 5 5 0; do", "for pause in 0 0 0; do"},
		{"sleep 1\n", "sleep 0.1\n"},
		// An absolute path, as busybox may prefer its own.
		{"$(dmesg ", "$(" + g.path("bin/dmesg") + " "},
		{" /run /dev/shm /tmp;", " " + g.path("missing") + " " + g.path("run") + ";"},
	} {
		if strings.Count(text, replace[0]) != 1 {
			g.t.Fatalf("the script has no %q", replace[0])
		}
		text = strings.Replace(text, replace[0], replace[1], 1)
	}
	return text
}

// start returns the script's process, ready to be started.
func (g guest) start(o probe.Options, options ...string) *exec.Cmd {
	g.t.Helper()
	g.write("user_data", g.script(o))
	cmd := exec.Command("sh", append(options, g.path("user_data"))...)
	cmd.Env = append(os.Environ(), "PATH="+g.path("bin")+":"+os.Getenv("PATH"))
	return cmd
}

// run runs the script and returns its standard output, which must be three equal lines.
func (g guest) run(o probe.Options, options ...string) string {
	g.t.Helper()
	return g.output(g.start(o, options...))
}

func (g guest) output(cmd *exec.Cmd) string {
	g.t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		g.t.Fatalf("%v\n%s%s", err, out, &stderr)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	if want := strings.Repeat(line+"\n", 3); string(out) != want {
		g.t.Fatalf("standard output:\n%s", out)
	}
	return string(out)
}

// report runs the script and returns its report.
func (g guest) report(options ...string) probe.Report {
	g.t.Helper()
	out := g.run(probe.Options{}, options...)
	r, whole := probe.Parse(out, nonce)
	if !whole {
		g.t.Fatalf("no report:\n%s", out)
	}
	return r
}

const (
	none     = "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
	memory   = "0x00000000fe800000 0x00000000feffffff 0x0000000000040200\n"
	wide     = "0x0000380000000000 0x000038000fffffff 0x000000000014220c\n"
	ioRegion = "0x000000000000d000 0x000000000000d07f 0x0000000000040101\n"
	romUnset = "0x0000000000000000 0x000000000007ffff 0x0000000020046200\n"
)

// header returns a configuration space with these registers of regions.
func header(registers ...uint32) string {
	config := bytes.Repeat([]byte{0x11}, 64)
	for i := range 6 {
		var value uint32
		if i < len(registers) {
			value = registers[i]
		}
		for k := range 4 {
			config[0x10+4*i+k] = byte(value >> (8 * k))
		}
	}
	return string(config)
}

// Regions of real GPUs and of QEMU's devices, as Linux 6.1 shows them (integration/vm, TestProbe,
// has a region that does not fit) and as other releases do.
func TestScriptRegions(t *testing.T) {
	t.Parallel()
	const (
		address = "0000:01:00.0"
		unset   = "0x0000000000000000 0x0000000fffffffff 0x000000002014220c\n"
		unsetIO = "0x0000000000000000 0x000000000000007f 0x0000000020040101\n"
		zero    = "0x0000000000000000 0x0000000000ffffff 0x0000000000040200\n"
	)
	gpu := memory + wide + none + wide + none + ioRegion + none
	log := func(text string) string { return "[    1.5] pci " + address + ": " + text + "\n" }
	for _, test := range []struct{ name, resource, config, log, want string }{
		{"a GPU", gpu, header(0xfe800000, 0x0000000c, 0x3800, 0x0000000c, 0x3800, 0xd001), "", "ok"},
		{"without a configuration space", gpu, "", "", "ok"},
		{"without regions", strings.Repeat(none, 13), header(), "", "ok"},
		{"IORESOURCE_UNSET", memory + unset + none + wide + none + ioRegion, header(0xfe800000, 0xc, 0, 0xc, 0x3800, 0xd001), "", "unassigned"},
		{"flags, but no start", zero + wide, header(0, 0xc, 0x3800), "", "unassigned"},
		{"shown as none, with the firmware's address in the register", memory + none + none, header(0xfe800000, 0x0000000c, 0x200), "", "unassigned"},
		{"shown as none, with the type in the register", memory + none + none, header(0xfe800000, 0x0000000c), "", "unassigned"},
		{"shown as none, an address of 32 bits in the register", none + wide, header(0xfe800000, 0xc, 0x3800), "", "unassigned"},
		{"the last region", strings.Repeat(none, 5) + unset, header(0, 0, 0, 0, 0, 0), "", "unassigned"},
		{"shown as none, in the log of Linux 6.1", none + wide, header(0, 0xc, 0x3800), log("BAR 0: failed to assign [mem size 0x01000000]"), "unassigned"},
		{"shown as none, in the log since Linux 6.9", none + wide, header(0, 0xc, 0x3800), log("BAR 0 [mem size 0x01000000]: failed to assign"), "unassigned"},
		{"shown as none, in the log of Linux 3.10", none + wide, header(0, 0xc, 0x3800), log("BAR 0: can't assign mem (size 0x1000000)"), "unassigned"},
		{"in the log of another function", none + wide, header(0, 0xc, 0x3800), strings.Replace(log("BAR 0: failed to assign [mem size 0x1]"), "01:00.0", "02:00.0", 1), "ok"},
		{"in the log of another region", none + wide, header(0, 0xc, 0x3800), log("BAR 5: failed to assign [mem size 0x1]"), "ok"},
		{"assigned at the second try", gpu, header(0xfe800000, 0xc, 0x3800, 0xc, 0x3800, 0xd001), log("BAR 0: failed to assign [mem size 0x1]"), "ok"},
		{"only the upper half of an address", memory + wide + none, header(0xfe800000, 0xc, 0x3801), "", "ok"},
		{"I/O without an address", memory + wide + none + none + none + unsetIO, header(0xfe800000, 0xc, 0x3800), "", "ok"},
		{"I/O shown as none", memory + wide + none + none + none + none, header(0xfe800000, 0xc, 0x3800, 0, 0, 1), log("BAR 5: failed to assign [io  size 0x0080]"), "ok"},
		{"I/O shown as none, in the log of Linux 3.10", memory, header(0xfe800000), log("BAR 5: can't assign io (size 0x80)"), "ok"},
		{"a ROM without an address", memory + wide + none + none + none + none + romUnset, header(0xfe800000, 0xc, 0x3800), log("BAR 6: failed to assign [mem size 0x00080000 pref]"), "ok"},
		{"no resource file", "", header(0xfe800000), "", "unread"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := newGuest(t)
			g.write("log", test.log)
			g.program("dmesg", `cat "`+g.path("log")+`"`)
			g.function(address, "030200", "10de", "20b5", test.resource, test.config)
			hosttest.Equal(t, address+"=10de:20b5:"+test.want, words(g.report()))
		})
	}
}

// Bridges are not counted, other functions of class 06 are: they can be assigned to guests.
func TestScriptBridges(t *testing.T) {
	t.Parallel()
	g := newGuest(t)
	for i, class := range []string{"060000", "060400", "060700", "060900", "060940", "068000", "030000"} {
		g.function(fmt.Sprintf("0000:00:%02x.0", i), class, "8086", "1234", memory, "")
	}
	g.write("sys/bus/pci/devices/0000:00:1e.0/vendor", "0x8086\n") // it has just been removed
	g.write("sys/bus/pci/devices/0000:00:1e.1/device", "0x1234\n")
	g.write("sys/bus/pci/devices/0000:00:1f.0/vendor", "0x8086\n") // without a class
	g.write("sys/bus/pci/devices/0000:00:1f.0/device", "0x1235\n")
	const want = "0000:00:00.0=8086:1234:ok 0000:00:05.0=8086:1234:ok 0000:00:06.0=8086:1234:ok 0000:00:1f.0=8086:1235:unread"
	hosttest.Equal(t, want, words(g.report()))
}

func TestScriptTrees(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		root  func(t *testing.T) host.Root
		count int
		want  string
	}{
		{"talk", example("talk-2xk4200"), 0, "10de:0e0a=2 10de:11b4=2"},
		{"HGX", example("hgx-8xa100"), 0, "10de:1af1=6 10de:20b2=8"},
		{"twins", example("workstation-twins"), 0, "10de:10f8=2 10de:1eb1=2"},
		{"bare", hosttest.Bare, 6, "10de:0e0a=2 10de:11b4=2"},
		{"K80 and GRID K2", table("k80-and-grid-k2"), 0, "10de:102d=2 10de:11bf=2"},
		{"V100", table("v100x8-kata-5598"), 0, "10de:1db6=8"},
		// The ninth display is the management controller's, which is no NVIDIA device.
		{"DGX A100", table("NVIDIA_DGXA100"), 0, "10de:20b0=8 1a03:2000=1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := newGuest(t)
			root := test.root(t)
			hosttest.NoError(t, os.RemoveAll(g.path("sys")))
			hosttest.NoError(t, os.Symlink(root.Path("sys"), g.path("sys")))
			r := g.report()
			seen := map[probe.ID]int{}
			for _, d := range r.Devices {
				seen[d.ID]++
			}
			for id, count := range counts(t, test.want) {
				hosttest.EqualIn(t, fmt.Sprint(id), count, seen[id])
			}
			if test.count > 0 && len(r.Devices) != test.count {
				t.Errorf("%d functions, want %d", len(r.Devices), test.count)
			}
		})
	}
}

func example(name string) func(t *testing.T) host.Root {
	return func(t *testing.T) host.Root {
		t.Helper()
		text := hosttest.Read(t, "../../examples/"+name+".txtar")
		return hosttest.Lay(t, text)
	}
}

// table lays out what the script reads of a machine of integration/testdata/nodes.
func table(name string) func(t *testing.T) host.Root {
	return func(t *testing.T) host.Root {
		t.Helper()
		text := hosttest.Read(t, "../../integration/testdata/nodes/"+name+".tsv")
		g := guest{t.TempDir(), t}
		for line := range strings.Lines(text) {
			row := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
			if row[0] != "#address" {
				g.function(row[0], row[1], row[2], row[3], memory, "")
			}
		}
		return hosttest.Root(t, g.dir)
	}
}

// Each console is written to once in each round, and stands once in the list, whatever names it
// has.
func TestScriptConsoles(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, active string // "-": there is no such file
		dev, want    string // files in /dev, and those of them that are written to
		out          string // the file that is standard output, "" for a pipe
	}{
		{"a serial port", "ttyS0\n", "console ttyS0 tty0", "ttyS0", ""},
		{"two consoles", "tty0 ttyS0\n", "console ttyS0 tty0", "tty0 ttyS0", ""},
		{"only a display", "tty0\n", "console ttyS0 tty0", "tty0 ttyS0", ""},
		{"arm64", "ttyAMA0\n", "console ttyAMA0", "ttyAMA0", ""},
		{"a paravirtual console", "tty0 hvc0\n", "console hvc0 ttyS0 ttyS1", "hvc0 ttyS0", ""},
		{"no list", "-", "console ttyS1", "console", ""},
		{"an empty list", "\n", "console", "console", ""},
		{"no console", "-", "", "", ""},
		{"standard output is a console", "tty0 ttyS0\n", "console ttyS0 tty0", "tty0 ttyS0", "ttyS0"},
		{"standard output is /dev/console", "tty0 ttyS0\n", "console ttyS0 tty0", "tty0 ttyS0", "console"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := newGuest(t)
			if test.active != "-" {
				g.write("sys/class/tty/console/active", test.active)
			}
			for name := range strings.FieldsSeq(test.dev) {
				g.write("dev/"+name, "")
			}
			if test.out == "" {
				g.run(probe.Options{})
			} else {
				cmd := g.start(probe.Options{})
				out, err := os.OpenFile(g.path("dev/"+test.out), os.O_WRONLY|os.O_APPEND, 0)
				hosttest.NoError(t, err)
				cmd.Stdout = out
				hosttest.NoError(t, errors.Join(cmd.Run(), out.Close()))
			}
			const want = "\n" + mark + " devices=0 END\n"
			for name := range strings.FieldsSeq(test.want) {
				g.await("dev/"+name, strings.Repeat(want, 3))
			}
			entries, err := os.ReadDir(g.path("dev"))
			hosttest.NoError(t, err)
			for _, entry := range entries {
				text := hosttest.Read(t, g.path("dev/"+entry.Name()))
				if written := slices.Contains(strings.Fields(test.want), entry.Name()); !written && len([]byte(text)) > 0 {
					t.Errorf("%s:\n%s", entry.Name(), text)
				}
				if !slices.Contains(strings.Fields(test.dev), entry.Name()) {
					t.Errorf("%s was made", entry.Name())
				}
			}
		})
	}
}

// await waits until a file has a text: consoles are written to in the background. Empty lines do
// not count: some shells write the one before a line by itself, so that two processes may mix them.
func (g guest) await(name, want string) {
	g.t.Helper()
	lines := func(text string) []string {
		return strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
	}
	var text []byte
	for range 100 {
		text, _ = os.ReadFile(g.path(name))
		if slices.Equal(lines(string(text)), lines(want)) && strings.HasSuffix(string(text), "\n") {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	g.t.Errorf("%s:\n%s", name, text)
}

// A console that blocks does not keep the line from others.
func TestScriptBlockedConsole(t *testing.T) {
	t.Parallel()
	g := newGuest(t)
	g.write("sys/class/tty/console/active", "hvc0 ttyS0\n")
	g.write("dev/ttyS0", "")
	if out, err := exec.Command("mkfifo", g.path("dev/hvc0")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := g.start(probe.Options{})
	begin := time.Now()
	hosttest.NoError(t, cmd.Run())
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("the boot waited for %s", took)
	}
	g.await("dev/ttyS0", strings.Repeat("\n"+mark+" devices=0 END\n", 3))
	fifo, err := os.OpenFile(g.path("dev/hvc0"), os.O_RDWR, 0) // lets the processes go
	hosttest.NoError(t, err)
	defer fifo.Close()
}

func TestScriptOddGuests(t *testing.T) {
	t.Parallel()
	gpu := func(t *testing.T) guest {
		g := newGuest(t)
		g.function("0000:00:05.0", "030000", "10de", "11b4", memory, header(0xfe800000))
		return g
	}
	const want = "0000:00:05.0=10de:11b4:ok"
	for _, options := range [][]string{{"-e"}, {"-u"}, {"-eu"}, {"-euf"}} {
		t.Run(strings.Join(options, " "), func(t *testing.T) {
			t.Parallel()
			hosttest.Equal(t, want, words(gpu(t).report(options...)))
		})
	}
	for _, test := range []struct{ name, variable string }{
		{"a locale", "LC_ALL=C.UTF-8"},
		{"no PATH", "PATH="},
		{"a separator", "IFS=:"},
		{"a debugger's prompt", "PS4=x"},
		{"variables of its own", "line=x"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := gpu(t)
			cmd := g.start(probe.Options{})
			cmd.Env = append(cmd.Env, test.variable)
			r, whole := probe.Parse(g.output(cmd), nonce)
			if got := words(r); !whole || got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
	t.Run("no PCI", func(t *testing.T) {
		g := newGuest(t)
		hosttest.NoError(t, os.RemoveAll(g.path("sys/bus/pci")))
		if r := g.report(); r.Unread || len(r.Devices) > 0 {
			t.Errorf("%+v", r)
		}
	})
	t.Run("no sysfs", func(t *testing.T) {
		g := newGuest(t)
		hosttest.NoError(t, os.RemoveAll(g.path("sys/bus")))
		if r := g.report(); !r.Unread {
			t.Errorf("%+v", r)
		}
	})
	t.Run("standard output and standard error are closed", func(t *testing.T) {
		g := gpu(t)
		g.write("dev/ttyS0", "")
		cmd := exec.Command("sh", "-c", `exec "$0" "$1" <&- >&- 2>&-`, "sh", g.start(probe.Options{}).Args[1])
		hosttest.NoError(t, cmd.Run())
		g.await("dev/ttyS0", strings.Repeat("\n"+mark+" devices=1 "+want+":0300 END\n", 3))
	})
}

// The script returns at once, and its standard output ends when the third line is printed.
func TestScriptGoesOnInTheBackground(t *testing.T) {
	t.Parallel()
	g := newGuest(t)
	g.program("sleep", `echo "$1" >>"`+g.path("slept")+`"; exec /bin/sleep 0.2`)
	cmd := g.start(probe.Options{})
	g.write("user_data", strings.NewReplacer("0 0 0", "5 5 0", `sleep "$pause"`, g.path("bin/sleep")+` "$pause"`).Replace(g.script(probe.Options{})))
	log, err := os.Create(g.path("out"))
	hosttest.NoError(t, err)
	defer log.Close()
	cmd.Stdout = log
	hosttest.NoError(t, cmd.Run())
	if out, _ := os.ReadFile(g.path("out")); strings.Count(string(out), " END\n") == 3 {
		t.Error("the boot waited for all lines")
	}
	g.await("out", strings.Repeat(mark+" devices=0 END\n", 3))
	g.await("slept", "5\n5\n0\n")
}

// Nova accepts 65535 bytes of user_data in base64 (nova/conf/api.py and nova/exception.py,
// MAX_USERDATA_SIZE), cloud-init runs a part that begins with #!, and a guest may have any locale.
func TestScriptText(t *testing.T) {
	text := probe.Script(nonce, running(t, "nvidia-smi -L"))
	if !strings.HasPrefix(text, "#!/bin/sh\n") || len(text) > 16<<10 || strings.ContainsFunc(text, func(r rune) bool { return r > '~' }) {
		t.Errorf("%d bytes:\n%s", len(text), text)
	}
	if strings.Contains(text, "{{") || !strings.Contains(text, "nonce="+nonce+" run=yes patience=60 ") {
		t.Error("a placeholder remains")
	}
}
