package cdi_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	library "tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"gpustack/host"
	"gpustack/host/cdi"
	"gpustack/host/hosttest"
)

func texts(problems []cdi.Problem) []string {
	var all []string
	for _, p := range problems {
		all = append(all, fmt.Sprintf("%s %s: %s", p.Status, p.Kind, p))
	}
	return all
}

const oneDevice = `{"cdiVersion":"0.5.0","kind":"example.com/gpu","devices":[{"name":"0","containerEdits":{"env":["A=1"]}}]}` + "\n"

// TestFolders tells apart folders that are absent, unreadable and one folder under two names.
func TestFolders(t *testing.T) {
	for _, c := range []struct {
		name, tree string
		files      []string
		problems   []string
	}{
		{"nothing", "mkdir etc", nil, nil},
		{"/var/run is a link", "symlink var/run -> /run\n-- run/cdi/a.json --\n" + oneDevice, []string{"/run/cdi/a.json"}, nil},
		{"/var/run is a relative link", "symlink var/run -> ../run\n-- run/cdi/a.json --\n" + oneDevice, []string{"/run/cdi/a.json"}, nil},
		{"a tree without /var/run", "-- run/cdi/a.json --\n" + oneDevice, []string{"/run/cdi/a.json"}, nil},
		{
			"a folder is a file", "-- etc/cdi --\n" + oneDevice + "-- run/cdi/a.json --\n" + oneDevice, []string{"/run/cdi/a.json"},
			[]string{"fail unreadable: /etc/cdi: the folder cannot be read: not a directory"},
		},
		{
			"the last folder is a file", "-- etc/cdi/a.json --\n" + oneDevice + "-- run/cdi --\n" + oneDevice, []string{"/etc/cdi/a.json"},
			[]string{"fail unreadable: /run/cdi: the folder cannot be read: not a directory"},
		},
		{
			"/etc/cdi is a link to the other folder", "symlink etc/cdi -> /run/cdi\n-- run/cdi/a.json --\n" + oneDevice, []string{"/etc/cdi/a.json", "/run/cdi/a.json"},
			[]string{"warn shadowed: /etc/cdi/a.json: kind: example.com/gpu is also used in /run/cdi/a.json, which takes precedence for example.com/gpu=0"},
		},
		{
			"a loop of links", "symlink etc/cdi/a.json -> b.json\nsymlink etc/cdi/b.json -> a.json\n", []string{"/etc/cdi/a.json", "/etc/cdi/b.json"},
			[]string{
				"fail unreadable: /etc/cdi/a.json: the file cannot be read: too many levels of symbolic links",
				"fail unreadable: /etc/cdi/b.json: the file cannot be read: too many levels of symbolic links",
			},
		},
		{"a link out of the root", "symlink etc/cdi/a.json -> ../../../../../../etc/passwd\n", []string{"/etc/cdi/a.json"}, []string{"fail unreadable: /etc/cdi/a.json: the link leads to no file"}},
	} {
		root := hosttest.Lay(t, c.tree)
		folders := cdi.Read(root)
		var files []string
		for _, f := range folders.Files {
			files = append(files, f.Path)
		}
		hosttest.EqualIn(t, c.name, [][]string{c.files, c.problems}, [][]string{files, texts(folders.All())})
	}
}

// TestReadUnreadable reads a file without permission, which root has for every file.
func TestReadUnreadable(t *testing.T) {
	root := hosttest.Lay(t, "-- etc/cdi/a.json --\n"+oneDevice)
	hosttest.NoError(t, os.Truncate(root.Path("etc/cdi/a.json"), 5<<20))
	folders := cdi.Read(root)
	want := []string{"fail unreadable: /etc/cdi/a.json: the file cannot be read: larger than 4194304 bytes"}
	if diff := gocmp.Diff(want, texts(folders.All())); diff != "" || folders.Edits("example.com/gpu=0") != nil {
		t.Error(diff)
	}
}

// TestDevices tells the file that wins from those that it shadows and from conflicts.
func TestDevices(t *testing.T) {
	spec := func(names ...string) string {
		var devices []string
		for _, name := range names {
			devices = append(devices, fmt.Sprintf(`{"name":%q,"containerEdits":{"env":["A=1"]}}`, name))
		}
		return fmt.Sprintf(`{"cdiVersion":"0.5.0","kind":"example.com/gpu","devices":[%s]}`+"\n", strings.Join(devices, ","))
	}
	folders := cdi.Read(hosttest.Lay(t, "-- etc/cdi/a.json --\n"+spec("0", "1",
		"2")+"-- etc/cdi/b.json --\n"+spec("2")+"-- run/cdi/c.json --\n"+spec("1", "2", "3")))
	want := []cdi.Device{
		{Name: "example.com/gpu=0", File: "/etc/cdi/a.json"},
		{Name: "example.com/gpu=1", File: "/run/cdi/c.json", Shadows: []string{"/etc/cdi/a.json"}},
		{Name: "example.com/gpu=2", Conflicts: []string{"/etc/cdi/a.json", "/etc/cdi/b.json"}},
		{Name: "example.com/gpu=3", File: "/run/cdi/c.json"},
	}
	hosttest.Equal(t, want, folders.Devices())
	for _, name := range []string{"example.com/gpu=9", "example.com/gpu=2"} {
		if folders.Edits(name) != nil || (cdi.Folders{}).Edits(name) != nil {
			t.Errorf("edits of %s", name)
		}
	}
}

func evergreen() specs.Spec {
	return specs.Spec{
		Kind: cdi.GPUKind,
		Devices: []specs.Device{
			{Name: "0000:84:00.0", ContainerEdits: specs.ContainerEdits{DeviceNodes: []*specs.DeviceNode{{Path: "/dev/nvidia0"}}}},
			{Name: "GPU-5f5e1c5a-1d8e-4b57-9f0e-2f4f0d1f7a11", ContainerEdits: specs.ContainerEdits{DeviceNodes: []*specs.DeviceNode{{Path: "/dev/nvidia0"}}}},
		},
		ContainerEdits: specs.ContainerEdits{
			Env:         []string{"NVIDIA_VISIBLE_DEVICES=void", "A=<&>"},
			DeviceNodes: []*specs.DeviceNode{{Path: "/dev/nvidiactl"}, {Path: "/dev/infiniband/rdma_cm", Type: "c", Permissions: "rw"}},
			Mounts: []*specs.Mount{{
				HostPath: "/usr/lib/x86_64-linux-gnu/libcuda.so.1", ContainerPath: "/usr/local/nvidia/lib64/libcuda.so.1", Options: []string{"ro", "nosuid", "nodev", "rbind", "rprivate"},
			}},
		},
	}
}

// TestText writes a spec, which the library reads from its folder as the same value.
func TestText(t *testing.T) {
	text, err := cdi.Text(evergreen())
	hosttest.NoError(t, err)
	again, err := cdi.Text(evergreen())
	if err != nil || string(again) != string(text) {
		t.Errorf("%v: written twice: %s\n%s", err, text, again)
	}
	file := filepath.Join(t.TempDir(), "gpustack.json")
	hosttest.NoError(t, os.WriteFile(file, text, 0o644))
	read, err := library.ReadSpec(file, 0)
	hosttest.NoError(t, err)
	want := evergreen()
	want.Version = "0.5.0"
	hosttest.Equal(t, &want, read.Spec)
	if s, problems := cdi.Parse("a.json", text); s == nil || len(problems) > 0 {
		t.Error(problems)
	}
	if !strings.HasSuffix(string(text), "}\n") || strings.Contains(string(text), "major") || !strings.Contains(string(text), `"A=<&>"`) {
		t.Errorf("%s", text)
	}
}

// TestTextRefuses names everything that the library would not accept, at once.
func TestTextRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*specs.Spec)
		want   []string
	}{
		"two values": {
			func(s *specs.Spec) { s.Devices[0].Name, s.ContainerEdits.Env = "-", []string{"A"} },
			[]string{"devices[0].name", `containerEdits: invalid container edits: invalid environment variable "A"`},
		},
		"a later version is needed": {func(s *specs.Spec) { s.ContainerEdits.AdditionalGIDs = []uint32{44} }, []string{`cdiVersion: "0.5.0": the spec version must be at least v0.7.0`}},
		"another version":           {func(s *specs.Spec) { s.Version = "0.6.0" }, []string{"cdiVersion 0.6.0, but only 0.5.0 is written"}},
		"no devices":                {func(s *specs.Spec) { s.Devices = nil }, []string{"devices: invalid spec, no devices"}},
		"an empty element":          {func(s *specs.Spec) { s.ContainerEdits.Mounts = []*specs.Mount{nil} }, []string{"a list has an empty element (null)"}},
	} {
		s := evergreen()
		c.change(&s)
		text, err := cdi.Text(s)
		if err == nil || text != nil {
			t.Errorf("%s: %v: %s", name, err, text)
			continue
		}
		for _, want := range c.want {
			hosttest.ContainsIn(t, name, want, err.Error())
		}
	}
}

// FuzzParse judges any bytes as the library does: both accept them, or neither does, and never with
// a crash of ours.
func FuzzParse(f *testing.F) {
	sets, err := filepath.Glob("testdata/sets/*.txtar")
	if err != nil || len(sets) == 0 {
		f.Fatal(err)
	}
	text, err := cdi.Text(evergreen())
	hosttest.NoError(f, err)
	f.Add(text)
	f.Add([]byte(`{"cdiVersion":"0.5.0","kind":"a/b","devices":[{"name":"c","containerEdits":{"deviceNodes":[null]}}],"containerEdits":{}}`))
	for _, file := range sets {
		data := hosttest.Read(f, file)
		for _, part := range strings.Split(data, " --\n")[1:] {
			content, _, _ := strings.Cut(part, "\n-- ")
			f.Add([]byte(content + "\n"))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		spec, problems := cdi.Parse("/etc/cdi/a.yaml", data)
		skipped, null := spec == nil, false
		for _, p := range problems {
			skipped = skipped || p.Skipped
			null = null || strings.Contains(p.Reason, "(null)")
			if p.File == "" || p.Reason == "" || p.Status != host.Fail && p.Status != host.Warn {
				t.Errorf("incomplete: %+v", p)
			}
		}
		if spec == nil && len(problems) == 0 {
			t.Error("no spec and no problem")
		}
		if null {
			return // the library crashes
		}
		file := filepath.Join(t.TempDir(), "a.yaml")
		hosttest.NoError(t, os.WriteFile(file, data, 0o600))
		read, err := library.ReadSpec(file, 0)
		if (err != nil) != skipped {
			t.Errorf("the library: %v, ours: %v", err, texts(problems))
		}
		if err == nil && !reflect.DeepEqual(read.Spec, spec) {
			t.Errorf("the library reads %+v, we read %+v", read.Spec, spec)
		}
	})
}

// BenchmarkRead reads a machine with 16 GPUs and 40 specs, each with the libraries of a driver.
func BenchmarkRead(b *testing.B) {
	root := Large(b)
	b.ReportAllocs()
	for b.Loop() {
		folders := cdi.Read(root)
		if len(folders.Files) != 40 || len(folders.All()) > 0 || len(folders.Devices()) != 40*16 {
			b.Fatal(len(folders.Files), texts(folders.All()))
		}
	}
}

// Large lays a machine with 16 GPUs and 40 specs.
func Large(t testing.TB) host.Root {
	t.Helper()
	var tree strings.Builder
	tree.WriteString("symlink var/run -> /run\n")
	for i := range 16 {
		fmt.Fprintf(&tree, "-- dev/nvidia%d --\nc 195:%d 666\n", i, i)
	}
	tree.WriteString("-- dev/nvidiactl --\nc 195:255 666\n-- dev/nvidia-uvm --\nc 511:0 666\n-- usr/bin/nvidia-cdi-hook --\n")
	var mounts []*specs.Mount
	for i := range 40 {
		name := fmt.Sprintf("/usr/lib/x86_64-linux-gnu/libnvidia-%d.so.1", i)
		fmt.Fprintf(&tree, "-- %s --\n", name[1:])
		mounts = append(mounts, &specs.Mount{HostPath: name, ContainerPath: name, Options: []string{"ro", "rbind"}})
	}
	for i := range 40 {
		s := specs.Spec{Kind: fmt.Sprintf("example.com/gpu%d", i), ContainerEdits: specs.ContainerEdits{
			Mounts: mounts, DeviceNodes: []*specs.DeviceNode{{Path: "/dev/nvidiactl"}, {Path: "/dev/nvidia-uvm"}},
		}}
		for g := range 16 {
			s.Devices = append(s.Devices, specs.Device{
				Name: fmt.Sprintf("0000:%02x:00.0", g), ContainerEdits: specs.ContainerEdits{DeviceNodes: []*specs.DeviceNode{{Path: fmt.Sprintf("/dev/nvidia%d", g)}}},
			})
		}
		text, err := cdi.Text(s)
		hosttest.NoError(t, err)
		fmt.Fprintf(&tree, "-- etc/cdi/gpu%02d.json --\n%s", i, text)
	}
	root := hosttest.Lay(t, tree.String())
	hosttest.NoError(t, os.Chmod(root.Path("usr/bin/nvidia-cdi-hook"), 0o755))
	return root
}
