package main

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/change"
	"gpustack/host/edit"
	"gpustack/host/hosttest"
)

// TestPurposes: a plan names each file that gpustack generates in one line with its purpose,
// whichever example or shape the plan is of: diffs of new files would hide what changes in files of
// others.
func TestPurposes(t *testing.T) {
	t.Parallel()
	machines := readShapes(t)
	for name := range exampleSelections() {
		text, err := os.ReadFile("../../examples/" + name + ".txtar")
		if err != nil {
			t.Fatal(err)
		}
		machines = append(machines, shape{name: name, root: hosttest.Lay(t, string(text))})
	}
	seen := map[string]bool{}
	for _, s := range machines {
		for _, line := range s.lines(t, []string{
			"host prepare" + exampleSelections()[s.name], "rdma prepare --device ADDRESS --vfs 2 --netns exclusive",
			"container prepare --device GPU", "container prepare --device GPU --static", "container prepare --hca ADDRESS", "container prepare --hca ADDRESS --static",
		}) {
			o := s.run(t, line+" --dry-run -o json")
			if o.status == 1 {
				continue // the machine is not one for it
			}
			var document struct {
				Changes []struct{ File, Action string }
				AtBoot  []struct{ File, Action string } `json:"at_boot"`
			}
			if err := json.Unmarshal([]byte(o.stdout), &document); err != nil {
				t.Fatalf("%s: %s: %v\n%s", s.name, line, err, o.stdout)
			}
			printed := s.run(t, line+" --dry-run").stdout
			for _, c := range append(document.Changes, document.AtBoot...) {
				if c.Action != string(edit.Create) || strings.HasPrefix(c.File, change.Dir) {
					continue
				}
				seen[c.File] = true
				if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(c.File) + ` +[0-9]+ +[^ ]`).MatchString(printed) {
					t.Errorf("%s: %s: %s has no purpose:\n%s", s.name, line, c.File, printed)
				}
			}
		}
	}
	want := []string{
		"/etc/cdi/gpustack-gpu.json",
		"/etc/cdi/gpustack-hca.json",
		"/etc/default/grub.d/zz-gpustack.cfg",
		"/etc/dracut.conf.d/zz-gpustack.conf",
		"/etc/initramfs-tools/hooks/gpustack",
		"/etc/initramfs-tools/scripts/init-top/gpustack",
		"/etc/modprobe.d/gpustack-rdma.conf",
		"/etc/modprobe.d/zz-gpustack.conf",
		"/etc/modules-load.d/gpustack-rdma.conf",
		"/etc/modules-load.d/gpustack.conf",
		"/etc/systemd/system/gpustack-boot.service",
		"/etc/systemd/system/multi-user.target.d/gpustack-boot.conf",
		"/run/cdi/gpustack-gpu.json",
		"/run/cdi/gpustack-hca.json",
		"/usr/lib/dracut/modules.d/99gpustack/gpustack.sh",
		"/usr/lib/dracut/modules.d/99gpustack/module-setup.sh",
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(seen))); diff != "" {
		t.Errorf("files of all plans (-want +got):\n%s", diff)
	}
}
