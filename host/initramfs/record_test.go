package initramfs

import (
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host"
	"gpustack/host/hosttest"
)

// recorder keeps the last content and error of each file.
type recorder struct {
	files map[string][]byte
	errs  map[string]error
}

func (r *recorder) File(name string, data []byte, err error) { r.files[name], r.errs[name] = data, err }
func (*recorder) Mode(string, fs.FileMode)                   {}
func (*recorder) Link(string, string, error)                 {}
func (*recorder) Dir(string, []string, error)                {}

// TestRecordedImage: a snapshot has a small image in place of each, which shows the same.
func TestRecordedImage(t *testing.T) {
	large := strings.Repeat("x", 100_000)
	for name, c := range map[string]struct {
		image   string
		least   bool // it is recorded as it is
		dropped bool // it is not recorded
	}{
		"tools": {image: early + cpioOf(
			member{name: "bin/sh", text: large},
			member{name: "init", text: "x"},
			member{name: "etc/modprobe.d/zz-gpustack.conf", text: "options\n"},
			member{name: "etc/modprobe.d/secret.conf", text: "options x password=SECRET\n"},
			member{name: orderName, text: "/" + scriptName + "\n"},
			member{name: scriptName, text: "script"},
			member{name: "usr/lib/modules/6.1/kernel/drivers/vfio/pci/vfio-pci.ko.xz", text: large},
			end)},
		"a directory in place of the script": {image: cpioOf(member{name: scriptName, mode: directory | 0o755}, end)},
		"malformed":                          {image: "070701" + "once upon a time", least: true},
		"malformed and large":                {image: "070701" + strings.Repeat("no number", 1<<18), dropped: true},
		"unknown compression":                {image: "what is this", least: true},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMemoryTest(t)
			m.write(imageName, c.image)
			rec := &recorder{map[string][]byte{}, map[string]error{}}
			want, wantErr := ReadEssence(m.root.Recorded(rec), imageName)
			recorded, err := rec.files["boot/initrd.img-6.1"], rec.errs["boot/initrd.img-6.1"]
			switch {
			case c.dropped:
				if err == nil || recorded != nil {
					t.Errorf("%d bytes, %v", len(recorded), err)
				}
				return
			case c.least && string(recorded) != c.image, len(recorded) > 4096:
				t.Errorf("%d bytes are recorded", len(recorded))
			}
			if strings.Contains(string(recorded), "SECRET") {
				t.Errorf("a password is recorded: %q", recorded)
			}
			hosttest.NoError(t, os.WriteFile(m.root.Path(imageName), recorded, 0o600))
			got, gotErr := ReadEssence(m.root, imageName)
			if diff := cmp.Diff(want, got); diff != "" || (wantErr == nil) != (gotErr == nil) || wantErr != nil && wantErr.Error() != gotErr.Error() {
				t.Errorf("%v, want %v (-want +got):\n%s", gotErr, wantErr, diff)
			}
		})
	}
}

var _ host.Recorder = (*recorder)(nil)
