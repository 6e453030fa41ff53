package edit_test

import (
	"testing"

	"gpustack/host/edit"
	"gpustack/host/hosttest"
)

// TestKeepWording: a file that gpustack wrote remains as it is if only comments of the planned one
// differ, and is rewritten if anything else does, or if its hash is not the recorded one.
func TestKeepWording(t *testing.T) {
	const file, earlier = "/etc/modprobe.d/zz-gpustack.conf", "#!/bin/sh\n# Made earlier.\n\n\t# two\n# lines\noptions a # b\n# /etc/modprobe.d/a.conf:3 has c\n"
	for name, test := range map[string]struct {
		planned  string
		recorded string // content whose hash is recorded
		mode     uint32
		want     edit.Action
	}{
		"the same":             {earlier, earlier, 0o644, edit.None},
		"other comments":       {"#!/bin/sh\n# Written now.\n\noptions a # b\n#\n# /etc/modprobe.d/a.conf:3 has c\n", earlier, 0o644, edit.None},
		"another mode":         {"#!/bin/sh\n# Written now.\n\noptions a # b\n# /etc/modprobe.d/a.conf:3 has c\n", earlier, 0o755, edit.Update},
		"edited since":         {"#!/bin/sh\n# Written now.\n\noptions a # b\n# /etc/modprobe.d/a.conf:3 has c\n", "# Made earlier.\n", 0o644, edit.Update},
		"another line":         {"#!/bin/sh\n# Made earlier.\n\noptions a # d\n# /etc/modprobe.d/a.conf:3 has c\n", earlier, 0o644, edit.Update},
		"a line is missing":    {"#!/bin/sh\n# Made earlier.\n\n# /etc/modprobe.d/a.conf:3 has c\n", earlier, 0o644, edit.Update},
		"another interpreter":  {"#!/bin/bash\n# Made earlier.\n\noptions a # b\n# /etc/modprobe.d/a.conf:3 has c\n", earlier, 0o644, edit.Update},
		"another fact":         {"#!/bin/sh\n# Made earlier.\n\noptions a # b\n# /etc/modprobe.d/a.conf:4 has c\n", earlier, 0o644, edit.Update},
		"an option as comment": {"#!/bin/sh\n# Made earlier.\n\n# options a # b\n# /etc/modprobe.d/a.conf:3 has c\n", earlier, 0o644, edit.Update},
	} {
		t.Run(name, func(t *testing.T) {
			root := hosttest.Lay(t, "-- "+file[1:]+" --\n"+earlier)
			c, err := edit.Put(root, file, []byte(test.planned), test.mode, true)
			if err != nil {
				t.Fatal(err)
			}
			hash := (&edit.File{Content: []byte(test.recorded)}).Hash()
			kept := edit.Plan{c}.KeepWording(func(name, h string) bool { return name == file && h == hash })
			if got := kept[0].Action(); got != test.want {
				t.Errorf("%s, want %s:\n%s", got, test.want, kept[0].Diff())
			}
			if name == "another mode" && string(kept[0].After.Content) != earlier {
				t.Errorf("the content changes with the mode:\n%s", kept[0].Diff())
			}
			if c.After.Equal(kept[0].After) != (string(kept[0].After.Content) == test.planned) {
				t.Error("the plan that was given is changed")
			}
		})
	}

	root := hosttest.Lay(t, "-- etc/other --\n")
	created, err := edit.Put(root, file, []byte("# new\n"), 0o644, false)
	if err != nil {
		t.Fatal(err)
	}
	removed, err := edit.Observe(root, "/etc/other").Remove("/etc/other")
	if err != nil {
		t.Fatal(err)
	}
	all := edit.Plan{created, removed}.KeepWording(func(string, string) bool { return true })
	if all[0].Action() != edit.Create || all[1].Action() != edit.Delete {
		t.Errorf("%s, %s: files that are created and removed are no earlier wording", all[0].Action(), all[1].Action())
	}
}
