package chain

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/integration/vm"
)

// TestGRUBImage: Nova accepts the disk with GRUB as a raw image. Its judge is
// do_image_deep_inspection (nova/virt/images.py), or what the release has of it.
func TestGRUBImage(t *testing.T) {
	const script = `
import sys
try:
    from oslo_utils.imageutils import format_inspector
except ImportError:  # before 2025.1
    from nova.image import format_inspector
found = format_inspector.detect_file_format(sys.argv[1])
print(found)
check = found.safety_check()
print(check)
`
	grub, err := vm.Package(t.Context(), "grub-pc-bin")
	hosttest.NoError(t, err)
	disk := filepath.Join(t.TempDir(), "disk")
	hosttest.NoError(t, makeGRUB(t.Context(), grub, disk))
	out, err := exec.CommandContext(t.Context(), "/usr/bin/python3", "-c", script, disk).CombinedOutput()
	words := strings.Fields(string(out))
	if err != nil || len(words) != 2 || words[0] != "gpt" && words[0] != "raw" || words[1] == "False" {
		t.Errorf("%v\n%s", err, out)
	}
}
