package integration

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

// playDrivers is the part of a kernel that moves functions between drivers as files are written. A
// write to a file of a tree leaves the rest of what was there. One read takes the whole text: the
// second read of cat would add the end of a longer name that is written meanwhile. After the file
// "ended" was made it looks once more.
const playDrivers = `
S="$ROOT/../sys/bus/pci" last=
while [ -z "$last" ]; do
	[ ! -e "$ROOT/../ended" ] || last=1
	for f in "$S"/devices/*/driver_override; do
		text=$(dd if="$f" bs=99 count=1 status=none; echo .)
		for name in pci-stub nouveau snd_hda_intel; do
			case "$text" in "$name"?.) ;; "$name"*) echo "$name" >"$f" ;; esac
		done
		case "$text" in "
"*) echo "(null)" >"$f" ;; esac
	done
	for f in "$S"/drivers/*/unbind; do
		a=$(cat "$f")
		[ -z "$a" ] || { : >"$f"; rm -f "$S/devices/$a/driver"; }
	done
	a=$(cat "$S/drivers_probe")
	if [ -n "$a" ]; then
		: >"$S/drivers_probe"
		ln -s "../../../../bus/pci/drivers/$(cat "$S/devices/$a/driver_override")" "$S/devices/$a/driver"
	fi
	sleep 0.02
done`

// TestUpgradeDrivers: what host bind and host release of commit 47ed7fd have recorded of this boot
// is listed and undone, and a host bind that was killed is rolled back, on a played kernel.
func TestUpgradeDrivers(t *testing.T) {
	const function = "sys/devices/pci0000:80/0000:80:02.0/0000:84:00."
	archive, err := txtar.ParseFile("testdata/upgrade/47ed7fd/played-drivers.txtar")
	if err != nil {
		t.Fatal(err)
	}
	host, guests := []string{"nouveau", "snd_hda_intel"}, []string{"pci-stub", "pci-stub"}
	for name, test := range map[string]struct {
		drivers, overrides []string // as the binary left them
		listed             []string // statuses in the history before
		want               []string // drivers after the undo
		says               string
		after              []string // statuses after the undo
	}{
		"bound":    {guests, guests, []string{"done"}, host, "entry 1 is undone", []string{"undone"}},
		"released": {host, []string{"(null)", "(null)"}, []string{"done", "done"}, guests, "entry 2 is undone", []string{"done", "undone"}},
		"killed":   {[]string{"pci-stub", ""}, guests, []string{"applying"}, host, "entry 1 was interrupted: rolled back", []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := layRebuild(t)
			write := func(file, text string) {
				t.Helper()
				file = filepath.Join(root, file)
				if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			for _, driver := range []string{"pci-stub", "nouveau", "snd_hda_intel"} {
				write("sys/bus/pci/drivers/"+driver+"/unbind", "")
			}
			write("sys/bus/pci/drivers_probe", "")
			for i, number := range []string{"0", "1"} {
				link := filepath.Join(root, function+number, "driver")
				if err := os.Remove(link); err != nil {
					t.Fatal(err)
				}
				if driver := test.drivers[i]; driver != "" {
					if err := os.Symlink("../../../../bus/pci/drivers/"+driver, link); err != nil {
						t.Fatal(err)
					}
				}
				write(function+number+"/driver_override", test.overrides[i]+"\n")
			}
			for _, f := range archive.Files {
				if state, file, _ := strings.Cut(f.Name, "/"); state == name {
					boot := strings.TrimSpace(read(t, "/proc/sys/kernel/random/boot_id"))
					write("var/lib/gpustack/journal/"+file, strings.ReplaceAll(string(f.Data), "BOOT", boot))
				}
			}
			if diff := cmp.Diff(test.listed, statuses(t, root)); diff != "" {
				t.Errorf("history (-want +got):\n%s", diff)
			}

			// Who uses a function is read from all processes of the machine, as in
			// TestInterruptedDrivers.
			cmd := mounted(root, "sh", "-ec", `
				mkdir "$ROOT/../ns"
				ln -s "pid:[4026531836]" "$ROOT/../ns/pid"
				for n in mnt net; do ln -s "$(readlink "$ROOT/proc/1/ns/$n")" "$ROOT/../ns/$n"; done
				mount --bind "$ROOT/../ns" "$ROOT/proc/1/ns"
				mount -t proc proc /proc
				sh -c "$0" &
				status=0
				"$@" || status=$?
				: >"$ROOT/../ended"
				wait
				exit $status`, playDrivers, gpustack, "undo", "--live", "--root", root, "--yes")
			cmd.Args = slices.Insert(cmd.Args, 1, "--pid", "--fork")
			if out, talk, status := try(t, cmd); status != 0 || !strings.Contains(talk, "gpustack: "+test.says) {
				t.Errorf("undo: exit status %d: %s%s", status, out, talk)
			}
			for i, number := range []string{"0", "1"} {
				target, err := os.Readlink(filepath.Join(root, function+number, "driver"))
				override := strings.TrimSpace(read(t, filepath.Join(root, function+number, "driver_override")))
				free := map[bool]string{true: "pci-stub", false: "(null)"}[test.want[i] == "pci-stub"]
				if err != nil || filepath.Base(target) != test.want[i] || override != free {
					t.Errorf("function %s: driver %s, override %s, want %s: %v", number, target, override, test.want[i], err)
				}
			}
			if diff := cmp.Diff(test.after, statuses(t, root)); diff != "" {
				t.Errorf("history after undo (-want +got):\n%s", diff)
			}
		})
	}
}
