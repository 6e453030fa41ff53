package monitoring

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gpustack/host/hosttest"

	"github.com/google/go-cmp/cmp"
)

// restricted runs a program as a unit's settings restrict it, without a systemd to do so: every
// file system is read-only but for ReadWritePaths=, and the capabilities are those of
// CapabilityBoundingSet=. integration/vm starts the unit of host check in systemd.
const restricted = `
mount --make-rprivate /
mount --bind "$1" "$1"
findmnt --raw --noheadings --output TARGET | while read -r target; do
	case $target in "$1" | /dev* | /proc* | /sys*) continue ;; esac
	mount -o remount,bind,ro "$target" || echo "$target: hidden by another mount" >&2
done
for dir in "$2" "$2/etc/nova" /var /tmp; do
	if touch "$dir/probe"; then exit 99; fi
done
touch "$1/probe"
rm "$1/probe"
capabilities=$3
shift 3
exec setpriv --no-new-privs --bounding-set="$capabilities" --inh-caps="$capabilities" -- "$@"
`

// TestRepairUnit: with the restrictions of its unit, repair-migration reads a nova.conf of another
// user, reaches databases and Placement, and writes what it writes without them.
func TestRepairUnit(t *testing.T) {
	cloud := controller(t)
	stale(t)
	unit := hosttest.Read(t, "../../examples/monitoring/systemd/gpustack-repair-migration.service")
	setting := func(name string) string {
		t.Helper()
		found := regexp.MustCompile(`(?m)^`+name+`=(.*)$`).FindAllStringSubmatch(unit, -1)
		if len(found) != 1 {
			t.Fatalf("%d times %s=", len(found), name)
		}
		return found[0][1]
	}
	if setting("ProtectSystem") != "strict" || setting("NoNewPrivileges") != "yes" || setting("SuccessExitStatus") != "2" ||
		strings.Contains(unit, "PrivateNetwork=") {
		t.Errorf("another unit:\n%s", unit)
	}
	const conf = "etc/nova/nova.conf"
	hosttest.NoError(t, os.Chown(filepath.Join(cloud.root, conf), 64060, 64060))
	plain := lastRun.ReplaceAllString(hosttest.Read(t, cloud.writes(2, "repair-migration")), "$1")

	file := filepath.Join(cloud.collector, filepath.Base(setting("ReadWritePaths"))+".prom")
	argv := []string{"--mount", "sh", "-euc", restricted, "sh", cloud.collector, cloud.root,
		"-all,+" + strings.ToLower(strings.ReplaceAll(strings.ReplaceAll(setting("CapabilityBoundingSet"), "CAP_", ""), " ", ",+"))}
	argv = append(append(append(argv, "env"), cloud.env...), gpustack, "repair-migration", "--root", cloud.root, "--metrics", file)
	run(t, 2, "", "unshare", argv...)
	if diff := cmp.Diff(plain, lastRun.ReplaceAllString(hosttest.Read(t, file), "$1")); diff != "" ||
		!strings.Contains(plain, `gpustack_pci_rows{cell="cell1",verdict="stale"} 1`) {
		t.Errorf("(-root +unit):\n%s", diff)
	}
}
