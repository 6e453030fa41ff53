package host_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host"
)

// TestParseMounts: fields are separated by single spaces, so that one may be empty.
func TestParseMounts(t *testing.T) {
	root := host.Mount{Source: "/dev/sda1", Place: "/", Kind: "ext4", Options: []string{"rw", "relatime"}}
	for _, test := range []struct {
		name, text string
		want       []host.Mount
		err        string
	}{
		{"nothing is mounted", "", nil, ""},
		{"a disk", "/dev/sda1 / ext4 rw,relatime 0 0\n", []host.Mount{root}, ""},
		{"the fields that count", "/dev/sda1 / ext4 rw,relatime", []host.Mount{root}, ""},
		{"no source", " /run tmpfs rw 0 0\n/dev/sda1 / ext4 rw,relatime 0 0\n", []host.Mount{{Place: "/run", Kind: "tmpfs", Options: []string{"rw"}}, root}, ""},
		{"escapes", `nas:/a\040b\043c /m\011n\012o\134040\040 nfs4 rw,x=a\054b 0 0`,
			[]host.Mount{{Source: "nas:/a b#c", Place: "/m\tn\no\\040 ", Kind: "nfs4", Options: []string{"rw", `x=a\054b`}}}, ""},
		{"white space that is not escaped", "a\u00a0b /c\rd\ve cifs rw,username=a b 0 0\n",
			[]host.Mount{{Source: "a\u00a0b", Place: "/c\rd\ve", Kind: "cifs", Options: []string{"rw", "username=a b"}}}, ""},
		{"three fields", "/dev/sda1 / ext4\n", nil, `not a mount: "/dev/sda1 / ext4"`},
		{"an empty line", "\n", nil, `not a mount: ""`},
	} {
		got, err := host.ParseMounts(test.text)
		if diff := cmp.Diff(test.want, got); diff != "" || text(err) != test.err {
			t.Errorf("%s: %v, want %s (-want +got):\n%s", test.name, err, test.err, diff)
		}
	}
}

func TestParseMountInfo(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       []host.Mount
		err        string
	}{
		{"optional fields", "36 35 98:0 /mnt1 /mnt2 rw,noatime shared:1 master:2 propagate_from:1 unbindable - ext3 /dev/root rw,errors=continue\n",
			[]host.Mount{{Source: "/dev/root", Place: "/mnt2", Kind: "ext3", Options: []string{"rw", "errors=continue"}, Number: "98:0"}}, ""},
		{"no optional fields", `1 0 0:42 /a\040-\040b /c\040-\040d rw - fuse.x a\040b rw`,
			[]host.Mount{{Source: "a b", Place: "/c - d", Kind: "fuse.x", Options: []string{"rw"}, Number: "0:42"}}, ""},
		{"no source", "1 0 0:42 / /run rw - tmpfs  rw,size=1k\n", []host.Mount{{Place: "/run", Kind: "tmpfs", Options: []string{"rw", "size=1k"}, Number: "0:42"}}, ""},
		{"options with spaces", "1 0 0:42 / /m rw - cifs //nas/x rw,username=a - b\n",
			[]host.Mount{{Source: "//nas/x", Place: "/m", Kind: "cifs", Options: []string{"rw", "username=a - b"}, Number: "0:42"}}, ""},
		{"no dash", "1 0 8:1 / / rw ext4 /dev/sda1 rw\n", nil, `not a mount: "1 0 8:1 / / rw ext4 /dev/sda1 rw"`},
		{"five fields", "1 0 8:1 / / - ext4 /dev/sda1 rw\n", nil, `not a mount: "1 0 8:1 / / - ext4 /dev/sda1 rw"`},
		{"no options", "1 0 8:1 / / rw - ext4 /dev/sda1\n", nil, `not a mount: "1 0 8:1 / / rw - ext4 /dev/sda1"`},
	} {
		got, err := host.ParseMountInfo(test.text)
		if diff := cmp.Diff(test.want, got); diff != "" || text(err) != test.err {
			t.Errorf("%s: %v, want %s (-want +got):\n%s", test.name, err, test.err, diff)
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// FuzzParseMounts: no line makes the parsers panic, and each mount has the fields of its line.
func FuzzParseMounts(f *testing.F) {
	f.Add("/dev/sda1 / ext4 rw 0 0\n", "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n")
	f.Add(" / tmpfs rw 0 0\n", "1 0 0:42 / / rw -  - \n")
	f.Fuzz(func(t *testing.T, mounts, info string) {
		for _, parsed := range []func() ([]host.Mount, error){
			func() ([]host.Mount, error) { return host.ParseMounts(mounts) }, func() ([]host.Mount, error) { return host.ParseMountInfo(info) },
		} {
			all, err := parsed()
			for _, m := range all {
				if err != nil || m.Options == nil {
					t.Errorf("%+v, %v", m, err)
				}
			}
		}
	})
}
