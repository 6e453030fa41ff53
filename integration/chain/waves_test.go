package chain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"gpustack/host/hosttest"

	"github.com/google/go-cmp/cmp"
)

// TestWaves takes two bare compute nodes to GPU instances and back with Ansible, by playbooks of
// the collection and over ssh: until none is left, documents are collected, the next wave is planned
// from them, and it is prepared, booted, checked and returned to scheduling. Undone, the nodes boot
// as they did at first, and their files are as they were.
func TestWaves(t *testing.T) {
	if !*full {
		return // it takes longer than TestChain
	}
	c := begin(t, bareDisk)
	w := &waves{chain: c, recorded: map[string]State{}}
	c.step("both bare servers are compute nodes", func() { w.join() })
	c.step("Ansible reaches them", func() { w.reach() })
	c.step("gpustack is copied, and plans", func() { w.copies() })
	c.step("the canary is rolled out", func() { w.rollout("gpu1") })
	c.step("the other is rolled out", func() { w.rollout("gpu2") })
	c.step("both are ready, and Nova has their GPUs", func() { w.ready() })
	c.step("no wave is left", func() { w.done() })
	c.step("a second rollout changes nothing", func() { w.again() })
	c.step("both are undone", func() { w.undo() })
}

// bareDisk is the disk of a server of Debian's.
func bareDisk(c *chain) (file, format string) {
	file, err := Image(c.t.Context())
	hosttest.NoError(c.t, err)
	return file, "raw"
}

// waves is what Ansible works with.
type waves struct {
	*chain
	recorded map[string]State // of the first boot of each host
	env      []string         // of Ansible
}

// join makes the servers compute nodes of the site, with nothing of gpustack, and notes how they
// are.
func (w *waves) join() {
	t := w.t
	w.both(func(ctx context.Context, m machine) error {
		if err := m.EmulateGuests(ctx); err != nil {
			return err
		}
		if err := m.Join(ctx, w.lab); err != nil {
			return err
		}
		if err := m.StartCompute(ctx, w.lab, nil); err != nil {
			return err
		}
		// The menu of the image was written by hand: another one is written at each change.
		_, err := m.Run(ctx, "sh", "-euc", "mkdir -m 700 -p /root/.ssh; update-grub >/dev/null 2>&1; { "+tree+"} >/root/tree")
		return err
	})
	for _, m := range w.hosts {
		state, err := m.State(t.Context())
		hosttest.NoError(t, err)
		w.recorded[m.Host.Name] = state
	}
	w.until("Nova has both hosts", func() (bool, string) {
		mapped, up := w.rows("SELECT host FROM nova_api.host_mappings ORDER BY host"), w.up()
		return len(mapped) == 2 && len(up) == 2, fmt.Sprintf("mapped %q, up %q", mapped, up)
	})
}

// tree prints what gpustack may change on a node, but for its journal: files with their digests,
// links with their targets, and what each initramfs has. Two of those have the same bytes only if
// they were made in the same second.
const tree = `export LC_ALL=C
find /etc /boot /usr/local/lib /usr/lib/systemd/system -type f ! -name 'initrd.img*' -exec sha256sum {} + | sort -k 2
find /etc /boot /usr/lib/systemd/system -type l -printf '%p -> %l\n' | sort
for image in /boot/initrd.img-*; do lsinitramfs "$image" | sort | sed "s|^|$image |"; done
`

// A computeService is what openstack shows of a nova-compute.
type computeService struct{ Host, Status, State string }

// services returns nova-compute of all hosts, and the document that fleet plan reads.
func (w *waves) services() (list []computeService, document []byte) {
	w.t.Helper()
	cmd := w.administrator(w.t.Context(), "openstack", "compute", "service", "list", "--service", "nova-compute", "-f", "json")
	var talk bytes.Buffer
	cmd.Stderr = &talk
	document, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(document, &list)
	}
	if err != nil {
		w.t.Fatalf("openstack compute service list: %v\n%s%s", err, document, talk.Bytes())
	}
	return list, document
}

// up returns the hosts whose nova-compute is enabled and up.
func (w *waves) up() (hosts []string) {
	w.t.Helper()
	list, _ := w.services()
	for _, s := range list {
		if s.Status == "enabled" && s.State == "up" {
			hosts = append(hosts, s.Host)
		}
	}
	slices.Sort(hosts)
	return hosts
}

// reach lets Ansible log in to the hosts as root, whose keys it knows, and writes its inventory.
func (w *waves) reach() {
	t := w.t
	key := filepath.Join(w.dir, "key")
	if out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen: %v\n%s", err, out)
	}
	public := w.read("key.pub")
	hosts, known := map[string]any{}, ""
	for _, m := range w.hosts {
		m.run("sh", "-euc", `echo "$1" >>/root/.ssh/authorized_keys`, "sh", strings.TrimSpace(public))
		known += fmt.Sprintf("[127.0.0.1]:%d %s", m.Host.SSH, m.run("cat", "/etc/ssh/ssh_host_ed25519_key.pub"))
		hosts[m.Host.Name] = map[string]any{"ansible_port": m.Host.SSH}
	}
	w.write("known_hosts", known)
	inventory, err := json.Marshal(map[string]any{"gpus": map[string]any{"hosts": hosts, "vars": map[string]any{
		"ansible_host": "127.0.0.1", "ansible_user": "root", "ansible_ssh_private_key_file": key, "ansible_python_interpreter": "/usr/bin/python3",
		"gpustack_node_install": "copy", "gpustack_node_program": programs.Gpustack, "gpustack_node_binary": "/usr/local/sbin/gpustack",
		"gpustack_node_controller_binary": programs.Gpustack,
		// What takes seconds on a server takes minutes in an emulated one.
		"gpustack_node_ready_retries": 240, "gpustack_node_ready_delay": 5,
	}}})
	hosttest.NoError(t, err)
	w.write("inventory.json", string(inventory))
	collection, err := filepath.Abs("../../ansible")
	hosttest.NoError(t, err)
	place := filepath.Join(w.dir, "collections/ansible_collections/gpustack")
	hosttest.NoError(t, errors.Join(os.MkdirAll(place, 0o755), os.Symlink(collection, filepath.Join(place, "nova"))))
	// The sockets of ssh need short names.
	sockets, err := os.MkdirTemp(scratch, "s")
	hosttest.NoError(t, err)
	w.env = []string{
		"ANSIBLE_HOME=" + w.dir + "/ansible", "ANSIBLE_LOCAL_TEMP=" + w.dir + "/local", "ANSIBLE_COLLECTIONS_PATH=" + w.dir + "/collections",
		"ANSIBLE_SSH_ARGS=-F none -o ControlMaster=auto -o ControlPersist=600 -o UserKnownHostsFile=" + w.dir + "/known_hosts",
		"ANSIBLE_SSH_CONTROL_PATH_DIR=" + sockets, "ANSIBLE_TIMEOUT=120", "ANSIBLE_PIPELINING=1",
		"ANSIBLE_NOCOLOR=1", "ANSIBLE_LOCALHOST_WARNING=0", "PYTHONDONTWRITEBYTECODE=1",
	}
}

func (w *waves) write(name, content string) {
	w.t.Helper()
	hosttest.NoError(w.t, os.WriteFile(filepath.Join(w.dir, name), []byte(content), 0o600))
}

func (w *waves) read(name string) string {
	w.t.Helper()
	return hosttest.Read(w.t, filepath.Join(w.dir, name))
}

// A recap is what Ansible counts of the tasks of one host.
type recap struct{ changed, unreachable, failed int }

var recapLine = regexp.MustCompile(`(?m)^(\S+) +: ok=\d+ +changed=(\d+) +unreachable=(\d+) +failed=(\d+)`)

// play runs a playbook of the collection to its end, in which nothing may fail, and returns the
// recap of each host, and how often each was booted.
func (w *waves) play(playbook string, args ...string) (all map[string]recap, boots map[string]int) {
	t := w.t
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	ended := make(chan struct{})
	var watchers sync.WaitGroup
	var counts [2]int
	var problems [2]error
	for i, m := range w.hosts {
		watchers.Go(func() {
			if counts[i], problems[i] = m.Watch(t.Context(), ended); problems[i] != nil {
				cancel(problems[i])
			}
		})
	}
	log, err := os.Create(filepath.Join(w.dir, "ansible.log"))
	hosttest.NoError(t, err)
	// The masters of ssh, which go on for ten minutes, end with the first process of the namespace.
	argv := []string{"--pid", "--fork", "--kill-child", "--mount-proc", "ansible-playbook", "-i", w.dir + "/inventory.json", "gpustack.nova." + playbook}
	cmd := w.administrator(ctx, "unshare", append(argv, args...)...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = w.dir, append(cmd.Env, w.env...), log, log
	err = errors.Join(cmd.Run(), log.Close())
	close(ended)
	watchers.Wait()
	out := w.read("ansible.log")
	if err := errors.Join(err, problems[0], problems[1]); err != nil {
		t.Fatalf("%s %q: %v\n%s", playbook, args, err, out)
	}
	if strings.Contains(out, w.lab.AdminPassword) {
		t.Errorf("%s prints the password", playbook)
	}
	all, boots = map[string]recap{}, map[string]int{}
	for _, m := range recapLine.FindAllStringSubmatch(out, -1) {
		var n [3]int
		for i, digits := range m[2:] {
			if n[i], err = strconv.Atoi(digits); err != nil {
				t.Fatal(err)
			}
		}
		all[m[1]] = recap{n[0], n[1], n[2]}
	}
	for i, m := range w.hosts {
		boots[m.Host.Name] = counts[i]
	}
	t.Logf("%s %q: %+v, boots %v", playbook, args, all, boots)
	return all, boots
}

// bootIDs are those that the hosts have now.
func (w *waves) bootIDs() (ids []string) {
	w.t.Helper()
	for _, m := range w.hosts {
		ids = append(ids, strings.TrimSpace(m.run("cat", "/proc/sys/kernel/random/boot_id")))
	}
	return ids
}

// copies: the role in the state planned copies the program, and changes nothing else.
func (w *waves) copies() {
	w.t.Helper()
	all, boots := w.play("rollout", "-e", "gpustack_wave=all", "-e", "gpustack_node_state=planned")
	for _, m := range w.hosts {
		if r, ran := all[m.Host.Name]; !ran || r.failed+r.unreachable > 0 || boots[m.Host.Name] > 0 {
			w.t.Errorf("%s: %+v, boots %v", m.Host.Name, all, boots)
		}
		m.run("/usr/local/sbin/gpustack", "--version")
	}
	w.unchanged()
}

// unchanged: the files of both hosts are as they were at first.
func (w *waves) unchanged() {
	w.t.Helper()
	for _, m := range w.hosts {
		if diff := m.run("sh", "-euc", "{ "+tree+"} | diff /root/tree - | head -n 50"); diff != "" {
			w.t.Errorf("%s: files (< at first, > now):\n%s", m.Host.Name, diff)
		}
	}
}

// plan writes the next wave to waves.yml, as fleet plan makes it of what is collected now, and
// returns what Ansible lists as its hosts.
func (w *waves) plan() string {
	t := w.t
	t.Helper()
	w.play("collect", "-e", "gpustack_folder="+w.dir+"/nodes")
	_, document := w.services()
	w.write("services.json", string(document))
	w.write("waves.yml", w.succeed("fleet", "plan", w.dir+"/nodes", "--keep", "0", "--map", w.dir+"/services.json", "-o", "ansible-inventory"))
	cmd := exec.CommandContext(t.Context(), "ansible", "-i", w.dir+"/inventory.json", "-i", w.dir+"/waves.yml", "wave_*", "--list-hosts")
	cmd.Env = append(os.Environ(), append(w.env, "HOME="+w.dir)...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s\n%s", err, out, w.read("waves.yml"))
	}
	_, hosts, _ := strings.Cut(string(out), "):\n")
	return strings.TrimSpace(hosts)
}

// rollout rolls out the next wave, which is a host: it boots once, and the other one stays as it is.
// The first wave is the canary of the layout that both have.
func (w *waves) rollout(host string) {
	t := w.t
	t.Helper()
	if planned := w.plan(); planned != host {
		t.Fatalf("the next wave is %q, not %s:\n%s", planned, host, w.read("waves.yml"))
	}
	all, boots := w.play("rollout", "-i", w.dir+"/waves.yml")
	if r, ran := all[host]; !ran || len(all) != 1 || r.failed+r.unreachable > 0 || r.changed == 0 {
		t.Errorf("%s: %+v", host, all)
	}
	for name, n := range boots {
		if (n == 1) != (name == host) {
			t.Errorf("%s: boots %v", host, boots)
		}
	}
}

// done: the command that planned the waves plans none.
func (w *waves) done() {
	w.t.Helper()
	if hosts := w.plan(); hosts != "" {
		w.t.Errorf("a wave is left: %s\n%s", hosts, w.read("waves.yml"))
	}
}

// ready: both hosts are ready, schedulable, and Nova has their GPUs.
func (w *waves) ready() {
	t := w.t
	for _, m := range w.hosts {
		if err := m.Ready(t.Context()); err != nil {
			t.Error(err)
		}
		state, err := m.State(t.Context())
		hosttest.NoError(t, err)
		Server{Before: w.recorded[m.Host.Name], After: state}.isPrepared(t)
	}
	w.until("Nova has all GPUs", func() (bool, string) {
		diff := w.owners("", "")
		return diff == "", diff
	})
	w.until("both hosts are up", func() (bool, string) { return len(w.up()) == 2, "" })
}

// again: nothing is left to do, and no host is booted.
func (w *waves) again() {
	w.t.Helper()
	before := w.bootIDs()
	all, boots := w.play("rollout", "-e", "gpustack_wave=all")
	if diff := cmp.Diff(map[string]recap{"gpu1": {}, "gpu2": {}}, all, cmp.AllowUnexported(recap{})); diff != "" || boots["gpu1"]+boots["gpu2"] != 0 {
		w.t.Errorf("boots %v, tasks (-want +got):\n%s", boots, diff)
	}
	if now := w.bootIDs(); !slices.Equal(before, now) {
		w.t.Errorf("boot ids %q, and before %q", now, before)
	}
}

// undo returns the GPUs of both to their hosts: they boot as at first, have the files that
// they had, and are compute nodes that Nova schedules to, without GPUs.
func (w *waves) undo() {
	t := w.t
	all, boots := w.play("undo", "-e", "gpustack_wave=all")
	for _, m := range w.hosts {
		name := m.Host.Name
		if r, ran := all[name]; !ran || r.failed+r.unreachable > 0 || r.changed == 0 || boots[name] != 1 {
			t.Errorf("%s: %+v, boots %d", name, r, boots[name])
		}
		state, err := m.State(t.Context())
		hosttest.NoError(t, err)
		if diff := cmp.Diff(w.recorded[name], state); diff != "" {
			t.Errorf("%s boots differently (-at first +now):\n%s", name, diff)
		}
	}
	w.unchanged()
	w.until("Nova has no GPUs", func() (bool, string) {
		rows := w.rows(devices)
		return len(rows) == 0, fmt.Sprintf("%q", rows)
	})
	w.until("both hosts are up", func() (bool, string) { return len(w.up()) == 2, "" })
}
