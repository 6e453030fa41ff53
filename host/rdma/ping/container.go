package ping

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

// Container starts rping in containers of an image instead of on the machine. The containers have
// no capability, no root, and of the machine's devices those of one adapter. They share its network
// namespace, which has the IP address of the adapter. The limit of locked memory is the one that
// the engine gives to all containers.
type Container struct {
	Image   string
	Engine  string   // the program that starts containers: podman or docker
	Devices []string // values of --device
	// Unlabelled starts containers without a label of SELinux, which would deny them the devices.
	Unlabelled bool
}

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
	return c.Engine + " run --device " + strings.Join(c.Devices, " --device ") + " " + c.Image
}

// engines are the programs that start containers. podman needs no service, and is asked first.
var engines = []string{"podman", "docker"}

// Errors of containers.
var (
	ErrNoEngine = host.WithHint(errors.New("neither podman nor docker is installed"), "Debian, Ubuntu: apt install podman; RHEL: dnf install podman")
	ErrNoImage  = host.WithHint(errors.New("no such image on this machine: a test pulls none"), "podman pull IMAGE, or docker pull IMAGE")
	// ErrImageRping says that an image has no rping.
	ErrImageRping = host.WithHint(errors.New("the image has no rping"),
		"install rdmacm-utils and ibverbs-providers (Debian, Ubuntu) or librdmacm-utils and libibverbs (RHEL) in the image")
	// ErrStart says that an engine did not start a container.
	ErrStart = host.WithHint(errors.New("the container was not started"), host.Textf("%s names the file and the field of a CDI spec that cannot be used",
		host.NewCommand("container check")))
)

// asking is the time limit of an engine's answer about an image.
const asking = 30 * time.Second

var noImage = host.LazyRegexp(`(?i)image not known|no such image`)

// FindImage returns a container of an image, without devices. The engine is the first one that has
// the image.
func FindImage(ctx context.Context, r host.Runner, image string) (Container, error) {
	r.Limit, r.Stop, r.Expendable = asking, ctx.Done(), true
	var errs []error
	for _, engine := range engines {
		_, err := r.Find(engine)
		if errors.Is(err, host.ErrNoProgram) {
			continue
		}
		if err == nil {
			_, err = r.Run(ctx, []string{engine, "image", "inspect", "--format", "{{.Id}}", image})
		}
		if err == nil {
			return Container{Image: image, Engine: engine}, nil
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

// argv returns the command that runs rping in a container of this name. podman ends the container
// after the limit also if this program is killed; docker has no such option.
func (c Container) argv(name string, limit time.Duration, rping []string) []string {
	argv := []string{
		c.Engine, "run", "--rm", "--name", name, "--pull", "never", "--network", "host", "--user", "65534:65534",
		"--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--log-driver", "none",
	}
	if c.Unlabelled {
		argv = append(argv, "--security-opt", "label=disable")
	}
	if c.Engine == "podman" {
		argv = append(argv, "--timeout", strconv.Itoa(int((limit+ending+time.Second-1)/time.Second)))
	}
	for _, device := range c.Devices {
		argv = append(argv, "--device", device)
	}
	return slices.Concat(argv, []string{"--entrypoint", rping[0], c.Image}, rping[1:])
}

// run runs rping in a container, which is gone afterwards.
func (c Container) run(ctx context.Context, r host.Runner, rping []string) ([]byte, error) {
	name := "gpustack-rdma-test-" + strings.ToLower(rand.Text()[:12])
	stdout, err := r.Run(ctx, c.argv(name, r.Limit, rping))
	if errors.Is(err, host.ErrLimit) || errors.Is(err, host.ErrStopped) {
		// The engine was killed, and the container may run on.
		r.Stop, r.Limit = nil, asking
		if _, removed := r.Run(context.WithoutCancel(ctx), []string{c.Engine, "rm", "--force", "--volumes", name}); removed != nil {
			err = errors.Join(err, host.WithHint(fmt.Errorf("the container of the test was not removed: %w", removed), c.Engine+" rm --force "+name))
		}
	}
	return stdout, c.started(err)
}

// Exit statuses of podman-run(1) and docker run, which no rping has.
const (
	engineFailed = "exit status 125"
	notInvoked   = "exit status 126"
	notFound     = "exit status 127"
)

// noProgram are the words of runc and crun for a program that an image does not have.
var noProgram = host.LazyRegexp(`(?i)executable file .*not found|stat.*rping.*no such file|exec.*rping.*no such file`)

// startError is the error of an engine that did not start rping. It hides that the engine is a
// program which failed: the container's program did not fail.
type startError struct {
	kind, err error
}

func (e *startError) Error() string   { return e.kind.Error() + ": " + e.err.Error() }
func (e *startError) Unwrap() []error { return []error{e.kind} }

// started returns the error of an engine that did not start rping as such. Other errors are those
// of rping.
func (c Container) started(err error) error {
	failed := new(host.ProgramError)
	if !errors.As(err, &failed) {
		return err
	}
	switch failed.Status {
	case engineFailed, notInvoked, notFound:
		if noProgram().MatchString(failed.Stderr) {
			return fmt.Errorf("%s: %w", c.Image, ErrImageRping)
		}
		return fmt.Errorf("%s: %w", c.Image, &startError{ErrStart, err})
	}
	return err
}
