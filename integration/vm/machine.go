package vm

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpustack/integration/service"
	"gpustack/integration/vm/agent"
)

// How long a machine may take, which is far more than any needs.
const (
	bootPatience = 30 * time.Minute
	runPatience  = 15 * time.Minute
	beat         = 200 * time.Millisecond
)

// A Machine is one that runs. Its methods are not for use by several goroutines at
// once.
type Machine struct {
	dir      string
	topology Topology
	boot     Boot
	qemu     *service.Service
	player   *player
	line     net.Conn
	messages chan agent.Message

	// Deaths say how the machine died before its agent greeted, each time that it did.
	Deaths []string

	bootAt int // where in the console this boot begins
}

// A Boot is what a machine comes up from: arguments of QEMU.
type Boot []string

// fromMemory boots the kernel with an initramfs and nothing else. Linux panics where ten ticks
// of the clock bring fewer than five interrupts of the timer, as they do when the emulator does
// not get a processor meanwhile: no_timer_check skips that test (timer_irq_works and check_timer
// in arch/x86/kernel/apic/io_apic.c). QEMU translates a program again where it is mapped elsewhere:
// with norandmaps each is mapped where it was.
func fromMemory(k kernel, initramfs string, t Topology) Boot {
	return Boot{"-kernel", k.ELF, "-initrd", initramfs, "-append", "console=ttyS0 panic=-1 mitigations=off init_on_alloc=0 lsm= norandmaps no_timer_check " + t.Arguments}
}

// Start brings up a machine with its files in a folder whose name must be short, for
// the socket in it, and returns when its agent has greeted.
func Start(ctx context.Context, dir string, t Topology, boot Boot) (*Machine, error) {
	m := &Machine{dir: dir, topology: t, boot: boot}
	if err := m.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start machine %s: %w", t.Name, err), m.Kill())
	}
	return m, nil
}

// start launches QEMU, again where the machine dies before its agent has greeted: where QEMU
// ends, or Linux panics. QEMU 7.2 may end when Linux turns VT-d on: it rebuilds its memory map
// for each function, and drops its big lock for each that is played; so it may free the region
// of VT-d's registers, which are no whole page, while the write to them goes on
// (access_with_adjusted_size and cpu_reloading_memory_map). Linux may panic where the emulator
// is starved. A fault of the system on its disk shows each time.
func (m *Machine) start(ctx context.Context) error {
	const tries = 4
	for try := 1; ; try++ {
		err := m.launch(ctx)
		if !errors.Is(err, errGone) && !errors.Is(err, errPanic) {
			return err
		}
		death := errGone.Error()
		if line := panicked.FindString(m.thisBoot()); line != "" {
			death = line
		}
		m.Deaths = append(m.Deaths, death)
		if try == tries {
			return fmt.Errorf("died %d times before its agent greeted: %w", tries, err)
		}
		if err := m.Kill(); err != nil {
			return err
		}
	}
}

func (m *Machine) launch(ctx context.Context) error {
	m.qemu, m.line, m.player, m.messages, m.bootAt = nil, nil, new(player), make(chan agent.Message), len(m.Console())
	socket := filepath.Join(m.dir, "agent")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	defer listener.Close() // which removes the socket
	emulator, err := qemu(ctx)
	if err != nil {
		return err
	}
	arguments, err := m.arguments(socket)
	if err != nil {
		return err
	}
	m.qemu = &service.Service{
		Program: service.Program{
			Name:  "qemu",
			Argv:  slices.Concat(emulator.argv, arguments, m.boot),
			Env:   append(emulator.env, "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "TMPDIR="+m.dir),
			Log:   filepath.Join(m.dir, "qemu.log"),
			Files: m.player.ends,
		},
		Ready: func(context.Context) error { return nil }, // the agent tells
	}
	if err := m.qemu.Start(ctx); err != nil {
		return err
	}
	if err := m.player.started(); err != nil {
		return err
	}
	if err := m.connect(ctx, listener.(*net.UnixListener)); err != nil {
		return err
	}
	go m.listen()
	message, err := m.next(ctx, bootPatience)
	if err == nil && message.Reply != nil {
		err = m.failure(errors.New("it does not greet"))
	}
	return err
}

// connect waits for QEMU's end of the agent's line, as long as QEMU runs.
func (m *Machine) connect(ctx context.Context, listener *net.UnixListener) error {
	return service.Wait(ctx, func(context.Context) (again bool, err error) {
		if !m.qemu.Running() {
			return false, m.failure(errGone)
		}
		if err := listener.SetDeadline(time.Now().Add(beat)); err != nil {
			return false, err
		}
		m.line, err = listener.Accept()
		return true, err
	})
}

func (m *Machine) arguments(socket string) ([]string, error) {
	t := m.topology
	machine := "q35"
	if t.Machine != "" {
		machine += "," + t.Machine
	}
	// One processor: QEMU drops its big lock for functions that are played, and another
	// could change the memory map meanwhile.
	argv := []string{
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-accel", accelerator(), "-machine", machine, "-cpu", "qemu64,-svm,vendor=" + t.CPU, "-smp", "1", "-m", strconv.Itoa(cmp.Or(t.Memory, 1024)),
		"-chardev", "file,id=console,append=on,path=" + m.consoleLog(), "-serial", "chardev:console",
		"-chardev", "socket,id=agent,path=" + socket, "-serial", "chardev:agent",
	}
	for _, unit := range t.Units {
		argv = append(argv, "-device", unit)
	}
	for _, d := range t.Devices {
		options := d.Options
		if d.Plays != nil {
			fd, err := m.player.play(*d.Plays, t.siblings(d))
			if err != nil {
				return nil, err
			}
			options = fmt.Sprintf("x-pci-proxy-dev,fd=%d,%s", fd, options)
		}
		argv = append(argv, "-device", options)
	}
	return argv, nil
}

var place = regexp.MustCompile(`bus=([^,]+),addr=([^,.]+)`)

// siblings tells whether a device has another in its slot.
func (t Topology) siblings(d Device) bool {
	return slices.ContainsFunc(t.Devices, func(o Device) bool {
		return o != d && place.FindString(o.Options) == place.FindString(d.Options)
	})
}

// listen passes on what the agent says. The firmware may say things before it, which
// are no messages.
func (m *Machine) listen() {
	defer close(m.messages)
	lines := bufio.NewReader(m.line)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var message agent.Message
		if json.Unmarshal(line, &message) == nil {
			m.messages <- message
		}
	}
}

// Errors of a machine.
var (
	errGone  = errors.New("the machine has gone")
	errPanic = errors.New("kernel panic")
	errStuck = errors.New("the machine is stuck")
)

// What the console shows when nothing comes any more.
var (
	panicked = regexp.MustCompile(`Kernel panic[^\r\n]*`)
	stuck    = regexp.MustCompile(`Dropping to a shell|emergency mode|grub rescue>|No bootable device`)
)

// next returns the agent's next message.
func (m *Machine) next(ctx context.Context, patience time.Duration) (agent.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	look := time.NewTicker(beat)
	defer look.Stop()
	for {
		select {
		case message, ok := <-m.messages:
			if !ok {
				return agent.Message{}, m.failure(errGone)
			}
			return message, nil
		case <-look.C:
			if line := panicked.FindString(m.thisBoot()); line != "" {
				return agent.Message{}, m.failure(fmt.Errorf("%w: %s", errPanic, strings.TrimPrefix(line, "Kernel panic - ")))
			}
			if word := stuck.FindString(m.thisBoot()); word != "" {
				return agent.Message{}, m.failure(fmt.Errorf("%w: %s", errStuck, word))
			}
		case <-ctx.Done():
			return agent.Message{}, m.failure(context.Cause(ctx))
		}
	}
}

// Ask has the agent do something.
//
// QEMU 7.2 may lose an interrupt of the serial port: as Linux changes what VT-d maps, QEMU rebuilds
// its memory map inside the write to VT-d's registers, and drops its big lock for functions that
// are played. An interrupt that comes then passes a region of VT-d's, where it is taken for
// re-entrance and dropped ("Blocked re-entrant IO on MemoryRegion: vtd-ir"). The port would wait
// for ever, so both ends nudge it: a byte that comes or goes raises the interrupt again.
func (m *Machine) Ask(ctx context.Context, r agent.Request) (agent.Reply, error) {
	if err := json.NewEncoder(m.line).Encode(r); err != nil {
		return agent.Reply{}, m.failure(err)
	}
	defer agent.Nudge(m.line)()
	message, err := m.next(ctx, runPatience)
	if err != nil {
		return agent.Reply{}, fmt.Errorf("%q: %w", r.Argv, err)
	}
	if message.Reply == nil {
		return agent.Reply{}, m.failure(fmt.Errorf("%q: the agent started anew", r.Argv))
	}
	if message.Reply.Err != "" {
		return agent.Reply{}, errors.New(message.Reply.Err)
	}
	return *message.Reply, nil
}

// Reboot reboots the machine by a program of its own. That ends QEMU, and a new QEMU is started
// with the machine's disk: in a QEMU that goes on, pages that contained code before are slow to
// write (QEMU 7.2: seconds for one page, which Linux reports as a stuck processor).
func (m *Machine) Reboot(ctx context.Context, argv ...string) error {
	if err := m.PowerOff(ctx, argv...); err != nil {
		return err
	}
	return m.start(ctx)
}

// PowerOff has a program of the machine end it, as a reboot does too, and returns when QEMU has
// written the last of the disk. How QEMU ends says nothing of the machine: with functions that are
// played, 7.2 may end by a segmentation fault after Linux has turned the power off.
func (m *Machine) PowerOff(ctx context.Context, argv ...string) error {
	if err := json.NewEncoder(m.line).Encode(agent.Request{Argv: argv}); err != nil {
		return m.failure(err)
	}
	if err := m.ended(ctx, bootPatience); err != nil {
		return fmt.Errorf("%q: %w", argv, err)
	}
	return nil
}

// Watch starts the machine again each time that it ends, as it does when something other than the
// test reboots it, until stop is closed. It returns how often.
func (m *Machine) Watch(ctx context.Context, stop <-chan struct{}) (boots int, err error) {
	watched, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	unneeded := errors.New("the watch has ended")
	go func() {
		select {
		case <-stop:
			cancel(unneeded)
		case <-watched.Done():
		}
	}()
	const patience = 24 * time.Hour // the caller, who closes stop, has its own
	for ; ; boots++ {
		if err := m.ended(watched, patience); errors.Is(err, unneeded) {
			return boots, nil
		} else if err != nil {
			return boots, err
		}
		if err := m.start(ctx); err != nil {
			return boots, err
		}
	}
}

// ended returns when the machine has ended, and QEMU, which writes the last of the disk as it ends.
func (m *Machine) ended(ctx context.Context, patience time.Duration) error {
	for {
		message, err := m.next(ctx, patience)
		if errors.Is(err, errGone) {
			break
		}
		if err != nil {
			return err
		}
		// The agent may be gone before it can say that all went well.
		if r := message.Reply; r != nil && (r.Err != "" || r.Status != 0) {
			return fmt.Errorf("exit status %d: %s%s", r.Status, r.Err, r.Stderr)
		}
	}
	err := service.Wait(ctx, func(context.Context) (again bool, err error) {
		if m.qemu.Running() {
			err = m.failure(errors.New("QEMU goes on"))
		}
		return true, err
	})
	return errors.Join(err, m.Kill())
}

// Kill ends the machine as a pulled plug does.
func (m *Machine) Kill() (err error) {
	if m.qemu != nil && m.qemu.Running() {
		err = m.qemu.Kill()
	}
	if m.line != nil {
		err = errors.Join(err, m.line.Close())
		for range m.messages { // until nobody listens
		}
	}
	m.qemu, m.line = nil, nil
	return errors.Join(err, m.player.wait())
}

// Console is what the kernel has printed so far.
func (m *Machine) Console() string {
	text, _ := os.ReadFile(m.consoleLog()) // none yet
	return string(text)
}

// thisBoot is what the kernel has printed since QEMU was launched last.
func (m *Machine) thisBoot() string {
	return m.Console()[m.bootAt:]
}

func (m *Machine) consoleLog() string {
	return filepath.Join(m.dir, "console.log")
}

// failure is an error with the end of what the machine and QEMU printed.
func (m *Machine) failure(err error) error {
	qemu, _ := os.ReadFile(filepath.Join(m.dir, "qemu.log")) // none: nothing was printed
	told := noise.ReplaceAllString(string(qemu), "")
	return fmt.Errorf("%w; the end of its console:\n%s\nQEMU: %s", err, end(m.Console()), end(told))
}

// noise is what QEMU says of each change of its memory map: it would hand on a file
// descriptor of the memory, which has none, to each function that is played, which
// does not want it.
var noise = regexp.MustCompile(`(?m)^.*Unable to write to socket: Bad file descriptor\n`)

// end is the last lines of a text.
func end(text string) string {
	const lines = 30
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
