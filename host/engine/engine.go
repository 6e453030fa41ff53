package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpustack/host"
)

// User is the user and group of programs in containers: nobody, as all distributions that Nova runs
// on number it.
const User = 65534

// Container says how containers of an image are started. They have no capability, no root, and of
// the machine's devices those that are named. Their limit of locked memory is the one that the
// engine gives to all containers.
type Container struct {
	Image   string   `json:"image"`  // the image as it was named
	Engine  string   `json:"engine"` // "podman", "docker" or "nerdctl"
	Devices []string // values of --device
	// Network is the network namespace: "host" or "none".
	Network string
	// Mounts are files of the machine that are seen in the container, read-only.
	Mounts []Mount
	// Unlabelled starts containers without a label of SELinux, which would deny them the devices.
	Unlabelled bool
}

// Mount is a file of the machine, and where a container sees it.
type Mount struct{ From, To string }

// imageName are the characters of an image's name, tag and digest (distribution's reference
// grammar), none of which a shell interprets.
var imageName = host.LazyRegexp(`^[0-9A-Za-z][0-9A-Za-z._:/@+-]*$`)

// CheckImage returns an error unless name can be an image's name.
func CheckImage(name string) error {
	if !imageName().MatchString(name) {
		return host.WithHint(errors.New("is no name of an image"), "the name, tag or id by which podman images or docker images lists it")
	}
	return nil
}

// String returns the command that starts a container, without what is the same in all tests.
func (c Container) String() string {
	words := []string{c.Engine, "run"}
	for _, device := range c.Devices {
		words = append(words, "--device", host.ShellWord(device))
	}
	return strings.Join(append(words, c.Image), " ")
}

// Engines returns the programs that start containers, in the order in which they are asked. podman
// needs no service, and is asked first.
func Engines() []string { return []string{podman, docker, nerdctl} }

const podman, docker, nerdctl = "podman", "docker", "nerdctl"

// Errors of containers.
var (
	ErrNoEngine = host.WithHint(errors.New("neither podman, docker nor nerdctl is installed"), "Debian, Ubuntu: apt install podman; RHEL: dnf install podman")
	ErrNoImage  = host.WithHint(errors.New("no such image on this machine: a test pulls none"), "podman pull IMAGE, docker pull IMAGE or nerdctl pull IMAGE")
	// ErrNoProgram says that an image does not have the program that was to be run.
	ErrNoProgram = host.WithHint(errors.New("the image does not have the program"), "install it in the image, or name another one")
	// ErrLeft says that a container was not removed after its time, with the command that does it.
	ErrLeft = host.WithHint(errors.New("the container of the test was not removed"), "remove the containers whose names begin with gpustack-")
	// ErrStart says that an engine did not start a container.
	ErrStart = host.WithHint(errors.New("the container was not started"),
		host.Textf("%s names a CDI spec that cannot be used, by file and field, and engines that read none",
			host.NewCommand("container check")))
)

// How long an engine may take.
const (
	asking = 30 * time.Second // to answer about an image, or to remove a container
	ending = 3 * time.Second  // to end a container after its limit
)

// dirs are where engines lie: where the distribution's programs do, and where the archives of their
// makers unpack them.
var dirs = []string{"/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/sbin", "/usr/local/bin"}

// starting returns a runner that finds engines.
func starting(r host.Runner) host.Runner {
	if r.Dirs == nil {
		r.Dirs = dirs
	}
	return r
}

var noImage = host.LazyRegexp(`(?i)image not known|no such image`)

// Find returns a container of an image, without devices. The engine is the first one that has the
// image, of all or of those that are named. An error is that of each engine that is installed.
func Find(ctx context.Context, r host.Runner, image string, engines ...string) (Container, error) {
	if len(engines) == 0 {
		engines = Engines()
	}
	r = starting(r)
	r.Limit, r.Stop, r.Expendable = asking, ctx.Done(), true
	var errs []error
	for _, engine := range engines {
		_, err := r.Find(engine)
		if errors.Is(err, host.ErrNoProgram) {
			continue
		}
		var id []byte
		if err == nil {
			id, err = r.Run(ctx, []string{engine, "image", "inspect", "--format", "{{.Id}}", image})
		}
		if err == nil && strings.TrimSpace(string(id)) != "" {
			return Container{Image: image, Engine: engine}, nil
		}
		if err == nil { // nerdctl says so of an image that it does not have
			err = fmt.Errorf("%s: %s: %w", engine, image, ErrNoImage)
		}
		failed := new(host.ProgramError)
		if errors.As(err, &failed) && noImage().MatchString(failed.Stderr) {
			err = fmt.Errorf("%s: %s: %w", engine, image, ErrNoImage)
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		return Container{}, ErrNoEngine
	}
	return Container{}, errors.Join(errs...)
}

// argv returns the command that runs a program in a container of this name. podman ends the
// container after the limit also if this program is killed; the others have no such option.
func (c Container) argv(name string, limit time.Duration, program []string) []string {
	user := strconv.Itoa(User)
	argv := []string{
		c.Engine, "run", "--rm", "--name", name, "--pull", "never", "--network", c.Network, "--user", user + ":" + user,
		"--cap-drop", "ALL", "--security-opt", "no-new-privileges",
	}
	if c.Engine != nerdctl { // which has no such driver before 2.0
		argv = append(argv, "--log-driver", "none")
	}
	if c.Unlabelled {
		argv = append(argv, "--security-opt", "label=disable")
	}
	if c.Engine == podman {
		argv = append(argv, "--timeout", strconv.Itoa(int((limit+ending+time.Second-1)/time.Second)))
	}
	for _, device := range c.Devices {
		argv = append(argv, "--device", device)
	}
	for _, m := range c.Mounts {
		argv = append(argv, "--volume", m.From+":"+m.To+":ro")
	}
	return slices.Concat(argv, []string{"--entrypoint", program[0], c.Image}, program[1:])
}

// Run runs a program in a container, which is gone afterwards, and returns what it wrote to
// standard output. The container's name begins with prefix. Errors of the engine are ErrNoProgram,
// ErrStart and ErrLeft; others are those of the program.
func (c Container) Run(ctx context.Context, r host.Runner, prefix string, program []string) ([]byte, error) {
	r = starting(r)
	name := prefix + strings.ToLower(rand.Text()[:12])
	stdout, err := r.Run(ctx, c.argv(name, r.Limit, program))
	failed := new(host.ProgramError)
	isProgram := errors.As(err, &failed)
	if errors.Is(err, host.ErrLimit) || errors.Is(err, host.ErrStopped) || isProgram && strings.HasPrefix(failed.Status, "signal: ") {
		// The engine was killed, and the container may run on.
		if left := c.remove(ctx, r, name); left != nil {
			return nil, left
		}
	}
	if isProgram {
		return stdout, c.started(failed)
	}
	return stdout, err
}

// remove removes a container. It is not ended half-way.
func (c Container) remove(ctx context.Context, r host.Runner, name string) error {
	r.Stop, r.Limit, r.Expendable = nil, asking, false
	_, err := r.Run(context.WithoutCancel(ctx), []string{c.Engine, "rm", "--force", "--volumes", name})
	failed := new(host.ProgramError)
	if err == nil || errors.As(err, &failed) && noContainer().MatchString(failed.Stderr) {
		return nil
	}
	return host.WithHint(&startError{ErrLeft, lastWords(c.Engine, err)}, host.Plain(c.Engine+" rm --force "+name))
}

// lastWords returns an error without the words of its command line, which may contain secrets.
func lastWords(engine string, err error) error {
	failed := new(host.ProgramError)
	if errors.As(err, &failed) {
		return fmt.Errorf("%s: %s: %s", engine, failed.Status, failed.Last)
	}
	if cause := errors.Unwrap(err); cause != nil {
		err = cause
	}
	return fmt.Errorf("%s: %w", engine, err)
}

var noContainer = host.LazyRegexp(`(?i)no such container|no container with name`)

// Exit statuses of podman-run(1) and docker run for a container that was not started. nerdctl ends
// with 1, as many programs do.
var notStarted = []string{"exit status 125", "exit status 126", "exit status 127"}

// engineWords begin the messages of an engine or of its runtime about a container that was not
// started. A program may end with the same statuses.
var engineWords = host.LazyRegexp(`(?m)^(Error: |docker: |failed to |time="[^"\n]*" level=fatal ).*$`)

// specFaults are words about what a CDI spec adds to a container, in which a file may be missing,
// too.
var specFaults = host.LazyRegexp(`CDI|error mounting|error running hook|fork/exec`)

// missing are words of runc and crun for an image that does not have a program, or not its loader.
var missing = host.LazyRegexp("executable file.* not found|exec: \"|exec [^ ]+:|exec container process|open executable: ")

// startError is the error of an engine. It hides that the engine is a program which failed: the
// container's program did not fail.
type startError struct {
	kind, err error
}

func (e *startError) Error() string   { return e.kind.Error() + ": " + e.err.Error() }
func (e *startError) Unwrap() []error { return []error{e.kind} }

// started returns the error of an engine that did not start the program as such, with the line of
// the engine. Other errors are those of the program.
func (c Container) started(failed *host.ProgramError) error {
	words := engineWords().FindString(failed.Stderr)
	if words == "" || !slices.Contains(notStarted, failed.Status) && (c.Engine != nerdctl || failed.Status != "exit status 1") {
		return failed
	}
	kind := ErrStart
	if !specFaults().MatchString(words) && missing().MatchString(words) {
		kind = ErrNoProgram
	}
	return fmt.Errorf("%s: %w", c.Image, &startError{kind, fmt.Errorf("%s: %s", c.Engine, words)})
}
