package vm

import (
	"path/filepath"
	"regexp"
	"strings"

	"gpustack/host/hosttest"

	"github.com/google/go-cmp/cmp"
)

// collector is the folder that the units write to.
const collector = "/var/lib/prometheus/node-exporter"

// unitsSee starts the unit of each command as systemd restricts it, and compares what it prints and
// writes with what the same command run by root does. A process has a display open meanwhile, and
// an interface and a mount are in namespaces of their own.
func (m machine) unitsSee(commands ...string) {
	m.t.Helper()
	m.run("sh", "-ec", `install -d -m 755 $1; install -m 755 /lab/gpustack /usr/local/sbin/gpustack
		ip netns add other; ip link add inner type dummy; ip link set inner netns other
		systemd-run --quiet --unit=mounts --property=PrivateMounts=yes sh -ec "mount -t tmpfs none /mnt; exec sleep infinity"`, "sh", collector)
	release := m.hold(m.display(besideHost))
	defer func() {
		release()
		m.run("sh", "-ec", "systemctl stop mounts; ip netns delete other; rm -r $1/*", "sh", collector)
	}()
	for _, command := range commands {
		m.unitSees(command)
	}
}

func (m machine) unitSees(command string) {
	m.t.Helper()
	name := "gpustack-" + strings.ReplaceAll(command, " ", "-")
	unit := hosttest.Read(m.t, filepath.Join("../../examples/monitoring/systemd", name+".service"))
	_, exec, _ := strings.Cut(unit, "\nExecStart=")
	exec, _, _ = strings.Cut(exec, "\n")
	file := collector + "/" + name + ".prom"
	if exec != "gpustack "+command+" --metrics "+file {
		m.t.Fatalf("%s runs %s", name, exec)
	}
	m.write("/etc/systemd/system/"+name+".service", unit)
	m.run("systemctl", "daemon-reload")
	// As it is: a failed check is no failure of the unit.
	m.run("systemctl", "start", name)
	metrics := func(file string) (lines []string) {
		m.t.Helper()
		for line := range strings.Lines(m.run("cat", file)) {
			if !strings.Contains(line, "gpustack_last_run_timestamp_seconds{") {
				lines = append(lines, line)
			}
		}
		return lines
	}
	alone := metrics(file)

	// With what it prints in files.
	m.run("mkdir", "/etc/systemd/system/"+name+".service.d")
	m.write("/etc/systemd/system/"+name+".service.d/print.conf",
		"[Service]\nExecStart=\nExecStart="+exec+" -o json\nStandardOutput=truncate:/run/unit-out\nStandardError=truncate:/run/unit-err\n")
	m.run("systemctl", "daemon-reload")
	m.run("systemctl", "start", name)
	reply := m.try(append(append([]string{"/usr/local/sbin/gpustack"}, strings.Fields(command)...), "-o", "json", "--metrics", "/run/root.prom")...)
	for what, pair := range map[string][2]string{
		"prints":   {reply.Stdout, m.run("cat", "/run/unit-out")},
		"warns of": {reply.Stderr, m.run("cat", "/run/unit-err")},
	} {
		if diff := cmp.Diff(undated(pair[0]), undated(pair[1])); diff != "" {
			m.t.Errorf("what %s %s (-root +unit):\n%s", command, what, diff)
		}
	}
	root := metrics("/run/root.prom")
	if diff := cmp.Diff(root, metrics(file)); diff != "" || len(root) < 20 {
		m.t.Errorf("the %d metrics of %s (-root +unit):\n%s", len(root), command, diff)
	}
	// A machine that is short of time may still change before its first run.
	if diff := cmp.Diff(alone, root); diff != "" {
		m.t.Logf("since the first run of %s (-before +now):\n%s", command, diff)
	}
	if len(alone) != len(root) {
		m.t.Errorf("%s writes %d metrics as it is, and %d with -o json", command, len(alone), len(root))
	}
	m.run("rm", "-r", "/etc/systemd/system/"+name+".service", "/etc/systemd/system/"+name+".service.d")
}

// undated returns a document without its time.
func undated(document string) string {
	return regexp.MustCompile(`(?m)^"time":.*\n`).ReplaceAllString(document, "")
}
