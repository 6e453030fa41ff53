package servertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/nova/cloud"
	"gpustack/nova/object"
)

// Type is the type of an object in the journal.
const Type = "server"

// errNotOurs says that a server with a recorded id has not the name and the metadata of the record.
var errNotOurs = host.WithHint(errors.New("is not the server of the test: its name or its metadata has another value, and it is not deleted"),
	host.Textf("compare it with the entry: %s; openstack server show ID", host.NewCommand("history").Arg("ENTRY")))

// Server is a server of a test.
type Server struct {
	Nonce string `json:"nonce"`          // 8 hexadecimal digits, which its metadata "gpustack-test" has
	Name  string `json:"name"`           // "gpustack-test-" and the nonce
	ID    string `json:"id" null:"zero"` // null until Nova has answered
	// how far its creation has come
	State State `json:"state"`
}

// State is how far the server of a record has come.
type State string

// States of the server of a record.
const (
	Planned   State = ""          // not requested
	Requested State = "requested" // Nova may have created it
	Created   State = "created"
	Refused   State = "refused" // Nova has rejected the request
)

// Record is what the journal stores of a test, in the field objects of its entry. It contains no
// credentials, no user_data, no command and no text of a console.
type Record struct {
	object.Head
	Flavor  string   `json:"flavor"`
	Image   string   `json:"image"`
	Keep    bool     `json:"keep"`
	Run     string   `json:"run_hash,omitempty"` // the hash of the command that guests ran, "" for none
	Process *Process `json:"process,omitempty"`  // the run; nil if it could not be determined
	// when the run no longer uses the servers, as in the metadata of those that are not kept
	Ends    time.Time `json:"ends"`
	Servers []Server  `json:"servers"`
}

// Process identifies a running program on a machine.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // ticks from boot to its start
	Boot  string `json:"boot"`  // the id of the boot (random(4), boot_id)
	Space string `json:"pid_namespace"`
}

const bootID = "/proc/sys/kernel/random/boot_id"

// thisProcess returns the process that calls it, or nil if /proc does not show it.
func thisProcess(root host.Root) *Process {
	p, err := readProcess(root, os.Getpid())
	if err != nil {
		return nil
	}
	return &p
}

func readProcess(root host.Root, pid int) (Process, error) {
	boot, err := root.ReadFile(bootID)
	if err != nil {
		return Process{}, err
	}
	space, err := os.Readlink(root.Path("/proc/self/ns/pid"))
	if err != nil {
		return Process{}, err
	}
	p := Process{PID: pid, Boot: strings.TrimSpace(string(boot)), Space: space}
	text, err := root.ReadFile(host.ProcessFile(pid, "stat"))
	if err != nil {
		return p, err
	}
	stat, err := host.ParseProcessStat(string(text))
	p.Start = stat.Start
	return p, err
}

// runs describes the run of a record that may still be running, "" if it has ended: a container or
// another machine may have the same journal. A process whose state cannot be read counts as running.
func (r Record) runs(root host.Root, now time.Time) string {
	if r.Process == nil {
		return ""
	}
	is, err := readProcess(root, r.Process.PID)
	switch {
	case is.Boot != r.Process.Boot || is.Space != r.Process.Space:
		if !now.Before(r.Ends) {
			return ""
		}
		return "may be running on another machine or in another container until " + r.Ends.Format("15:04:05Z")
	case host.HasEnded(err), err == nil && is != *r.Process, is.PID == os.Getpid():
		return ""
	}
	return fmt.Sprintf("is running: process %d", is.PID)
}

// Names returns the names of the servers.
func (r Record) Names() string {
	return joined(host.Map(r.Servers, func(s Server) string { return s.Name }))
}

// ParseRecord returns the record of an entry of kind objects.
func ParseRecord(e change.Entry) (Record, error) { return change.ParseObject[Record](e, Type) }

// Valid returns an error unless all servers of the record have names of a test.
func (r Record) Valid() error {
	if len(r.Servers) == 0 {
		return errors.New("a test without servers")
	}
	errs := host.Map(host.Filter(r.Servers, func(s Server) bool { return !isNonce(s.Nonce) || s.Name != prefix+s.Nonce }),
		func(s Server) error { return fmt.Errorf("not the name of a test's server: %q", s.Name) })
	return errors.Join(errs...)
}

func isNonce(s string) bool {
	return len(s) == 8 && strings.Trim(s, "0123456789abcdef") == ""
}

// Kind is the kind of changes that create servers for a test, in one cloud.
type Kind struct {
	Compute *cloud.Compute
	Root    host.Root // of the machine whose processes are running tests
	Pace    Pace
}

// Name is the name of the kind in the journal.
func (Kind) Name() string { return change.KindObjects }

// Type is the type of the objects of the kind.
func (Kind) Type() string { return Type }

// Handles reports whether an entry belongs to the cloud, the region and the project of the kind.
func (k Kind) Handles(e change.Entry) bool {
	r, err := ParseRecord(e)
	return err == nil && r.Is(k.Compute.Scope())
}

// New returns the change that creates the servers of a plan.
func (k Kind) New(p Plan) *Change {
	r := Record{Head: object.Head{Type: Type, Scope: k.Compute.Scope()}, Flavor: p.Flavor.Name, Image: p.Image.Name, Keep: p.Keep, Run: p.Command.Hash(),
		Process: thisProcess(k.Root), Ends: p.Ends}
	r.Servers = append(r.Servers, p.Servers...)
	return &Change{record: r, kind: k, plan: &p}
}

// Open returns the change that an entry records.
func (k Kind) Open(_ context.Context, e change.Entry) (change.Change, error) {
	r, err := ParseRecord(e)
	if err != nil {
		return nil, err
	}
	return &Change{record: r, kind: k, status: e.Status}, nil
}

// Change is the creation of the servers of a test, planned or recorded.
type Change struct {
	record Record
	kind   Kind
	plan   *Plan         // nil of a recorded change
	status change.Status // of the entry that it was opened from; "" for a planned change
	there  []Server
}

// Recorded returns what is recorded of the test, with the ids of servers that were created.
func (c *Change) Recorded() Record { return c.record }

// There returns the servers that exist, which Check has found.
func (c *Change) There() []Server { return c.there }

// Kind is the name of its kind.
func (*Change) Kind() string { return change.KindObjects }

// Record writes the servers into an entry.
func (c *Change) Record(e *change.Entry) error {
	return e.SetDetail(c.record)
}

// Check returns an error if the credentials are for another cloud, if a run still uses the servers,
// or if a server with a recorded id is another one.
func (c *Change) Check(ctx context.Context, p change.Purpose) error {
	if p == change.ToLook || p == change.ToApply {
		return nil
	}
	if err := c.record.Expect(c.kind.Compute.Scope()); err != nil {
		return err
	}
	if running := c.record.runs(c.kind.Root, time.Now()); running != "" {
		return host.WithHint(errors.New("the test "+running),
			"wait until it has ended, or interrupt it: it deletes its servers itself; of a run that was killed: openstack server delete NAME")
	}
	var errs []error
	c.there = nil
	for _, s := range c.record.Servers {
		if s.ID == "" && s.State != Requested {
			continue
		}
		is, err := c.kind.read(ctx, s)
		if errs = append(errs, err); is != nil {
			s.ID = is.ID
			c.there = append(c.there, s)
		}
	}
	return errors.Join(errs...)
}

// Apply requests the servers one after the other, each recorded before. If a request fails or ctx
// ends, the servers that were created are deleted.
func (c *Change) Apply(ctx context.Context, save func() error) (change.Outcome, error) {
	err := c.create(ctx, save)
	if err == nil {
		return change.Stands, nil
	}
	limited, cancel := ending(ctx)
	defer cancel()
	removeErr := c.remove(limited, save)
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, cause) {
		err = interrupted(cause, removeErr == nil)
	}
	if removeErr != nil {
		return change.Open, errors.Join(err, removeErr)
	}
	return change.None, err
}

// interrupted returns the error of a test that was interrupted.
func interrupted(cause error, deleted bool) error {
	if deleted {
		return fmt.Errorf("%w, no server of the test is left", cause)
	}
	return fmt.Errorf("%w, not all servers of the test were deleted", cause)
}

// afterSignal is how long an interrupted test may take to delete its servers.
const afterSignal = time.Minute

// errLate is the cause of a context that ending has ended.
var errLate = fmt.Errorf("not deleted within %s after the interruption", afterSignal)

// ending returns the context in which a test deletes its servers: it ends a minute after ctx.
func ending(ctx context.Context) (context.Context, context.CancelFunc) {
	limited, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-limited.Done():
		case <-time.After(afterSignal):
			cancel(errLate)
		}
	})
	return limited, func() { stop(); cancel(nil) }
}

func (c *Change) create(ctx context.Context, save func() error) error {
	for i := range c.record.Servers {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		s := &c.record.Servers[i]
		s.State = Requested
		if err := save(); err != nil {
			return err
		}
		// A request that was sent is waited for: only its answer has the id.
		id, err := c.kind.Compute.CreateServer(context.WithoutCancel(ctx), c.plan.newServer(*s))
		switch {
		case cloud.IsRefused(err):
			s.State = Refused
			return err
		case err != nil:
			if id, err = c.kind.lost(context.WithoutCancel(ctx), *s, err); err != nil {
				return err
			}
		}
		s.ID, s.State = id, Created
		if err := save(); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// Undo deletes the servers.
func (c *Change) Undo(ctx context.Context, save func() error) (change.Outcome, error) {
	err := c.remove(ctx, save)
	if err != nil {
		return change.Partly, err
	}
	return change.Reverted, nil
}

// Recover deletes the servers that an interrupted run has created.
func (c *Change) Recover(ctx context.Context, save func() error) (change.Outcome, string, error) {
	there := false
	for i := range c.record.Servers {
		s := &c.record.Servers[i]
		is, err := c.kind.read(ctx, *s)
		if err != nil {
			return change.Open, "", err
		}
		there = there || is != nil
	}
	if err := c.remove(ctx, save); err != nil {
		return change.Open, "", err
	}
	if c.status == change.Undoing {
		return change.Reverted, "", nil
	}
	text := "was interrupted: Nova has no server of the test"
	if there {
		text = "was interrupted: the servers of the test were deleted: " + c.record.Names()
	}
	return change.None, text, nil
}

// remove deletes the servers that exist: all are requested to be deleted, then all are waited for.
func (c *Change) remove(ctx context.Context, save func() error) error {
	var servers []Server
	for i := range c.record.Servers {
		s := &c.record.Servers[i]
		if s.State == Planned || s.State == Refused {
			continue
		}
		if s.ID == "" {
			is, err := c.kind.read(ctx, *s)
			if err != nil {
				return err
			}
			if is == nil {
				continue
			}
			s.ID, s.State = is.ID, Created
			if err := save(); err != nil {
				return err
			}
		}
		servers = append(servers, *s)
	}
	return c.kind.deleteAll(ctx, servers)
}
