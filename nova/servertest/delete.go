package servertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"gpustack/host"
	"gpustack/nova/cloud"
)

// Pace is how often a cloud is asked, and how long it is waited for. 0 stands for a field's
// default.
type Pace struct {
	First, Most time.Duration // between two requests: at first, and after a long time (default 2 s and 5 s)
	Look        time.Duration // between two looks at a server whose console is read (default 10 s)
	Delete      time.Duration // for the deletion of a server (default 5 minutes)
	Free        time.Duration // for devices to be free after it (default 150 s, as nova-compute looks every 60 s)
	Lost        time.Duration // for a server whose request has no answer (default 10 s)
	Report      time.Duration // for the report on a command, after its time is over (default 30 s)
}

func (p Pace) withDefaults() Pace {
	return Pace{
		First: cmp.Or(p.First, 2*time.Second), Most: cmp.Or(p.Most, 5*time.Second), Look: cmp.Or(p.Look, 10*time.Second),
		Delete: cmp.Or(p.Delete, deleteTime), Free: cmp.Or(p.Free, 150*time.Second), Lost: cmp.Or(p.Lost, 10*time.Second),
		Report: cmp.Or(p.Report, reportTime),
	}
}

// after returns the pause after a time of waiting. It grows slowly, so that what took minutes is
// noticed within a few per cent of that.
func (p Pace) after(waited time.Duration) time.Duration {
	const share = 60
	return min(max(p.First, waited/share), p.Most)
}

// pause waits until it is time for the next request. It returns false if ctx has ended.
func (p Pace) pause(ctx context.Context, since time.Time) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(p.after(time.Since(since))):
		return true
	}
}

// LeftError says that a server of a test could not be deleted.
type LeftError struct {
	Server string // its id
	Why    error
}

func (e *LeftError) Error() string {
	return fmt.Sprintf("server %s is left: %v", e.Server, e.Why)
}

// Unwrap returns the reason.
func (e *LeftError) Unwrap() error { return e.Why }

// Hint returns the commands that delete the server.
func (e *LeftError) Hint() string { return e.HintText().String() }

// HintText returns what Hint returns, with the command of gpustack as a part.
func (e *LeftError) HintText() host.Text {
	return host.Textf("delete it with: %s, or: openstack server delete --wait %s", host.NewCommand("flavor test").Flag("clean"), e.Server)
}

// read returns the server of a record as Nova has it, or nil if it does not exist. Without an id it
// is found by its name and its metadata.
//
// Errors: errNotOurs.
func (k Kind) read(ctx context.Context, s Server) (*cloud.Server, error) {
	if s.ID == "" {
		found, _, err := k.Compute.FindServers(ctx, s.Name)
		for _, is := range found {
			if is.Name == s.Name && is.Metadata[metadataNonce] == s.Nonce {
				return &is, err
			}
		}
		return nil, err
	}
	is, err := k.Compute.GetServer(ctx, s.ID)
	switch {
	case errors.Is(err, cloud.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	case is.Name != s.Name || is.Metadata[metadataNonce] != s.Nonce:
		return nil, fmt.Errorf("server %s (%s) %w", s.ID, is.Name, errNotOurs)
	}
	return &is, nil
}

// lost finds the server of a request that has no answer. The request may still be carried out.
func (k Kind) lost(ctx context.Context, s Server, failed error) (id string, err error) {
	pace, since := k.Pace.withDefaults(), time.Now()
	for {
		is, err := k.read(ctx, s)
		if err == nil && is != nil {
			return is.ID, nil
		}
		if time.Since(since) >= pace.Lost || !pace.pause(ctx, since) {
			return "", failed
		}
	}
}

// deleteAll deletes servers, and waits until Nova no longer has them. Only a server with the
// recorded id, name and metadata is deleted; it is no error if there is none.
//
// Errors: [LeftError] for each server that is left.
func (k Kind) deleteAll(ctx context.Context, servers []Server) error {
	var errs []error
	var waits []Server
	for _, s := range servers {
		is, err := k.read(ctx, s)
		if err == nil && is != nil {
			if err = k.Compute.DeleteServer(ctx, s.ID); err == nil {
				waits = append(waits, s)
			}
		}
		if err != nil && !errors.Is(err, errNotOurs) {
			err = &LeftError{s.ID, err}
		}
		errs = append(errs, err)
	}
	for _, s := range waits {
		if err := k.gone(ctx, s.ID); err != nil {
			errs = append(errs, &LeftError{s.ID, err})
		}
	}
	return errors.Join(errs...)
}

// gone waits until Nova no longer has a server that was requested to be deleted.
func (k Kind) gone(ctx context.Context, id string) error {
	pace, since, forced, failed := k.Pace.withDefaults(), time.Now(), false, 0
	ctx, cancel := context.WithTimeoutCause(ctx, pace.Delete, fmt.Errorf("not deleted after %s", pace.Delete))
	defer cancel()
	for {
		is, err := k.Compute.GetServer(ctx, id)
		switch {
		case errors.Is(err, cloud.ErrNotFound):
			return nil
		case context.Cause(ctx) != nil:
			return context.Cause(ctx)
		case err == nil && is.Status == "SOFT_DELETED" && !forced:
			if err := k.Compute.ForceDeleteServer(ctx, id); err != nil {
				return err
			}
			forced = true
		case err == nil && is.Status == "ERROR" && is.Task == "":
			const tries = 3 // the API sets the task before it answers, nova-compute ends it
			if failed++; failed == tries {
				return fmt.Errorf("nova has failed to delete it: %s", is.Fault)
			}
		case err != nil && !passes(err):
			return err
		}
		if !pace.pause(ctx, since) {
			return context.Cause(ctx)
		}
	}
}

// passes reports whether an error may be over at the next request.
func passes(err error) bool {
	return errors.Is(err, cloud.ErrUnavailable) || errors.Is(err, cloud.ErrUnreachable) || errors.Is(err, cloud.ErrTimeout)
}
