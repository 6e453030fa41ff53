package find

import (
	"context"

	"gpustack/cleanup"
	"gpustack/cleanup/novadb"
)

// readContexts reads the migrations that the migration contexts of instances name, deleted ones
// too. A migration that is not found is purged, or archived.
func (r *reader) readContexts(ctx context.Context, e *records) error {
	e.contexts = map[int64]cleanup.ContextMigration{}
	var ids []any
	for _, i := range e.instances {
		if i.Context != nil {
			ids = append(ids, i.Context.Migration)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	list, err := r.migrations(ctx, "id IN ("+novadb.Places(len(ids))+")", ids...)
	for _, m := range list {
		e.contexts[m.ID] = m
	}
	return err
}

// contextOf returns the migration that the context of an instance names, nil if the instance
// has no context.
func (e *records) contextOf(i cleanup.Instance) *cleanup.ContextMigration {
	if i.Context == nil {
		return nil
	}
	m := e.contexts[i.Context.Migration]
	m.ID = i.Context.Migration
	return &m
}
