package vm

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"gpustack/integration/vm/agent"
)

// The entries of host bind and host release that earlier commits left are in
// testdata/upgrade/COMMIT/drivers.txtar. Each has three sections: NAME/entry is the entry of the
// journal, with bootPlaceholder for the boot, NAME/drivers has a line "ADDRESS DRIVER OVERRIDE" for
// each function of the card, "-" for none, and NAME/undo is the same after that commit has undone
// it, empty if it found nothing to undo.
//
// They are recorded in a virtual machine, with the binary of the commit (see recordUpgrade of
// package integration for how it is made):
//
//	go test ./integration/vm -run TestTopologies/intel/upgrade -record aa95e30=/tmp/gpustack
var record = flag.String("record", "", "TestTopologies/intel/upgrade: write ../testdata/upgrade/COMMIT/drivers.txtar again, with the binary of that commit (`COMMIT=BINARY`)")

const (
	upgradeDir      = "../testdata/upgrade"
	bootPlaceholder = "00000000-0000-0000-0000-000000000000"
	upgradeJournal  = "/var/lib/gpustack/journal"
)

// upgradeCard is a card whose functions have drivers of the host.
var upgradeCard = []string{"0000:02:00.0", "0000:02:00.1"}

// laterFields adds fields that this release does not know to an entry, its drivers and their
// states.
var laterFields = strings.NewReplacer(`"schema":`, `"later":{"a":[1]},"schema":`, `"boot_id":`, `"later":1,"boot_id":`, `"address":`, `"later":null,"address":`, `"driver":`, `"later":"","driver":`)

// undoesEarlierEntries: host bind and host release of earlier commits are undone, and recovered
// where they were interrupted, with the outcome that they had with those commits.
func undoesEarlierEntries(m machine) {
	if commit, _, ok := strings.Cut(*record, "="); ok {
		recordEntries(m, commit)
		return
	}
	files, err := filepath.Glob(filepath.Join(upgradeDir, "*/drivers.txtar"))
	if err != nil || len(files) == 0 {
		m.t.Fatalf("%d files, %v", len(files), err)
	}
	m.run("modprobe", "vfio_iommu_type1")
	m.run("modprobe", vfioPCI)
	first := m.held()
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			m.t.Fatal(err)
		}
		sections := map[string]string{}
		var names []string
		for _, f := range archive.Files {
			sections[f.Name] = string(f.Data)
			if name, ok := strings.CutSuffix(f.Name, "/entry"); ok {
				names = append(names, name)
			}
		}
		// A later release has fields that this one does not know.
		for _, section := range []string{"/entry", "/drivers", "/undo"} {
			sections["bind by a later release"+section] = laterFields.Replace(sections["bind"+section])
		}
		for _, name := range append(names, "bind by a later release") {
			when := filepath.Base(filepath.Dir(file)) + " " + name
			m.holdBy(sections[name+"/drivers"])
			m.run("busybox", "rm", "-rf", upgradeJournal)
			m.write(upgradeJournal+"/0001.json", strings.ReplaceAll(sections[name+"/entry"], bootPlaceholder, m.boot()))
			want := sections[name+"/undo"]
			reply := m.try("gpustack", "undo", "--yes", "--live")
			if want == "" {
				if want = sections[name+"/drivers"]; !strings.Contains(reply.Stderr, "nothing to undo") {
					m.t.Errorf("%s: exit status %d, want nothing to undo: %s", when, reply.Status, reply.Stderr)
				}
			} else if reply.Status != 0 {
				m.t.Errorf("%s: exit status %d: %s", when, reply.Status, reply.Stderr)
			}
			if diff := cmp.Diff(want, m.held()); diff != "" {
				m.t.Errorf("%s: undone (-want +got):\n%s\n%s", when, diff, reply.Stderr)
			}
			if m.unfinished() {
				m.t.Errorf("%s: an entry is left: %s", when, m.run("gpustack", "history"))
			}
		}
	}
	m.holdBy(first)
	m.run("busybox", "rm", "-rf", "/var/lib/gpustack")
}

// recordEntries writes the entries that the binary of a commit leaves: done, undone, and killed
// with the functions unchanged, half-way and changed, as far as kills meet them.
func recordEntries(m machine, commit string) {
	device := []string{"--yes", "--device", upgradeCard[0]}
	bind := slices.Concat([]string{"gpustack", "host", "bind", "--live"}, device)
	release := slices.Concat([]string{"gpustack", "host", "release"}, device)
	undo := []string{"gpustack", "undo", "--yes", "--live"}
	m.run("modprobe", "vfio_iommu_type1")
	m.run("modprobe", vfioPCI)
	first := m.held()
	archive := &txtar.Archive{Comment: []byte("host bind and host release, as the binary of " + commit + " left them (integration/vm/upgrade_test.go).\n")}
	names := map[string]bool{}
	// keep records what is left now, once for each name, and undoes it.
	keep := func(name string) {
		entry := m.run("sh", "-c", "cat "+upgradeJournal+"/*.json ")
		if names[name] || strings.TrimSpace(entry) == "" || strings.Count(entry, `"schema"`) != 1 {
			return
		}
		names[name] = true
		held := m.held()
		entry = strings.ReplaceAll(entry, m.boot(), bootPlaceholder)
		entry = regexp.MustCompile(`"(started|ended)": "[^"]*"`).ReplaceAllString(entry, `"$1": "2026-11-22T07:30:04Z"`)
		after := ""
		if reply := m.try(undo...); reply.Status == 0 {
			after = m.held()
		} else if !strings.Contains(reply.Stderr, "nothing to undo") {
			m.t.Fatalf("%s: %s", name, reply.Stderr)
		}
		archive.Files = append(archive.Files, txtar.File{Name: name + "/entry", Data: []byte(entry)},
			txtar.File{Name: name + "/drivers", Data: []byte(held)}, txtar.File{Name: name + "/undo", Data: []byte(after)})
	}
	renew := func(held string) {
		m.run("busybox", "rm", "-rf", upgradeJournal)
		m.holdBy(held)
	}
	// killed runs a command from a state, kills it at 40 moments, and keeps what is left.
	killed := func(name string, from func(), argv []string) {
		from()
		before := m.held()
		takes := m.try(argv...).Took
		after := m.held()
		for i := range 40 {
			from()
			reply, err := m.Ask(m.t.Context(), agent.Request{Argv: argv, Kill: takes*time.Duration(i)/40 + 1})
			if err != nil {
				m.t.Fatal(err)
			}
			if reply.Status >= 0 || !m.unfinished() {
				continue
			}
			place := "half-way"
			switch m.held() {
			case before:
				place = "unchanged"
			case after:
				place = "changed"
			}
			keep(name + " killed, " + place)
		}
	}
	renew(first)
	m.run(bind...)
	bound := m.held()
	keep("bind")
	renew(first)
	m.run(bind...)
	m.run(undo...)
	keep("bind undone")
	renew(bound)
	m.run(release...)
	keep("release")
	killed("bind", func() { renew(first) }, bind)
	killed("undo", func() { renew(first); m.run(bind...) }, undo)
	killed("release", func() { renew(bound) }, release)
	renew(first)
	file := filepath.Join(upgradeDir, commit, "drivers.txtar")
	if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
		m.t.Fatal(err)
	}
	m.t.Logf("%s: %d entries", file, len(names))
}

// held returns the driver and the override of each function of the card, in the form of
// NAME/drivers.
func (m machine) held() string {
	m.t.Helper()
	drivers := m.drivers()
	var text strings.Builder
	for _, function := range upgradeCard {
		override := strings.TrimSpace(m.run("cat", "/sys/bus/pci/devices/"+function+"/driver_override"))
		fmt.Fprintf(&text, "%s %s %s\n", function, orDash(drivers[function]), orDash(strings.ReplaceAll(override, "(null)", "")))
	}
	return text.String()
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// holdBy gives the functions the drivers and the overrides of a text that held returned.
func (m machine) holdBy(held string) {
	m.t.Helper()
	for line := range strings.Lines(held) {
		fields := strings.Fields(line)
		m.run("sh", "-ec", `
d=/sys/bus/pci/devices/$1
if [ "$(basename "$(readlink $d/driver)")" != "$2" ]; then
	[ ! -e $d/driver ] || echo $1 >$d/driver/unbind
	if [ "$2" != - ]; then
		echo $2 >$d/driver_override
		echo $1 >/sys/bus/pci/drivers_probe
	fi
fi
[ "$3" = - ] && echo >$d/driver_override || echo $3 >$d/driver_override
`, "sh", fields[0], fields[1], fields[2])
	}
	if diff := cmp.Diff(held, m.held()); diff != "" {
		m.t.Fatalf("(-want +got):\n%s", diff)
	}
}

// boot returns the id of the machine's boot.
func (m machine) boot() string {
	m.t.Helper()
	return strings.TrimSpace(m.run("cat", "/proc/sys/kernel/random/boot_id"))
}

// write writes a file of root's, and the folder that it is in.
func (m machine) write(name, text string) {
	m.t.Helper()
	reply, err := m.Ask(m.t.Context(), agent.Request{
		Argv: []string{"sh", "-ec", `umask 077; [ -d "${1%/*}" ] || busybox mkdir -p "${1%/*}"; cat >"$1"`, "sh", name}, Stdin: text,
	})
	if err != nil || reply.Status != 0 {
		m.t.Fatalf("%s: %v: %s", name, err, reply.Stderr)
	}
}
