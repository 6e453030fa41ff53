package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"path"
	"strings"
	"sync"
	"testing"

	"gpustack/cmd/gpustack/term"
	"gpustack/host/hosttest"
	"gpustack/host/snapshot"
	"gpustack/operate/node"
)

// secretNames are options with secrets: each word of the list in a name that is in use.
var secretNames = []string{"password", "rd.iscsi.password", "passwd", "inst.rootpw", "PWD", "luks_pass", "admin_pass", "passphrase", "client_secret",
	"systemd.set_credential", "cred", "api_token", "X-Amz-Signature", "X-Amz-Credential", "X-Amz-Security-Token", "sig", "auth", "proxy_auth", "psk",
	"api-key", "snmp.community", "private_data"}

// TestSnapshotSecrets plants a secret of every name in every file that a snapshot of a machine
// holds, as that file's readers would write it.
func TestSnapshotSecrets(t *testing.T) {
	root := hosttest.Lay(t, hosttest.Server{CPU: "GenuineIntel", More: `
-- proc/cmdline --
root=/dev/sda1 quiet
-- proc/mounts --
/dev/sda1 / ext4 rw 0 0
-- etc/fstab --
/dev/sda1 / ext4 rw 0 0
-- boot/grub/grub.cfg --
menuentry x {
linux /vmlinuz-6.1.0-28-amd64 root=/dev/sda1 ro quiet
}
-- etc/modprobe.d/x.conf --
options x y=z
-- etc/nova/nova.conf --
[DEFAULT]
my_ip = 10.0.0.1
-- etc/os-release --
ID=debian
-- etc/docker/daemon.json --
{"runtimes": {}}
`}.Archive())
	recorder := &textRecorder{text: map[string]string{}}
	u := term.UI{Talk: io.Discard, Quiet: true}
	node.ReadAll(context.Background(), newNode(&u, root.Recorded(recorder)))
	for _, name := range []string{"proc/cmdline", "proc/mounts", "etc/fstab", "etc/default/grub", "boot/grub/grub.cfg", "etc/modprobe.d/x.conf",
		"etc/nova/nova.conf", "etc/os-release", "etc/docker/daemon.json"} {
		if _, ok := recorder.text[name]; !ok {
			t.Errorf("a snapshot does not hold %s", name)
		}
	}
	for _, name := range []string{"etc/kernel/cmdline", "boot/loader/entries/x.conf", "etc/nvidia-container-runtime/config.toml"} { // of other machines
		recorder.text[name] = ""
	}
	const planted = "pl4nted"
	for name, text := range recorder.text {
		if strings.HasPrefix(name, "sys/") || strings.Contains(name, "lib/modules/") {
			continue // attributes of the kernel, lists of modules
		}
		for _, secret := range secretNames {
			url := "https://host/x?a=b&" + secret + "=" + planted + "&c=d"
			lines := []string{"x " + secret + "=" + planted + " y", secret + "=" + planted, "x " + secret + `="` + planted + ` y"`, "x y=" + url, "x " + url + " y"}
			switch {
			case path.Ext(name) == ".json":
				lines = append(lines, `{"`+secret+`":"`+planted+`","x":1}`, `{"x":1, "`+secret+`": "a\"`+planted+`"}`, `{"x":"`+url+`"}`)
			case strings.HasPrefix(name, "proc/"):
			case strings.HasSuffix(name, "fstab"):
				lines = append(lines, "//h/x /x cifs a,"+secret+"="+planted+",b 0 0")
			default:
				lines = append(lines, secret+" = "+planted, "\t"+secret+": "+planted, secret+` = "a `+planted+`"`, "x: "+url)
			}
			for _, line := range lines {
				data := []byte(text + line + "\n")
				got := node.MaskNova(name, snapshot.MaskBoot(name, data))
				if bytes.Contains(got, []byte(planted)) {
					t.Errorf("%s: %q", name, line)
				}
				if json.Valid([]byte(line)) && !json.Valid(snapshot.MaskBoot(name, []byte(line))) && path.Ext(name) == ".json" {
					t.Errorf("%s: %q is not JSON after masking", name, line)
				}
			}
		}
	}
}

// textRecorder keeps the texts of the files that are read.
type textRecorder struct {
	mu   sync.Mutex
	text map[string]string
}

func (r *textRecorder) File(name string, data []byte, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && data != nil {
		r.text[name] = string(data)
	}
}
func (*textRecorder) Mode(string, fs.FileMode)    {}
func (*textRecorder) Link(string, string, error)  {}
func (*textRecorder) Dir(string, []string, error) {}
