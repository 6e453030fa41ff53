package integration

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"gpustack/host/hosttest"
)

// finding is what host check says in its JSON.
type finding struct {
	Check, Status, File, Seen, Effect, Remedy string
}

// check runs host check and returns its findings by check, the last of each.
func check(t *testing.T, cmd *exec.Cmd) (findings map[string]finding, verdict string, status int) {
	t.Helper()
	stdout, stderr, status := try(t, cmd)
	var report struct {
		Verdict  string
		Findings []finding
	}
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatalf("%v: %s%s", err, stdout, stderr)
	}
	findings = map[string]finding{}
	for _, f := range report.Findings {
		findings[f.Check] = f
		if bad := f.Status == "warn" || f.Status == "fail"; bad && (f.Effect == "" || f.Remedy == "") || f.Seen == "" {
			t.Errorf("%+v", f)
		}
	}
	return findings, report.Verdict, status
}

// TestCheckUnprivileged: what only root may read is said to be so, and is neither
// passed nor failed.
func TestCheckUnprivileged(t *testing.T) {
	const nobody = 65534
	root, err := os.MkdirTemp(scratch, "check-") // where other users may go
	hosttest.NoError(t, err)
	hosttest.NoError(t, os.Chmod(root, 0o755))
	node := filepath.Join(root, "node")
	run(t, gpustack, "host", "unpack", examples(t)["talk-2xk4200.txtar"], node)
	tables := filepath.Join(node, "sys/firmware/acpi/tables")
	hosttest.NoError(t, os.MkdirAll(tables, 0o755))
	hosttest.NoError(t, os.WriteFile(filepath.Join(tables, "DMAR"), []byte("DMAR"), 0o400))
	// Distributions make the folder of nova-compute private.
	hosttest.NoError(t, os.MkdirAll(filepath.Join(node, "var/lib/nova/instances"), 0o755))
	hosttest.NoError(t, os.Chmod(filepath.Join(node, "var/lib/nova"), 0o700))
	asNobody := func() *exec.Cmd {
		cmd := exec.Command(gpustack, "host", "check", "--root", node, "-o", "json")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		return cmd
	}
	findings, verdict, status := check(t, asNobody())
	if f := findings["interrupt_remapping"]; f.Status != "n/a" || f.Seen != "/sys/firmware/acpi/tables/DMAR: permission denied" || f.Remedy != "run gpustack as root" {
		t.Errorf("%+v", f)
	}
	if f := findings["preparable"]; f.Status != "pass" {
		t.Errorf("%+v", f)
	}
	if verdict != "not prepared" || status != 2 {
		t.Errorf("%s, exit status %d", verdict, status)
	}
	// The record is root's alone.
	run(t, gpustack, "host", "prepare", "--root", node, "--yes")
	findings, verdict, status = check(t, asNobody())
	if f := findings["prepared"]; f.Status != "n/a" || f.Seen != "/var/lib/gpustack/contract.json: permission denied" || f.Remedy != "run gpustack as root" {
		t.Errorf("%+v", f)
	}
	if verdict != "unknown" || status != 1 {
		t.Errorf("%s, exit status %d", verdict, status)
	}
}

// TestCheckTouchesNothing: host check changes no file and starts no program.
func TestCheckTouchesNothing(t *testing.T) {
	root := unpack(t, examples(t)["talk-2xk4200.txtar"])
	run(t, gpustack, "host", "prepare", "--root", root, "--yes")
	trace := filepath.Join(t.TempDir(), "trace")
	calls := "trace=execve,mkdirat,renameat,renameat2,unlinkat,fchmod,fchmodat,fchown,fsetxattr,symlinkat,linkat,truncate,ftruncate,fsync,flock,openat"
	try(t, exec.Command("strace", "-f", "-qq", "-o", trace, "-e", calls, gpustack, "host", "check", "--root", root))
	lines := strings.Split(strings.TrimSpace(hosttest.Read(t, trace)), "\n")
	if len(lines) < 100 {
		t.Fatalf("%d calls only", len(lines))
	}
	for i, line := range lines {
		opens := strings.Contains(line, " openat(") && !strings.Contains(line, "O_WRONLY") && !strings.Contains(line, "O_RDWR") && !strings.Contains(line, "O_CREAT")
		resumed := strings.Contains(line, "<... openat resumed>")
		starts := i == 0 && strings.Contains(line, " execve(")
		signal := strings.Contains(line, " --- SIG")
		ended := strings.Contains(line, "???( <detached ...>") // a thread that went with the process
		if !opens && !resumed && !starts && !signal && !ended {
			t.Error(line)
		}
	}
}

// TestCheckNodes: of real machines something is said, whatever they show, and each thing
// with its remedy.
func TestCheckNodes(t *testing.T) {
	roots, err := layNodes()
	hosttest.NoError(t, err)
	for table, root := range roots {
		t.Run(filepath.Base(table), func(t *testing.T) {
			t.Parallel()
			findings, verdict, status := check(t, exec.Command(gpustack, "host", "check", "--root", root, "-o", "json"))
			if len(findings) != 27 || verdict != "not prepared" || status != 2 {
				t.Errorf("%d checks, %s, exit status %d", len(findings), verdict, status)
			}
		})
	}
}

// TestPreparable: host check never says that a machine is preparable which host prepare refuses,
// and never the reverse: on real machines, on the examples, and on machines with one thing wrong.
func TestPreparable(t *testing.T) {
	type node struct {
		name, root string
		bent       bool
	}
	var nodes []node
	for name, file := range examples(t) {
		nodes = append(nodes, node{name: name, root: unpack(t, file)})
	}
	// A table has only PCI functions: the rest is that of an example.
	talk := examples(t)["talk-2xk4200.txtar"]
	tables, err := filepath.Glob(testNodes)
	if err != nil || len(tables) != 52 {
		t.Fatalf("%d tables, %v", len(tables), err)
	}
	for _, table := range tables {
		root := unpack(t, talk)
		hosttest.NoError(t, os.RemoveAll(filepath.Join(root, "sys")))
		hosttest.NoError(t, layNode(table, root))
		nodes = append(nodes, node{name: filepath.Base(table), root: root})
	}
	for name, script := range bentNodes {
		root := unpack(t, talk)
		cmd := exec.Command("sh", "-e", "-c", script)
		cmd.Dir = root
		if _, talk, status := try(t, cmd); status != 0 {
			t.Fatalf("%s: exit status %d: %s", name, status, talk)
		}
		nodes = append(nodes, node{name, root, true})
	}
	var accepted, refused atomic.Int32
	t.Run("nodes", func(t *testing.T) {
		for _, n := range nodes {
			t.Run(n.name, func(t *testing.T) {
				t.Parallel()
				stdout, stderr, status := try(t, exec.Command(gpustack, "host", "prepare", "--root", n.root, "--dry-run"))
				findings, verdict, checked := check(t, exec.Command(gpustack, "host", "check", "--root", n.root, "-o", "json"))
				f := findings["preparable"]
				switch {
				case status == 2 && !n.bent:
					accepted.Add(1)
					if f.Status != "pass" {
						t.Errorf("%+v, which host prepare accepts:\n%s", f, stdout)
					}
				case status == 1: // n/a: a file may only be missing from the tree, or another check names the reason
					refused.Add(1)
					if f.Status != "fail" && f.Status != "n/a" {
						t.Errorf("%+v, which host prepare refuses:\n%s", f, stderr)
					}
				default:
					t.Errorf("host prepare: exit status %d\n%s%s", status, stdout, stderr)
				}
				hosttest.EqualIn(t, verdict+": exit status", map[bool]int{true: 1, false: 2}[verdict == "unknown"], checked)
			})
		}
	})
	if accepted.Load() < 10 || refused.Load() < 20 {
		t.Errorf("%d machines accepted, %d refused", accepted.Load(), refused.Load())
	}
}

// testNodes are the tables of real machines.
const testNodes = nodes + "/*.tsv"

// bentNodes are scripts that each change one thing of the example with two K4200, which host
// prepare then refuses.
var bentNodes = map[string]string{
	"no vfio-pci": `sed -i '/vfio-pci/d' lib/modules/*/modules.dep lib/modules/*/modules.builtin`,
	"group with a NIC": `rm sys/bus/pci/devices/0000:01:00.0/iommu_group
		ln -s ../../../../kernel/iommu_groups/32 sys/bus/pci/devices/0000:01:00.0/iommu_group
		mkdir -p sys/kernel/iommu_groups/32/devices
		ln -s ../../../../bus/pci/devices/0000:01:00.0 sys/kernel/iommu_groups/32/devices/0000:01:00.0`,
	"VFs": `echo 2 > sys/bus/pci/devices/0000:84:00.0/sriov_numvfs; echo 4 > sys/bus/pci/devices/0000:84:00.0/sriov_totalvfs`,
	"in use": `mkdir -p proc/1/ns proc/7/fd sys/class/drm sys/devices/pci0000:80/0000:80:02.0/0000:84:00.0/drm/card3
		ln -s 'pid:[4026531836]' proc/1/ns/pid
		ln -s /dev/dri/card3 proc/7/fd/3
		ln -s ../../devices/pci0000:80/0000:80:02.0/0000:84:00.0/drm/card3 sys/class/drm/card3`,
	"file of ours a folder": `mkdir -p etc/modprobe.d/zz-gpustack.conf`,
	"grub.d a file":         `mkdir -p etc/default/grub.d/zz-gpustack.cfg`,
	"hook a folder":         `mkdir -p etc/initramfs-tools/scripts/init-top/gpustack`,
	"no boot loader":        `rm -r boot/grub etc/default/grub`,
	"no kernel":             `rm -r lib/modules`,
	"other generator":       `rm -r etc/initramfs-tools; mkdir -p etc usr/bin; touch usr/bin/mkinitcpio etc/mkinitcpio.conf`,
	"computed arguments":    `echo 'GRUB_CMDLINE_LINUX="$(cat /etc/args)"' >> etc/default/grub`,
	"malformed modprobe.d":  `mkdir -p etc/modprobe.d; ln -s loop.conf etc/modprobe.d/loop.conf`,
	"malformed journal":     `mkdir -p var/lib/gpustack/journal; echo '{' > var/lib/gpustack/journal/1.json`,
	"malformed record":      `mkdir -p var/lib/gpustack; echo '{' > var/lib/gpustack/contract.json`,
	"mediated device": `uuid=83b8f4f2-509f-382f-3c1e-e6bfe0fa1001 gpu=devices/pci0000:80/0000:80:02.0/0000:84:00.0
		mkdir -p sys/bus/mdev/devices sys/$gpu/$uuid
		ln -s ../../../$gpu/$uuid sys/bus/mdev/devices/$uuid`,
	"console": `echo 1 > sys/bus/pci/devices/0000:84:00.0/boot_vga`,
}
