package host_test

import (
	"testing"

	"gpustack/host"
	"gpustack/host/hosttest"
	"gpustack/host/snapshot"
)

// TestRecordedErrorsAreTheSame: what is read through links, and what is no file, is read with the
// same result in a snapshot.
func TestRecordedErrorsAreTheSame(t *testing.T) {
	root := hosttest.Lay(t, `
symlink lib -> usr/lib
symlink etc/grub2.cfg -> ../boot/grub2/grub.cfg
symlink etc/loop -> loop
mkdir etc/dir
-- usr/lib/modules/6.1/modules.dep --
dep
-- boot/grub2/grub.cfg --
menu
-- etc/file --
file
`)
	var tree snapshot.Tree
	names := []string{"lib/modules/6.1/modules.dep", "usr/lib/modules/6.1/modules.dep", "etc/grub2.cfg", "etc/dir", "etc/file/below", "etc/loop", "etc/absent"}
	read := map[string]string{}
	result := func(data []byte, err error) string {
		if err != nil {
			return host.Cause(err).Error()
		}
		return string(data)
	}
	recorded := root.Recorded(&tree)
	for _, name := range names {
		read[name] = result(recorded.ReadFile(name))
	}
	modules, err := recorded.ReadDir("lib/modules")
	if err != nil || len(modules) != 1 {
		t.Fatalf("%q, %v", modules, err)
	}
	dir := t.TempDir()
	hosttest.NoError(t, tree.Unpack(dir))
	again := hosttest.Root(t, dir)
	for _, name := range names {
		if got := result(again.ReadFile(name)); got != read[name] {
			t.Errorf("%s: %q, on the machine %q", name, got, read[name])
		}
	}
	for name, want := range map[string]string{"lib/modules": "/usr/lib/modules", "etc/grub2.cfg": "/boot/grub2/grub.cfg"} {
		if got, err := again.Real(name); got != want || err != nil {
			t.Errorf("%s is %s, %v, want %s", name, got, err, want)
		}
	}
}
