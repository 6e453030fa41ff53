package vm

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"gpustack/integration/service"
	"gpustack/integration/vm/agent"
)

// How long a machine may take, which is far more than any needs.
const (
	bootPatience = 5 * time.Minute
	runPatience  = 10 * time.Minute
	beat         = 200 * time.Millisecond
)

// A Machine is one that runs. Its methods are not for use by several goroutines at
// once.
type Machine struct {
	dir      string
	qemu     *service.Service
	player   *player
	line     net.Conn
	messages chan agent.Message
	boot     string // the kernel's id of it
}

// A Boot is how a machine comes up: arguments of QEMU.
type Boot []string

// Small boots the kernel with an initramfs and nothing else.
func Small(k kernel, initramfs string, t Topology) Boot {
	return Boot{"-kernel", k.ELF, "-initrd", initramfs, "-no-reboot", "-append", "console=ttyS0 panic=-1 " + t.Arguments}
}

// Start brings up a machine with its files in a folder whose name must be short, for
// the socket in it, and returns when its agent has greeted.
func Start(ctx context.Context, dir string, t Topology, boot Boot) (*Machine, error) {
	m := &Machine{dir: dir, player: new(player), messages: make(chan agent.Message)}
	if err := m.start(ctx, t, boot); err != nil {
		return nil, errors.Join(fmt.Errorf("start machine %s: %w", t.Name, err), m.Kill())
	}
	return m, nil
}

func (m *Machine) start(ctx context.Context, t Topology, boot Boot) error {
	socket := filepath.Join(m.dir, "agent")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	defer listener.Close()
	argv, err := m.arguments(t, socket)
	if err != nil {
		return err
	}
	m.qemu = &service.Service{
		Program: service.Program{
			Name:  "qemu",
			Argv:  append(argv, boot...),
			Env:   []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "TMPDIR=" + m.dir},
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
	return m.greeting(ctx)
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

// accelerator is QEMU's: emulation, unless the environment says otherwise. A machine
// can offer /dev/kvm that answers, and yet run no guest, so that there is no asking.
func accelerator() string {
	if a := os.Getenv("GPUSTACK_VM_ACCEL"); a != "" {
		return a
	}
	return "tcg,thread=multi"
}

func (m *Machine) arguments(t Topology, socket string) ([]string, error) {
	machine := "q35"
	if t.Machine != "" {
		machine += "," + t.Machine
	}
	argv := []string{
		"/usr/bin/qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none",
		"-accel", accelerator(), "-machine", machine, "-cpu", "max,vendor=" + t.CPU, "-smp", "2", "-m", "1024",
		"-chardev", "file,id=console,path=" + m.consoleLog(), "-serial", "chardev:console",
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
	errStuck = errors.New("the machine is stuck")
)

// stuck are words on the console after which nothing comes any more.
var stuck = regexp.MustCompile(`Kernel panic|Dropping to a shell|emergency mode|grub rescue>|No bootable device`)

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
			if word := stuck.FindString(m.Console()); word != "" {
				return agent.Message{}, m.failure(fmt.Errorf("%w: %s", errStuck, word))
			}
		case <-ctx.Done():
			return agent.Message{}, m.failure(context.Cause(ctx))
		}
	}
}

// greeting waits for a boot that is not the last.
func (m *Machine) greeting(ctx context.Context) error {
	for {
		message, err := m.next(ctx, bootPatience)
		if err != nil {
			return err
		}
		if message.Boot != "" && message.Boot != m.boot {
			m.boot = message.Boot
			return nil
		}
	}
}

// Ask has the agent do something.
func (m *Machine) Ask(ctx context.Context, r agent.Request) (agent.Reply, error) {
	if err := json.NewEncoder(m.line).Encode(r); err != nil {
		return agent.Reply{}, m.failure(err)
	}
	message, err := m.next(ctx, runPatience)
	if err != nil {
		return agent.Reply{}, fmt.Errorf("%q: %w", r.Argv, err)
	}
	if message.Reply == nil {
		return agent.Reply{}, m.failure(fmt.Errorf("%q: the machine started anew", r.Argv))
	}
	if message.Reply.Err != "" {
		return agent.Reply{}, errors.New(message.Reply.Err)
	}
	return *message.Reply, nil
}

// Reboot has the machine start anew, by a program of its own.
func (m *Machine) Reboot(ctx context.Context, argv ...string) error {
	reply, err := m.Ask(ctx, agent.Request{Argv: argv})
	if err != nil {
		return err
	}
	if reply.Status != 0 {
		return fmt.Errorf("%q: exit status %d: %s", argv, reply.Status, reply.Stderr)
	}
	return m.greeting(ctx)
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
	return errors.Join(err, m.player.wait())
}

// Console is what the kernel has printed so far.
func (m *Machine) Console() string {
	text, _ := os.ReadFile(m.consoleLog()) // none yet
	return string(text)
}

func (m *Machine) consoleLog() string {
	return filepath.Join(m.dir, "console.log")
}

// failure is an error with the end of what the machine and QEMU printed.
func (m *Machine) failure(err error) error {
	const lines = 30
	qemu, _ := os.ReadFile(filepath.Join(m.dir, "qemu.log")) // none: nothing was printed
	all := strings.Split(strings.TrimSpace(m.Console()), "\n")
	return fmt.Errorf("%w; the end of its console:\n%s\nQEMU: %s", err, strings.Join(all[max(0, len(all)-lines):], "\n"), qemu)
}
