package vm

import (
	"maps"
	"slices"
	"strings"
	"time"

	"gpustack/host/hosttest"
)

// What stands for NVIDIA's software in the Debian machine: the module (nvidia/nvidia.c), which has
// a K4200 and, by driver_override, another card; its device nodes; nvidia-smi as far as it shows
// and sets persistence mode; and two services that open every GPU that they find.
const nvidiaSoftware = `
card=$1 other=$2
insmod /lab/nvidia.ko
echo nvidia >/sys/bus/pci/devices/$other/driver_override
echo $other >/sys/bus/pci/devices/$other/driver/unbind
echo $other >/sys/bus/pci/drivers_probe
for n in 0 1; do mknod /dev/nvidia$n c 195 $n; done
mknod /dev/nvidiactl c 195 255
cat >/usr/bin/nvidia-smi <<'END'
#!/bin/sh
cd /proc/driver/nvidia/gpus
case $1 in
--query-gpu=pci.bus_id,persistence_mode)
	for gpu in *; do
		[ -e $gpu/persistence ] || continue
		mode=Disabled
		[ $(cat $gpu/persistence) = 0 ] || mode=Enabled
		echo 0000$gpu, $mode
	done ;;
-i) echo $4 >$2/persistence ;;
esac
END
cat >/usr/bin/nvidia-daemon <<'END'
#!/bin/sh
set -- /dev/nvidiactl
for gpu in /proc/driver/nvidia/gpus/*/information; do
	[ ! -e $gpu ] || set -- "$@" /dev/nvidia$(sed -n 's/^Device Minor:[^0-9]*//p' $gpu)
done
exec /lab/guest hold "$@"
END
chmod +x /usr/bin/nvidia-smi /usr/bin/nvidia-daemon
for unit in nvidia-persistenced nvidia-dcgm; do
	printf '[Unit]\nStartLimitIntervalSec=0\n[Service]\nExecStart=/usr/bin/nvidia-daemon\n' >/run/systemd/system/$unit.service
done
systemctl daemon-reload
systemctl start nvidia-persistenced nvidia-dcgm
nvidia-smi -i $card -pm 1
`

// nvidiaGone removes it all.
const nvidiaGone = `
card=$1 other=$2
systemctl stop nvidia-persistenced nvidia-dcgm
for gpu in /proc/driver/nvidia/gpus/*; do echo 0 >$gpu/persistence; done
rm -r /run/systemd/system/nvidia-* /usr/bin/nvidia-smi /usr/bin/nvidia-daemon /dev/nvidia*
systemctl daemon-reload
rmmod nvidia
echo >/sys/bus/pci/devices/$other/driver_override
echo $other >/sys/bus/pci/drivers_probe
`

// nvidiaServices: a driver with the name of NVIDIA's, which does not return from unbinding a GPU
// that is open or in persistence mode, is unbound once its services are stopped, if that is asked.
// The services run again where a GPU stays, after a failure, after a kill and after undo.
func (m machine) nvidiaServices() {
	const card, audio, other = theirs + ".0", theirs + ".1", plainCard + ".0"
	const persistenced, dcgm = "nvidia-persistenced", "nvidia-dcgm"
	m.run("sh", "-ec", nvidiaSoftware, "sh", card, other)
	defer func() { m.run("sh", "-ec", nvidiaGone, "sh", card, other) }()
	begin := time.Now()
	step := func(name string) { m.t.Logf("%6.1f s: %s", time.Since(begin).Seconds(), name) }

	// state is what must be as before: drivers, whether services run, and persistence mode.
	state := func() map[string]string {
		m.t.Helper()
		s := maps.Clone(m.drivers())
		for line := range strings.Lines(m.run("nvidia-smi", "--query-gpu=pci.bus_id,persistence_mode")) {
			gpu, mode, _ := strings.Cut(strings.TrimSpace(line), ", ")
			s["mode of "+gpu] = mode
		}
		for _, unit := range []string{persistenced, dcgm} {
			s[unit] = strings.TrimSpace(m.try("systemctl", "is-active", unit).Stdout)
		}
		return s
	}
	first := state()
	if first[card] != "nvidia" || first[other] != "nvidia" || first[dcgm] != "active" || first["mode of 0000"+card] != "Enabled" {
		m.t.Fatalf("at first: %v", first)
	}
	const gone = "gone" // of the mode of a GPU that the driver does not have
	// open has both daemons open both GPUs. A daemon looks for GPUs when it starts, and its service
	// counts as running before.
	open := func() {
		m.t.Helper()
		m.run("sh", "-ec", `systemctl restart "$@"; for try in $(seq 300); do
	[ $(readlink /proc/[0-9]*/fd/* 2>/dev/null | grep -c '^/dev/nvidia[01]$') -lt 4 ] || exit 0
	sleep 0.2
done; exit 1`, "sh", persistenced, dcgm)
	}
	as := func(when string, changes map[string]string) {
		m.t.Helper()
		want := maps.Clone(first)
		maps.Copy(want, changes)
		maps.DeleteFunc(want, func(key, _ string) bool { return changes[key] == gone })
		hosttest.EqualIn(m.t, when, want, state())
	}
	bind := func(devices ...string) []string {
		argv := []string{"host", "bind", "--live", "--yes"}
		for _, d := range devices {
			argv = append(argv, "--device", d)
		}
		return argv
	}
	stopping := func(devices ...string) []string { return append(bind(devices...), "--stop-services") }

	// The module does what it is for.
	m.run("sh", "-ec", `echo $1 >/sys/bus/pci/drivers/nvidia/unbind & sleep 1; read -r _ _ state _ </proc/$!/stat; [ $state = D ]
systemctl stop nvidia-dcgm nvidia-persistenced; nvidia-smi -i $1 -pm 0; wait $!
echo $1 >/sys/bus/pci/drivers_probe; systemctl start nvidia-persistenced nvidia-dcgm; nvidia-smi -i $1 -pm 1`, "sh", card)
	as("unbound by hand, and bound again", nil)
	step("the module does not return while the GPU is open")

	open()
	m.refused(card+": guest (pid ", bind(card)...)
	m.refused("nvidia-persistenced.service) has /dev/nvidia", bind(card)...)
	m.refused(card+": is in persistence mode", bind(card)...)
	release := m.hold("/dev/nvidiactl")
	m.refused("has /dev/nvidiactl open, through which it may use any GPU of the nvidia driver", stopping(card)...)
	release()
	as("not asked, or another process", nil)
	step("refused")

	bound := map[string]string{card: vfioPCI, audio: vfioPCI, "mode of 0000" + card: gone}
	m.run(append([]string{"gpustack"}, stopping(card)...)...)
	as("bound", bound)
	step("bound")
	hosttest.ContainsIn(m.t, "again", "nothing to do", m.run(append([]string{"gpustack"}, stopping(card)...)...))
	m.run("gpustack", "undo", "--yes")
	as("undone", nil)
	step("undone")

	open()
	m.run("sh", "-ec", `mkdir -p /run/systemd/system/$1.service.d
printf '[Service]\nKillSignal=SIGCONT\nTimeoutStopSec=10\n' >/run/systemd/system/$1.service.d/slow.conf; systemctl daemon-reload`, "sh", persistenced)
	m.refused(persistenced+".service: did not stop in time (3s): deactivating (stop-sigterm)", append(stopping(card), "--service-timeout", "3s")...)
	m.run("sh", "-ec", `until systemctl --quiet is-active $1; do sleep 0.5; done; rm -r /run/systemd/system/$1.service.d; systemctl daemon-reload`, "sh", persistenced)
	as("a service that does not stop", nil)
	step("a service that does not stop")

	// The moments between steps, by what shows that the step before has been made.
	const group = "/sys/fs/cgroup/system.slice/"
	device := func(address string) string { return "/sys/bus/pci/devices/" + address }
	moments := []struct{ name, shown string }{
		{"a service has stopped", "[ ! -e " + group + dcgm + ".service ]"},
		{"both functions are bound", "[ " + device(audio) + "/driver -ef /sys/bus/pci/drivers/vfio-pci ]"},
	}
	if *full {
		moments = append(moments, []struct{ name, shown string }{
			{"both services have stopped", "[ ! -e " + group + dcgm + ".service ] && [ ! -e " + group + persistenced + ".service ]"},
			{"persistence mode is off", "read x </proc/driver/nvidia/gpus/" + card + "/persistence && [ $x = 0 ]"},
			{"driver_override is set", "read x <" + device(card) + "/driver_override && [ $x = vfio-pci ]"},
			{"the GPU is unbound", "[ ! -e " + device(card) + "/driver ]"},
			{"the GPU is bound", "[ " + device(card) + "/driver -ef /sys/bus/pci/drivers/vfio-pci ]"},
			{"a service runs again", "[ " + device(audio) + "/driver -ef /sys/bus/pci/drivers/vfio-pci ] && [ -e " + group + persistenced + ".service ]"},
			{"both services run again", "[ " + device(audio) + "/driver -ef /sys/bus/pci/drivers/vfio-pci ] && [ -e " + group + persistenced + ".service ] && [ -e " + group + dcgm + ".service ]"},
		}...)
	}
	for _, moment := range moments {
		open()
		out := m.run("sh", "-ec", `shown=$1; shift; "$@" >/run/killed 2>&1 & p=$!
until eval "$shown"; do read -r _ _ state _ </proc/$p/stat; [ $state != Z ] || { echo ended; cat /run/killed; exit; }; done
kill -9 $p; echo killed`, "sh", moment.shown, "gpustack", "host", "bind", "--live", "--yes", "--device", card, "--stop-services")
		if strings.TrimSpace(out) != "killed" {
			m.t.Errorf("%s: it ended before:\n%s", moment.name, out)
		}
		left := m.unfinished()
		reply := m.try("gpustack", "host", "release", "--yes", "--device", card)
		if reply.Status != 0 || left != strings.Contains(reply.Stderr, "was interrupted") {
			m.t.Errorf("%s: recovered: exit status %d, an entry is left: %t\n%s", moment.name, reply.Status, left, reply.Stderr)
		}
		as("killed when "+moment.name, nil)
		step("killed when " + moment.name)
	}

	if *full {
		open()
		m.run(slices.Concat([]string{"gpustack"}, stopping(card, other), m.allow(plainCard+".1"))...)
		as("no GPU stays", map[string]string{card: vfioPCI, audio: vfioPCI, other: vfioPCI, plainCard + ".1": vfioPCI,
			"mode of 0000" + card: gone, "mode of 0000" + other: gone, persistenced: "inactive", dcgm: "inactive"})
		m.run("gpustack", "undo", "--yes")
		as("undone", nil)
		step("no GPU stayed")
	}
}
