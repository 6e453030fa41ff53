package ansible

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gpustack/host/hosttest"
	"gpustack/nova/cloud/cloudtest"
)

// roleFleet is an inventory of servers, each a file tree on this machine with a program of its own,
// and the cloud that they are compute nodes of.
type roleFleet struct {
	t         *testing.T
	dir       string
	cloud     *cloudtest.Cloud
	hosts     *cloudtest.Hosts
	servers   []*server
	inventory map[string]map[string]any // variables by server
}

// server is one of its servers.
type server struct {
	name, dir, root string
	node            *cloudtest.Node
}

// program is what a server, or the controller for a server, has as gpustack. It notes each command,
// and fails or stops at the one that the file fault names, once. host prepare is followed by what
// regenerates initramfs and menu: on a tree that is not this machine, gpustack leaves them.
const program = `#!/bin/sh
dir=%[1]q
# run: runs the command.
run() {
	%[3]s "$@" || return
	case " $* " in
	*" host prepare "*" --yes "*) sh "$dir/../regenerate" "$dir/root" >&2 ;;
	esac
}
failed='{"schema":1,"kind":"failure","errors":[{"message":"injected","hint":null}]}'
printf '%%s\n' "$*" >>"$dir/log.%[2]s"
printf '%%s\n' "$*" >>"$dir/../order"
fault=$dir/fault.%[2]s
if [ -f "$fault" ]; then
	{ read -r how; read -r nth; read -r pattern; } <"$fault"
	case " $* " in
	$pattern)
		if [ "$nth" = 1 ]; then
			mv "$fault" "$dir/met"
		else
			printf '%%s\n' "$how" $((nth - 1)) "$pattern" >"$fault"
			how=
		fi
		case $how in
		fail)
			echo "$failed"
			exit 1
			;;
		late)
			run "$@" >/dev/null
			echo "$failed"
			exit 1
			;;
		stop)
			echo $$ >"$dir/stopped"
			exec sleep 300
			;;
		esac
		;;
	esac
fi
run "$@"
`

// regenerate plays update-initramfs and update-grub in a tree: what a boot reads, without the boot
// and its time.
const regenerate = `set -eu
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -a "$1/." "$copy"
sed '/^while /d' %q | sh -s "$copy"
cp -a "$copy/boot/." "$1/boot"
`

// newRoleFleet lays out servers from an example.
func newRoleFleet(t *testing.T, names ...string) *roleFleet {
	t.Helper()
	boot, err := filepath.Abs("../../examples/boot.sh")
	hosttest.NoError(t, err)
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // for commands that run as another user
		t.Fatal(err)
	}
	f := &roleFleet{t: t, dir: dir, cloud: cloudtest.Start(t, 96), hosts: &cloudtest.Hosts{}, inventory: map[string]map[string]any{}}
	f.write("regenerate", fmt.Sprintf(regenerate, boot))
	f.write("boot.yml", rebootTasks(boot))
	f.write("upgrade.yml", upgradeTasks)
	f.write("ansible.cfg", "[defaults]\nforks = 4\nlocalhost_warning = false\nhost_key_checking = false\nlocal_tmp = "+f.dir+"/tmp\nremote_tmp = "+f.dir+
		"/tmp\n"+
		"interpreter_python = /usr/bin/python3\n[connection]\npipelining = true\n[galaxy]\ncache_dir = "+f.dir+"/galaxy\n")
	state := filepath.Join(f.dir, "state")
	hosttest.NoError(t, os.Mkdir(state, 0o700))
	hosttest.NoError(t, os.Chown(state, 65534, 65534))
	template := filepath.Join(f.dir, "template")
	f.command(gpustack, "host", "unpack", "../../examples/talk-2xk4200.txtar", template)
	for _, name := range names {
		s := &server{name: name, dir: filepath.Join(f.dir, name), node: &cloudtest.Node{Name: name, Zone: "nova", VCPU: 32, Memory: 65536, Disk: 1000}}
		s.root = filepath.Join(s.dir, "root")
		f.command("mkdir", s.dir)
		f.command("cp", "-a", template, s.root)
		f.live(s)
		f.write(name+"/node", fmt.Sprintf(program, s.dir, "node", gpustack))
		// Commands for Nova's API need no root.
		f.write(name+"/controller", fmt.Sprintf(program, s.dir, "controller",
			"setpriv --reuid=65534 --regid=65534 --clear-groups env XDG_STATE_HOME="+state+" "+gpustack))
		f.command("chmod", "755", s.dir+"/node", s.dir+"/controller")
		f.servers, f.hosts.Nodes = append(f.servers, s), append(f.hosts.Nodes, s.node)
		f.inventory[name] = map[string]any{
			"ansible_connection": "local", "ansible_python_interpreter": "/usr/bin/python3", "gpustack_node_root": s.root,
			"gpustack_node_binary":            s.dir + "/node",
			"gpustack_node_controller_binary": s.dir + "/controller",
		}
	}
	f.cloud.AddHosts(f.hosts)
	f.cloud.Add("1", "gpu.k4200.2", 8, 32768, 80, true, map[string]string{"pci_passthrough:alias": "K4200:2"})
	f.cloud.Images = []map[string]any{{"id": "9", "name": "debian-12", "status": "active", "min_disk": 2, "min_ram": 512, "size": 1}}
	f.cloud.Boot.Console = func(nonce, _ string) string {
		return "GPUSTACK-PROBE v1 nonce=" + nonce + " devices=2 0000:00:05.0=10de:11b4:ok 0000:00:06.0=10de:11b4:ok END\n"
	}
	return f
}

// rebootTasks are the tasks that play a reboot: /run is empty afterwards.
func rebootTasks(boot string) string {
	return fmt.Sprintf(`---
- name: Boot
  ansible.builtin.shell:
    cmd: sh %q {{ gpustack_node_root }} && rm -f {{ gpustack_node_root }}/run/gpustack-node.* && echo booted >>{{ gpustack_node_root }}/../log.node
- name: Lose the server
  ansible.builtin.set_fact:
    ansible_connection: ssh
    ansible_host: 127.0.0.1
    ansible_port: 1
  when: lost | default(false)
`, boot)
}

// upgradeTasks are the tasks that play an upgrade of packages.
const upgradeTasks = `---
- name: Upgrade
  ansible.builtin.copy:
    dest: "{{ gpustack_node_root }}/etc/upgraded"
    content: "6.12"
    mode: "0644"
  register: gpustack_node_upgraded
`

// live adds to a tree what a running server shows, so that its guests can be read.
func (f *roleFleet) live(s *server) {
	f.t.Helper()
	for name, content := range map[string]string{
		"etc/hostname": s.name + "\n", "proc/sys/kernel/hostname": s.name + "\n", "etc/machine-id": "3d12f0d5c3a94e7b8a6d2b1c0e9f8a7b\n",
		"proc/sys/kernel/random/boot_id": "b0b0\n",
		"proc/uptime":                    "3600.75 7000.00\n", "proc/stat": "btime 1772352000\n",
		"proc/1/stat": "1 (systemd) S 0 1 1 0 -1 4194560 1 1 1 1 1 1 1 1 20 0 1 0 1 1 1 1\n", "proc/1/cmdline": "/sbin/init\x00",
		"proc/50/stat":    "50 (nova-compute) S 1 1 1 0 -1 4194560 1 1 1 1 1 1 1 1 20 0 1 0 60000 1 1 1\n",
		"proc/50/cmdline": "/usr/bin/python3\x00/usr/bin/nova-compute\x00",
	} {
		f.write(s.name+"/root/"+name, content)
	}
	f.command("mkdir", "-p", s.root+"/proc/1/fd", s.root+"/proc/1/ns", s.root+"/proc/50/fd", s.root+"/etc/libvirt/qemu", s.root+"/run/libvirt/qemu")
	hosttest.NoError(f.t, os.Symlink("pid:[4026531836]", s.root+"/proc/1/ns/pid"))
}

func (f *roleFleet) write(name, content string) {
	f.t.Helper()
	file := filepath.Join(f.dir, name)
	hosttest.NoError(f.t, os.MkdirAll(filepath.Dir(file), 0o755))
	hosttest.NoError(f.t, os.WriteFile(file, []byte(content), 0o644))
}

func (f *roleFleet) command(program string, args ...string) {
	f.t.Helper()
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		f.t.Fatalf("%s %q: %v\n%s", program, args, err, out)
	}
}

// fault lets a command of a server, or of the controller for it, fail, or stop, where its words
// match a pattern for the nth time.
func (f *roleFleet) fault(whose, name, how string, nth int, pattern string) {
	f.t.Helper()
	f.write(name+"/fault."+whose, fmt.Sprintf("%s\n%d\n%s\n", how, nth, pattern))
}

// playbook returns a run of a playbook of the collection over the servers, as one wave.
func (f *roleFleet) playbook(name string, args ...string) *exec.Cmd {
	f.t.Helper()
	hosts := map[string]any{}
	for _, s := range f.servers {
		hosts[s.name] = f.inventory[s.name]
	}
	// What runs on the controller needs no root, whatever the inventory says.
	controller := map[string]any{"ansible_connection": "local", "ansible_python_interpreter": "/usr/bin/python3", "ansible_become": true,
		"ansible_become_exe": "/nonexistent/sudo"}
	inventory, err := json.Marshal(map[string]any{"all": map[string]any{"hosts": map[string]any{"localhost": controller},
		"children": map[string]any{"wave_00": map[string]any{"hosts": hosts}},
		"vars": map[string]any{
			"gpustack_node_reboot_tasks": f.dir + "/boot.yml", "gpustack_node_upgrade_tasks": f.dir + "/upgrade.yml",
			"gpustack_node_ready_retries": 1, "gpustack_node_ready_delay": 0, "gpustack_node_wait": "1s",
		}}})
	hosttest.NoError(f.t, err)
	f.write("inventory.json", string(inventory))
	cmd := exec.Command("ansible-playbook", append([]string{"-i", f.dir + "/inventory.json", name}, args...)...)
	cmd.Dir = f.dir
	cmd.Env = append(os.Environ(), "ANSIBLE_CONFIG="+f.dir+"/ansible.cfg", "ANSIBLE_COLLECTIONS_PATH="+collections, "HOME="+f.dir, "ANSIBLE_NOCOLOR=1",
		"PYTHONDONTWRITEBYTECODE=1", "PWD="+f.dir)
	for name, value := range f.cloud.Env() {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return cmd
}

// play runs a playbook to its end, and returns what it printed and the recap of each server.
func (f *roleFleet) play(name string, args ...string) (out string, recap map[string]recap) {
	f.t.Helper()
	cmd := f.playbook(name, args...)
	var printed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &printed
	began := time.Now()
	err := cmd.Run()
	f.t.Logf("%s %q: %v, %v, %v user, %v system", name, args, err, time.Since(began).Round(time.Second/10), cmd.ProcessState.UserTime(),
		cmd.ProcessState.SystemTime())
	if strings.Contains(printed.String(), f.cloud.Password) {
		f.t.Errorf("%s prints the password", name)
	}
	return printed.String(), recaps(printed.String())
}

// recap is what Ansible counts of the tasks of one server.
type recap struct{ changed, unreachable, failed, rescued string }

var recapLine = regexp.MustCompile(`(?m)^(\S+) +: ok=\d+ +changed=(\d+) +unreachable=(\d+) +failed=(\d+) +skipped=\d+ +rescued=(\d+)`)

func recaps(out string) map[string]recap {
	all := map[string]recap{}
	for _, m := range recapLine.FindAllStringSubmatch(out, -1) {
		all[m[1]] = recap{m[2], m[3], m[4], m[5]}
	}
	return all
}

// reason returns the text of the reason with which a server is disabled, and "" for one that is
// enabled.
func (s *server) reason() string {
	_, text, _ := strings.Cut(s.node.Disabled, ": ")
	return text
}

// log returns the commands of a server, or of the controller for it, since the last time, without
// what all of them have.
func (s *server) log(t *testing.T, whose string) []string {
	t.Helper()
	file := s.dir + "/log." + whose
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if err == nil {
		hosttest.NoError(t, os.Remove(file))
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		line = strings.NewReplacer(" -o json", "", " --root="+s.root, "", " -- "+s.name, "", " --role=compute", "", " --release=auto",
			"").Replace(strings.TrimSpace(line))
		lines = append(lines, line)
	}
	return lines
}

// tree returns a digest of the server's files.
func (s *server) tree(t *testing.T) string {
	t.Helper()
	sum := sha256.New()
	err := filepath.WalkDir(s.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		target, _ := os.Readlink(path)
		fmt.Fprintln(sum, path, target)
		if d.Type().IsRegular() {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			sum.Write(text)
		}
		return nil
	})
	hosttest.NoError(t, err)
	return hex.EncodeToString(sum.Sum(nil))
}

// verdict returns what host check says of the server.
func (s *server) verdict(t *testing.T) string {
	t.Helper()
	var report struct{ Verdict string }
	out, err := exec.Command(gpustack, "host", "check", "--root", s.root, "-o", "json").Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return report.Verdict
}

// conf returns nova.conf of the server.
func (s *server) conf(t *testing.T) string {
	t.Helper()
	return hosttest.Read(t, s.root+"/etc/nova/nova.conf")
}

// guestOn returns a server of a user on a host.
func (f *roleFleet) guestOn(host, status string, power int, alias string) cloudtest.Instance {
	specs := map[string]any{}
	if alias != "" {
		specs["pci_passthrough:alias"] = alias
	}
	return cloudtest.Instance{ID: "0a1b0000-0000-4000-8000-" + hex.EncodeToString([]byte(host + "------")[:6]), Name: "train", Host: host, Project: "p1",
		Created: time.Now().UTC(), Metadata: map[string]string{},
		More: map[string]any{"status": status, "user_id": "u1", "OS-EXT-STS:task_state": nil, "OS-EXT-STS:power_state": power,
			"OS-EXT-STS:vm_state": strings.ToLower(status),
			"flavor":              map[string]any{"original_name": "f", "extra_specs": specs}}}
}

// table writes a playbook with the role alone: no server ends the play of the others.
func (f *roleFleet) table() string {
	f.t.Helper()
	f.write("table.yml", "- hosts: wave_00\n  gather_facts: false\n  become: true\n  roles: [gpustack.nova.node]\n")
	return f.dir + "/table.yml"
}

// TestRoleNode: bare servers become compute nodes with GPUs. What is in the way leaves a server as
// it was, and a failure leaves it disabled with the step, at which the next run continues.
func TestRoleNode(t *testing.T) {
	t.Parallel() // Ansible waits for one program after the other
	f := newRoleFleet(t, "whole", "planned", "prepared", "busy", "off", "lost", "taken", "mine", "kolla", "early", "raced", "none", "posing", "empty")
	for _, name := range []string{"kolla", "early"} {
		f.command("mkdir", "-p", f.dir+"/"+name+"/root/etc/kolla/nova-compute")
		f.command("rm", "-r", f.dir+"/"+name+"/root/etc/nova")
		f.write(name+"/root/var/lib/dpkg/status", "") // its Nova is in containers
		// Two functions are offered, and they are not the GPUs.
		f.write(name+"/root/etc/kolla/nova-compute/nova.conf", `[DEFAULT]
my_ip = 192.0.2.11
[pci]
device_spec = {"vendor_id": "10de", "product_id": "0e0a"}
`)
		f.inventory[name]["gpustack_node_release"] = "zed"
	}
	f.inventory["empty"]["gpustack_node_only"] = []string{}
	f.write("posing/root/etc/nova/nova.conf", "[DEFAULT]\nhost = whole\n")
	at := map[string]*server{}
	trees := map[string]string{}
	for _, s := range f.servers {
		at[s.name], trees[s.name] = s, s.tree(t)
	}
	maps.Copy(f.inventory["whole"], map[string]any{"gpustack_node_upgrade": true, "gpustack_node_flavor": "gpu.k4200.2", "gpustack_node_image": "debian-12"})
	maps.Copy(f.inventory["none"], map[string]any{"gpustack_node_only": []string{"10de:ffff"}, "gpustack_node_if_present": true,
		"gpustack_node_install": "copy", "gpustack_node_program": gpustack, "gpustack_node_binary": f.dir + "/copied"})
	f.inventory["planned"]["gpustack_node_state"] = "planned"
	f.inventory["prepared"]["gpustack_node_state"], f.inventory["kolla"]["gpustack_node_state"] = "prepared", "prepared"
	f.inventory["lost"]["lost"] = true
	raced := f.guestOn("raced", "ACTIVE", 1, "K4200:1")
	f.cloud.AddServer(f.guestOn("busy", "ACTIVE", 1, ""))
	f.cloud.AddServer(f.guestOn("off", "SHUTOFF", 4, "K4200:1"))
	id := strconv.Itoa(slices.Index(f.hosts.Nodes, at["raced"].node))
	f.cloud.SetFault(func(_ http.ResponseWriter, r *http.Request) bool { // a user starts a server before the reboot
		body, err := io.ReadAll(r.Body)
		if r.Body = io.NopCloser(bytes.NewReader(body)); err == nil && r.URL.Path == "/v2.1/os-services/"+id &&
			bytes.Contains(body, []byte(": rollout: reboot")) {
			f.cloud.Instances = append(f.cloud.Instances, &raced)
		}
		return false
	})
	at["taken"].node.Disabled = "new disk"
	at["mine"].node.Disabled = "gpustack 2026-11-27T09:00:00Z 5e0c3a71: new disk"

	out, recap := f.play(f.table())
	for name, want := range map[string]struct{ reason, verdict, in string }{
		"whole":    {"", "ready", ""},
		"none":     {"", "not prepared", "0 GPUs for guests, no file changes, no reboot"},
		"planned":  {"", "not prepared", "2 GPUs for guests, files change, reboot needed, no guest with a GPU"},
		"prepared": {"rollout: prepared, the reboot is left to do", "pending reboot", ""},
		"busy":     {"", "not prepared", "(train, running, owner u1)"},
		"off":      {"", "not prepared", "(train, off, owner u1)"},
		"lost":     {"rollout: host check", "ready", ""},
		"taken":    {"new disk", "not prepared", "is disabled, and not by gpustack: the reason is new disk"},
		"raced":    {"rollout: reboot", "pending reboot", "(train, running, owner u1)"},
		"kolla":    {"rollout: prepared, the reboot is left to do", "pending reboot", "kolla-ansible reconfigure --tags nova --limit kolla"},
		"early":    {"", "not prepared", "-e gpustack_node_state=prepared first"},
		"empty":    {"", "not prepared", "only: the list is empty"},
		"posing":   {"", "not prepared", "posing says that its name in Nova is whole"},
		"mine":     {"new disk", "not prepared", "gpustack nova drain mine --step 'rollout: handed over' --yes"},
	} {
		s := at[name]
		reason := s.reason()
		if name == "taken" {
			reason = s.node.Disabled
		}
		if verdict := s.verdict(t); reason != want.reason || verdict != want.verdict {
			t.Errorf("%s: %q, %s; want %q, %s", name, reason, verdict, want.reason, want.verdict)
		}
		if want.verdict == "not prepared" && s.tree(t) != trees[name] {
			t.Errorf("%s: its files have changed", name)
		}
		hosttest.ContainsIn(t, name+": what it says", want.in, out)
	}
	for name, r := range recap {
		failed := r.failed + r.unreachable
		if want := map[string]string{"whole": "00", "planned": "00", "none": "00", "prepared": "00", "kolla": "00",
			"lost": "01"}[name]; want == "" && failed != "10" ||
			want != "" && failed != want {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if t.Failed() {
		t.Fatal(out)
	}
	for _, s := range f.servers {
		s.log(t, "node")
		s.log(t, "controller")
	}

	// What was in the way is gone.
	f.inventory["planned"]["gpustack_node_state"], f.inventory["prepared"]["gpustack_node_state"] = "absent", "booted"
	f.inventory["lost"]["lost"] = false
	f.cloud.SetFault(nil)
	f.cloud.Instances = nil
	at["taken"].node.Disabled = ""
	at["mine"].node.Disabled = "gpustack 2026-11-27T09:00:00Z 5e0c3a71: rollout: handed over"
	f.inventory["kolla"]["gpustack_node_state"] = "booted"
	out, recap = f.play(f.table(), "--limit", "kolla")
	if s := at["kolla"]; recap["kolla"].failed != "1" || s.reason() != "rollout: prepared, the reboot is left to do" ||
		!strings.Contains(out, "node_custom_config, as the role gpustack.nova.controller does") {
		t.Errorf("kolla: %q, %+v\n%s", s.reason(), recap["kolla"], out)
	}
	f.kollaAnsible(at["kolla"])
	f.command("cp", "-a", at["kolla"].root, at["kolla"].dir+"/prepared")
	f.inventory["busy"]["gpustack_node_flavor"] = "gpu.k4200.2"
	out, recap = f.play(f.table(), "--limit", "whole,planned,prepared,lost,kolla,busy")
	if recap["busy"].failed != "1" || at["busy"].tree(t) != trees["busy"] || !strings.Contains(out, "and gpustack_node_image is empty") {
		t.Errorf("busy: %+v", recap["busy"])
	}
	delete(recap, "busy")
	for name, r := range recap {
		want := "ready"
		if name == "planned" {
			want = "not prepared"
		}
		if s := at[name]; s.node.Disabled != "" || s.verdict(t) != want || r.failed+r.unreachable != "00" {
			t.Errorf("%s: %q, %s, %+v", name, s.node.Disabled, s.verdict(t), r)
		}
	}
	// Nothing is left to do on two of them.
	for _, name := range []string{"whole", "planned"} {
		want := map[string]string{
			"node": "host guests|host prepare --dry-run|nova check|nova configure --dry-run", "controller": "nova drain --list",
		}
		if name == "planned" {
			want["node"] = "host guests|host prepare --dry-run --none|nova check"
		}
		for whose, commands := range want {
			hosttest.EqualIn(t, name+": "+whose, commands, strings.Join(at[name].log(t, whose), "|"))
		}
		if recap[name].changed != "0" {
			t.Errorf("%s: %+v", name, recap[name])
		}
	}
	// A server that is ready is not booted again.
	for name, boots := range map[string]int{"prepared": 1, "lost": 0, "kolla": 1} {
		hosttest.EqualIn(t, name+": times booted", boots, strings.Count(strings.Join(at[name].log(t, "node"), "|"), "booted"))
	}
	if t.Failed() {
		t.Fatal(out)
	}

	// And back, also one that is prepared and not booted. Only the operator removes the options from
	// the file of kolla-ansible. A server that was finished is refused if it offers what its
	// own driver has.
	f.command("rm", "-r", at["kolla"].root)
	f.command("mv", at["kolla"].dir+"/prepared", at["kolla"].root)
	f.inventory["whole"]["gpustack_node_state"], f.inventory["kolla"]["gpustack_node_state"] = "absent", "absent"
	f.command("ln", "-sfn", "../../../../bus/pci/drivers/nouveau", at["lost"].root+"/sys/bus/pci/devices/0000:84:00.0/driver")
	before := at["kolla"].tree(t)
	out, recap = f.play(f.table(), "--limit", "whole,kolla,lost")
	if recap["lost"].failed != "1" || !strings.Contains(out, "a device_spec offers 0000:84:00.0 (nouveau)") {
		t.Errorf("lost: %+v\n%s", recap["lost"], out)
	}
	s := at["whole"]
	if got := s.verdict(t); got != "not prepared" || s.node.Disabled != "" || strings.Contains(s.conf(t), "11b4") {
		t.Errorf("whole: %s, %q:\n%s\n%s", got, s.node.Disabled, s.conf(t), out)
	}
	if s := at["kolla"]; s.tree(t) != before || s.reason() != "" || recap["kolla"].failed != "1" ||
		!strings.Contains(out, "still offers functions of kolla: 0000:84:00.0, 0000:84:00.1, 0000:88:00.0, 0000:88:00.1. ") ||
		!strings.Contains(out, "nova/kolla/nova.conf, ") {
		t.Errorf("kolla: %q, %+v\n%s", s.reason(), recap["kolla"], out)
	}
}

// kollaAnsible does what kolla-ansible does with what the role has printed: the generated file gets
// the options.
func (f *roleFleet) kollaAnsible(s *server) {
	f.t.Helper()
	text, err := exec.Command(gpustack, "nova", "configure", "--root", s.root, "--role", "compute", "--release", "zed", "--render", "kolla").Output()
	hosttest.NoError(f.t, err)
	file, err := os.OpenFile(s.root+"/etc/kolla/nova-compute/nova.conf", os.O_APPEND|os.O_WRONLY, 0)
	hosttest.NoError(f.t, err)
	defer file.Close()
	if _, err := file.Write(text); err != nil {
		f.t.Fatal(err)
	}
}
