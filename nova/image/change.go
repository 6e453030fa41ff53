package image

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/nova/cloud"
)

// Errors of changes of images.
var (
	// ErrChanged says that values of an image have changed since the plan was made, or since the
	// change that is undone.
	ErrChanged = host.WithHint(host.WithCode(errors.New("has changed since"), host.CodeEdited, ""),
		"'openstack image show' shows the image as it is; change it back, or change it by hand")
	// ErrOwner says that an image belongs to another project than that of the credentials.
	ErrOwner = host.WithHint(errors.New("belongs to another project"),
		"use the credentials of that project, or of an administrator: --os-cloud selects them")
	// ErrDrift says that Glance has stored other values than were requested.
	ErrDrift = host.WithHint(errors.New("is not as requested"), "see the log of glance-api; another program may have changed the image")
)

// Type is the type of images in the journal.
const Type = "image"

// Record is what the journal stores of a change of an image, in the field objects of its entry.
type Record struct {
	Type string `json:"type"` // "image"
	cloud.Scope
	Move
}

// ParseRecord returns the record of an entry of kind objects.
func ParseRecord(e change.Entry) (Record, error) { return change.ParseObject[Record](e, Type) }

// ObjectType returns the type that the record names.
func (r Record) ObjectType() string { return r.Type }

// Valid returns an error unless the record has values of one image that Glance accepts.
func (r Record) Valid() error {
	if r.ID == "" || len(r.Values) == 0 {
		return errors.New("not a change of an image")
	}
	var err error
	for _, m := range []Move{r.Move, r.inverse()} {
		if _, badErr := cloud.PatchBody(m.patches()); badErr != nil {
			err = badErr
		}
	}
	return err
}

// Kind is the kind of changes of images, in one cloud.
type Kind struct {
	Compute *cloud.Compute
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

// New returns the change that makes a move.
func (k Kind) New(m Move) *Change {
	return &Change{Move: m, scope: k.Compute.Scope(), compute: k.Compute}
}

// Open returns the change that an entry records.
func (k Kind) Open(_ context.Context, e change.Entry) (change.Change, error) {
	r, err := ParseRecord(e)
	if err != nil {
		return nil, err
	}
	return &Change{Move: r.Move, scope: r.Scope, compute: k.Compute, status: e.Status}, nil
}

// Change is a change of one image, planned or recorded.
type Change struct {
	Move
	scope   cloud.Scope
	compute *cloud.Compute
	status  change.Status // of the entry that it was opened from; "" for a planned change
	stays   []string      // values that undo leaves, for messages; set by Check
	back    Move          // what undo does; set by Check
}

// Kind is the name of its kind.
func (*Change) Kind() string { return change.KindObjects }

// Record writes the values into an entry.
func (c *Change) Record(e *change.Entry) error {
	return e.SetDetail(Record{Type: Type, Scope: c.scope, Move: c.Move})
}

// Check returns an error if the credentials are for another cloud, or if the values of the image
// are not as the change expects them. Undo expects that at least one value is still as the change
// has set it, or as it was before: others stay as they are.
func (c *Change) Check(ctx context.Context, p change.Purpose) error {
	if p == change.ToLook {
		return nil
	}
	if err := c.scope.Expect(c.compute.Scope()); err != nil {
		return err
	}
	switch {
	case p == change.ToRecover, p == change.ToUndo && c.status != change.Done:
		c.back = c.inverse()
		return nil
	}
	is, err := c.read(ctx)
	if err != nil {
		return err
	}
	if p == change.ToUndo {
		return c.planBack(is)
	}
	var differ []string
	for _, v := range c.Values {
		if !equal(is.Value(v.Name), v.Before) {
			differ = append(differ, describe(v.Name, is.Value(v.Name)))
		}
	}
	if len(differ) > 0 {
		return fmt.Errorf("image %s %w: %s", c.Name, ErrChanged, strings.Join(differ, ", "))
	}
	return nil
}

// planBack determines which values undo restores.
func (c *Change) planBack(is cloud.Image) error {
	c.back, c.stays = c.Move, nil
	c.back.Values = []Value{}
	undone := 0
	for _, v := range c.Values {
		switch now := is.Value(v.Name); {
		case equal(now, v.After):
			c.back.Values = append(c.back.Values, Value{v.Name, v.After, v.Before})
		case equal(now, v.Before):
			undone++
		default:
			c.stays = append(c.stays, describe(v.Name, now))
		}
	}
	if len(c.back.Values)+undone == 0 {
		return fmt.Errorf("image %s %w: %s", c.Name, ErrChanged, strings.Join(c.stays, ", "))
	}
	return nil
}

// describe returns a value that an image has, for messages.
func describe(name string, value *string) string {
	if value == nil {
		return "it does not have " + name
	}
	return "it has " + strings.TrimSpace(strings.Join(strings.Fields(line(name, *value)), " "))
}

// Back returns what undo does, and the values that it leaves because they have changed since. It
// is known after Check.
func (c *Change) Back() (back Move, stays []string) {
	return c.back, c.stays
}

func (c *Change) read(ctx context.Context) (cloud.Image, error) {
	return c.compute.Cloud().GetImage(ctx, c.ID)
}

// Apply makes the change, all of it or nothing.
func (c *Change) Apply(ctx context.Context, _ func() error) (change.Outcome, error) {
	if cause := context.Cause(ctx); cause != nil {
		return change.None, fmt.Errorf("%w, nothing was changed", cause)
	}
	return c.make(ctx, c.Move)
}

// Undo restores the values that are still as the change has set them, all or none.
func (c *Change) Undo(ctx context.Context, _ func() error) (change.Outcome, error) {
	if cause := context.Cause(ctx); cause != nil {
		return change.Stands, fmt.Errorf("%w, nothing was changed", cause)
	}
	is, err := c.read(ctx)
	if err != nil {
		return change.Stands, err
	}
	if err := c.planBack(is); err != nil {
		return change.Stands, err
	}
	outcome, err := c.make(ctx, c.back)
	return outcome.OfUndo(), err
}

// make makes a move and reads the image back. Without the answer of a request its effect would be
// unknown, so an interrupt does not end it.
func (c *Change) make(ctx context.Context, m Move) (change.Outcome, error) {
	if len(m.Values) == 0 {
		return change.Stands, nil
	}
	ctx = context.WithoutCancel(ctx)
	err := c.compute.Cloud().UpdateImage(ctx, cloud.Image{ID: c.ID, Name: c.Name}, m.patches())
	// A request that is repeated because its answer was lost conflicts with itself: Glance does not
	// remove a property twice.
	if cloud.IsRefused(err) && !errors.Is(err, cloud.ErrConflict) {
		if project := c.compute.Scope().Project; errors.Is(err, cloud.ErrForbidden) && c.Owner != project {
			err = fmt.Errorf("image %s %w, %s: %w", c.Name, ErrOwner, c.Owner, err)
		}
		return change.None, fmt.Errorf("nothing was changed: %w", err)
	}
	is, readErr := c.read(ctx)
	if readErr != nil {
		return change.Open, errors.Join(err, readErr)
	}
	var differ []string
	for _, v := range m.Values {
		if now := is.Value(v.Name); !equal(now, v.After) {
			differ = append(differ, describe(v.Name, now))
		}
	}
	switch {
	case len(differ) == 0:
		return change.Stands, nil // also where the answer was lost
	case err != nil && len(differ) == len(m.Values):
		return change.None, fmt.Errorf("nothing was changed: %w", err)
	case err != nil:
		return change.Open, err
	}
	return change.Stands, fmt.Errorf("image %s %w: %s", c.Name, ErrDrift, strings.Join(differ, ", "))
}

// Recover determines from the cloud what an interrupted run has made. As one request makes all of
// the change, one value that is as it sets it shows that it was made. An undo that has begun is
// completed.
func (c *Change) Recover(ctx context.Context, _ func() error) (change.Outcome, string, error) {
	ctx = context.WithoutCancel(ctx)
	is, err := c.read(ctx)
	if errors.Is(err, cloud.ErrNotFound) {
		if c.status == change.Undoing {
			return change.Reverted, "was interrupted, and image " + c.Name + " was deleted since", nil
		}
		return change.None, "was interrupted, and image " + c.Name + " was deleted since", nil
	}
	if err != nil {
		return change.Open, "", err
	}
	applied := slices.ContainsFunc(c.Values, func(v Value) bool { return equal(is.Value(v.Name), v.After) })
	switch {
	case c.status != change.Undoing && applied:
		return change.Stands, "", nil
	case c.status != change.Undoing:
		return change.None, "", nil
	case !applied:
		return change.Reverted, "", nil
	}
	if err := c.planBack(is); err != nil {
		return change.Open, "", err
	}
	outcome, err := c.make(ctx, c.back)
	return outcome.OfRecoveredUndo(), "", err
}
