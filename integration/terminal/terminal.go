// Package terminal runs programs on a pseudo-terminal of their own, so that tests can answer
// questions and press Ctrl-C as an operator does (pty(7), termios(3)).
package terminal

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gpustack/host/hosttest"

	"golang.org/x/sys/unix"
)

// Keys that the terminal's line discipline turns into a signal and into the end of input.
const (
	CtrlC = "\x03"
	CtrlD = "\x04"
)

// Session is a program that runs on a terminal, as the leader of the foreground process group.
type Session struct {
	t      testing.TB
	cmd    *exec.Cmd
	master *os.File
	ended  chan struct{}
	modes  unix.Termios // before the program started

	mu     sync.Mutex
	output strings.Builder
}

// Start starts a program on a new terminal. typed is what was typed before the program started,
// "" for nothing. The program is killed when the test ends.
func Start(t testing.TB, cmd *exec.Cmd, typed string) *Session {
	t.Helper()
	return StartWide(t, cmd, typed, 0)
}

// StartWide is [Start] on a terminal with a number of columns, 0 for one that does not know it
// (ioctl_tty(2), TIOCSWINSZ).
func StartWide(t testing.TB, cmd *exec.Cmd, typed string, columns uint16) *Session {
	t.Helper()
	master, slave, err := open()
	if err == nil {
		err = control(master, func(fd int) error { return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: columns}) })
	}
	hosttest.NoError(t, err)
	s := &Session{t: t, cmd: cmd, master: master, ended: make(chan struct{})}
	s.modes = s.Modes()
	s.Type(typed)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	// A signal that is ignored here, as SIGHUP is below nohup(1), would be ignored there too
	// (signal(7)); one that is handled is not.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	hosttest.NoError(t, errors.Join(cmd.Start(), slave.Close()))
	go s.read()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-s.ended
		master.Close()
	})
	return s
}

func open() (master, slave *os.File, err error) {
	if master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		return nil, nil, err
	}
	var number int
	err = control(master, func(fd int) (err error) {
		if number, err = unix.IoctlGetInt(fd, unix.TIOCGPTN); err != nil {
			return err
		}
		return unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	})
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		return nil, nil, errors.Join(err, master.Close())
	}
	return master, slave, nil
}

// control calls act with the file's descriptor. File.Fd would make the file blocking: then a
// read that waits keeps HangUp from closing it.
func control(file *os.File, act func(fd int) error) error {
	conn, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var acted error
	err = conn.Control(func(fd uintptr) { acted = act(int(fd)) })
	return errors.Join(err, acted)
}

// read keeps what is printed until no process has the terminal open, and collects the program.
func (s *Session) read() {
	defer close(s.ended)
	buffer := make([]byte, 4096)
	for {
		n, err := s.master.Read(buffer)
		s.mu.Lock()
		s.output.Write(buffer[:n])
		s.mu.Unlock()
		if err != nil { // EIO: the last process has closed it; os.ErrClosed: HangUp has
			s.cmd.Wait()
			return
		}
	}
}

// Output returns what the terminal has shown, the echo of what was typed included.
func (s *Session) Output() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.ReplaceAll(s.output.String(), "\r\n", "\n")
}

// Expect waits until the terminal shows text.
func (s *Session) Expect(text string) {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); !strings.Contains(s.Output(), text); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("%q is not shown:\n%s", text, s.Output())
		}
		select {
		case <-s.ended:
			if !strings.Contains(s.Output(), text) {
				s.t.Fatalf("%q is not shown, exit status %d:\n%s", text, s.cmd.ProcessState.ExitCode(), s.Output())
			}
		default:
		}
	}
}

// Type types text.
func (s *Session) Type(text string) {
	s.t.Helper()
	if _, err := s.master.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

// Signal sends a signal to the program and to its process group.
func (s *Session) Signal(signal syscall.Signal) {
	s.t.Helper()
	hosttest.NoError(s.t, syscall.Kill(-s.cmd.Process.Pid, signal))
}

// HangUp takes the terminal away, as a lost ssh session does: the program, which leads the
// terminal's session, gets SIGHUP, and what it prints from then on fails with EIO (termios(3)).
func (s *Session) HangUp() {
	s.t.Helper()
	hosttest.NoError(s.t, s.master.Close())
}

// Wait waits for the end of the program and returns its exit status.
func (s *Session) Wait() (status int) {
	s.t.Helper()
	select {
	case <-s.ended:
	case <-time.After(time.Minute):
		s.t.Fatalf("it does not end:\n%s", s.Output())
	}
	return s.cmd.ProcessState.ExitCode()
}

// FirstModes returns the settings of the terminal from before the program started.
func (s *Session) FirstModes() unix.Termios {
	return s.modes
}

// Modes returns the settings of the terminal (termios(3)).
func (s *Session) Modes() unix.Termios {
	s.t.Helper()
	var modes *unix.Termios
	err := control(s.master, func(fd int) (err error) {
		modes, err = unix.IoctlGetTermios(fd, unix.TCGETS)
		return err
	})
	hosttest.NoError(s.t, err)
	return *modes
}
