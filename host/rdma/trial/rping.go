package trial

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"gpustack/host"
)

// Limits of options. rping accepts these sizes (rdma-core 44, librdmacm/examples/rping.c,
// RPING_MIN_BUFSIZE and RPING_BUFSIZE), and prints all data, which this package reads.
const (
	minSize = 32
	MaxSize = 65535
	maxData = 64 << 20 // count times size
)

// ErrNoRping says that a machine has no rping, and ErrImageRping that an image has none.
var (
	ErrNoRping    = host.WithHint(errors.New("rping is not installed"), "Debian, Ubuntu: apt install rdmacm-utils; RHEL: dnf install librdmacm-utils")
	ErrImageRping = host.WithHint(errors.New("the image has no rping"),
		"install rdmacm-utils and ibverbs-providers (Debian, Ubuntu) or librdmacm-utils and libibverbs (RHEL) in the image")
)

// Rping returns the program of tests with rping.
func Rping() Programs { return Programs{[]string{"rping"}, ErrNoRping, ErrImageRping} }

// rping returns the step of a test with rping.
func (t Test) rping() step {
	rest := []string{"-v", "-p", strconv.Itoa(t.Port), "-S", strconv.Itoa(t.Size)}
	source := t.Source.IP.String()
	return step{
		name: "rping", container: t.Container, listen: append([]string{"rping", "-s", "-a", source}, rest...),
		connect: func(peer netip.Addr) []string {
			return append([]string{"rping", "-c", "-a", peer.String(), "-I", source, "-V", "-C", strconv.Itoa(t.Count)}, rest...)
		},
	}
}

// judgeRping adds what a step moved to a result, and returns what it lacks, or nil. rping prints
// the data of each iteration, and exits with 0 also if the other side disconnects before the last.
func (t Test) judgeRping(r *Result, _ step, ran []Side, _ bool) *Cause {
	n := bytes.Count(ran[0].Stdout, []byte("ping data: rdma-ping-"))
	r.Iterations, r.Bytes = n, int64(n)*int64(t.Size)
	if n >= t.Count && (ran[0].Err == nil || ran[0].raced()) {
		return nil
	}
	return &Cause{Cause: fmt.Sprintf("the connection ended after %d of %d iterations", n, t.Count),
		Remedy: host.Plain("see the messages of the other side; give both sides the same --iterations")}
}

// raced reports whether rping ended with an error only because it had closed the channel of events
// that its thread still reads. It closes it last of all, when its test is done (rdma-core 44,
// librdmacm/examples/rping.c, main and cm_thread).
func (s Side) raced() bool {
	text := strings.TrimSpace(s.Messages())
	return strings.HasSuffix(text, "rdma_get_cm_event: Bad file descriptor") && len(diagnose(text)) == 0
}
