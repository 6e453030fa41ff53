package integration

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
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
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	node := filepath.Join(root, "node")
	run(t, gpustack, "host", "unpack", examples(t)["talk-2xk4200.txtar"], node)
	tables := filepath.Join(node, "sys/firmware/acpi/tables")
	if err := os.MkdirAll(tables, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(tables, "DMAR"), []byte("DMAR"), 0o400); err != nil {
		t.Fatal(err)
	}
	// Distributions make the folder of nova-compute private.
	if err := os.MkdirAll(filepath.Join(node, "var/lib/nova/instances"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(node, "var/lib/nova"), 0o700); err != nil {
		t.Fatal(err)
	}
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
	lines := strings.Split(strings.TrimSpace(read(t, trace)), "\n")
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
	if err != nil {
		t.Fatal(err)
	}
	for table, root := range roots {
		t.Run(filepath.Base(table), func(t *testing.T) {
			t.Parallel()
			findings, verdict, status := check(t, exec.Command(gpustack, "host", "check", "--root", root, "-o", "json"))
			if len(findings) != 24 || verdict != "not prepared" || status != 2 {
				t.Errorf("%d checks, %s, exit status %d", len(findings), verdict, status)
			}
		})
	}
}
