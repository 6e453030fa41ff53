package cloud

import (
	"context"
	"errors"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/nova/cloud"
	"gpustack/nova/drain"
	"gpustack/nova/flavor"
	"gpustack/nova/image"
	"gpustack/nova/servertest"
)

// Engine returns the engine for changes of objects of a cloud, which the user's own journal
// records. origin is recorded in new entries.
func Engine(compute *cloud.Compute, origin change.Origin) (change.Engine, error) {
	store, err := change.UserStore()
	return change.Engine{Store: store, Origin: origin, Kinds: kinds(compute)}, err
}

// UndoEngine returns the engine that undoes entries of objects in a store.
func UndoEngine(compute *cloud.Compute, store change.Store) change.Engine {
	return change.Engine{Store: store, Kinds: kinds(compute)}
}

// Known returns an error unless the type of an entry's object is known. It needs no connection.
func Known(e change.Entry) error {
	return change.Engine{Kinds: kinds(nil)}.Known(e)
}

// PlanUndo plans the undo of an entry, after the recovery of interrupted ones. recovered reports
// that the entry was one of them, and that its recovery has undone it: there is no plan then.
func PlanUndo(ctx context.Context, engine change.Engine, e change.Entry) (plan change.UndoPlan, recovered bool, err error) {
	plan, err = engine.PlanUndo(ctx, e.ID)
	if e.IsOpen() && (errors.Is(err, change.ErrNoEntry) || errors.Is(err, change.ErrUndone)) {
		return change.UndoPlan{}, true, nil
	}
	return plan, false, err
}

// kinds returns the kinds of changes of objects of a cloud, one for each type of object.
func kinds(compute *cloud.Compute) []change.Kind {
	machine, _ := host.NewRoot("/") // with an error, a process cannot be found there, and counts as running
	return []change.Kind{flavor.Kind(compute), image.Kind(compute), drain.Kind(compute), servertest.Kind{Compute: compute, Root: machine}}
}
