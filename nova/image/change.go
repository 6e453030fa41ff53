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
	"gpustack/nova/object"
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

// Kind returns the kind of changes of images, in one cloud.
func Kind(c *cloud.Compute) object.Kind[Move] { return object.Kind[Move]{Compute: c, Objects: Type} }

// Change is a change of one image, planned or recorded.
type Change = object.Change[Move]

// ParseRecord returns the record of an entry of kind objects.
func ParseRecord(e change.Entry) (Move, error) { return change.ParseObject[Move](e, Type) }

// Valid returns an error unless the record has values of one image that Glance accepts.
func (m Move) Valid() error {
	if m.ID == "" || len(m.Values) == 0 {
		return errors.New("not a change of an image")
	}
	var err error
	for _, m := range []Move{m, m.inverse()} {
		if _, badErr := cloud.PatchBody(m.patches()); badErr != nil {
			err = badErr
		}
	}
	return err
}

// With returns the move as it is recorded.
func (m Move) With(h object.Head) Move {
	m.Head = h
	return m
}

// Check returns an error unless the values of the image are as the move expects them.
func (m Move) Check(ctx context.Context, c *cloud.Compute) error {
	is, err := m.read(ctx, c)
	if err != nil {
		return err
	}
	differ := host.Map(host.Filter(m.Values, func(v Value) bool { return !equal(is.Value(v.Name), v.Before) }),
		func(v Value) string { return describe(v.Name, is.Value(v.Name)) })
	if len(differ) > 0 {
		return fmt.Errorf("image %s %w: %s", m.Name, ErrChanged, strings.Join(differ, ", "))
	}
	return nil
}

// Back returns the move that restores the values that are still as this one has set them. At least
// one value must be so, or as it was before: others stay as they are.
func (m Move) Back(ctx context.Context, c *cloud.Compute) (back Move, stays []string, err error) {
	is, err := m.read(ctx, c)
	if err != nil {
		return m.inverse(), nil, err
	}
	back = m
	back.Values = []Value{}
	undone := 0
	for _, v := range m.Values {
		switch now := is.Value(v.Name); {
		case equal(now, v.After):
			back.Values = append(back.Values, Value{v.Name, v.After, v.Before, ""})
		case equal(now, v.Before):
			undone++
		default:
			stays = append(stays, describe(v.Name, now))
		}
	}
	if len(back.Values)+undone == 0 {
		err = fmt.Errorf("image %s %w: %s", m.Name, ErrChanged, strings.Join(stays, ", "))
	}
	return back, stays, err
}

// describe returns a value that an image has, for messages.
func describe(name string, value *string) string {
	if value == nil {
		return "it does not have " + name
	}
	return "it has " + strings.TrimSpace(strings.Join(strings.Fields(line(name, *value)), " "))
}

func (m Move) read(ctx context.Context, c *cloud.Compute) (cloud.Image, error) {
	return c.Cloud().GetImage(ctx, m.ID)
}

// Make makes the move and reads the image back. Without the answer of a request its effect would be
// unknown, so an interrupt does not end it.
func (m Move) Make(ctx context.Context, c *cloud.Compute) (change.Outcome, error) {
	if len(m.Values) == 0 {
		return change.Stands, nil
	}
	ctx = context.WithoutCancel(ctx)
	err := c.Cloud().UpdateImage(ctx, cloud.Image{ID: m.ID, Name: m.Name}, m.patches())
	// A request that is repeated because its answer was lost conflicts with itself: Glance does not
	// remove a property twice.
	if cloud.IsRefused(err) && !errors.Is(err, cloud.ErrConflict) {
		if project := c.Scope().Project; errors.Is(err, cloud.ErrForbidden) && m.Owner != project {
			err = fmt.Errorf("image %s %w, %s: %w", m.Name, ErrOwner, m.Owner, err)
		}
		return change.None, fmt.Errorf("nothing was changed: %w", err)
	}
	is, readErr := m.read(ctx, c)
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
	return change.Stands, fmt.Errorf("image %s %w: %s", m.Name, ErrDrift, strings.Join(differ, ", "))
}

// Recover determines from the cloud what an interrupted run has made. As one request makes all of
// the change, one value that is as it sets it shows that it was made. An undo that has begun is
// completed.
func (m Move) Recover(ctx context.Context, c *cloud.Compute, undoing bool) (Move, change.Outcome, string, error) {
	is, err := m.read(ctx, c)
	if errors.Is(err, cloud.ErrNotFound) {
		return m, change.None, "was interrupted, and image " + m.Name + " was deleted since", nil
	}
	if err != nil {
		return m, change.Open, "", err
	}
	switch applied := slices.ContainsFunc(m.Values, func(v Value) bool { return equal(is.Value(v.Name), v.After) }); {
	case !applied:
		return m, change.None, "", nil
	case !undoing:
		return m, change.Stands, "", nil
	}
	outcome, err := object.Undo(ctx, c, m)
	return m, outcome.OfRecoveredUndo(), "", err
}
