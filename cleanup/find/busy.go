package find

import (
	"context"
	"database/sql"
	"slices"

	"gpustack/cleanup"
	"gpustack/cleanup/novadb"
)

// explainBusy adds the request that a busy instance works on to the findings that a report lists.
func (r *reader) explainBusy(ctx context.Context, findings []cleanup.Finding) error {
	if !r.columns["instance_actions.request_id"] {
		return nil // the database user may not read the table, or it does not exist
	}
	wanted := map[string][]int{} // findings by instance
	for k, f := range findings {
		if f.Busy != nil && f.Listed() {
			wanted[cleanup.KeyOf(*f.Device.Instance)] = append(wanted[cleanup.KeyOf(*f.Device.Instance)], k)
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	var uuids []any
	for uuid := range wanted {
		uuids = append(uuids, uuid)
	}
	actions, err := r.readActions(ctx, uuids)
	for uuid, a := range actions {
		for _, k := range wanted[uuid] {
			findings[k].Asks(a)
		}
	}
	return err
}

// readActions returns for each instance its latest action with an event that has not finished, or
// else its latest action. Nova does not write instance_actions.finish_time
// (nova/objects/instance_action.py), but that of each event.
func (r *reader) readActions(ctx context.Context, uuids []any) (map[string]cleanup.Action, error) {
	type action struct {
		cleanup.Action
		instance string
		id       int64
		hosts    []string // of all its events
	}
	all := map[int64]*action{}
	host, join := "''", ""
	if r.columns["instance_actions_events.finish_time"] {
		host = "COALESCE(" + r.column("instance_actions_events", "host", "NULL") + ", '')"
		join = " LEFT JOIN instance_actions_events e ON e.action_id = a.id AND e.deleted = 0"
	}
	event, open := "''", "0"
	if join != "" {
		event, open = "COALESCE(e.event, '')", "e.id IS NOT NULL AND e.finish_time IS NULL"
	}
	err := r.query(ctx, "instance_actions", func(rows *sql.Rows) error {
		var a action
		var event, host string
		var open bool
		if err := rows.Scan(&a.id, &a.instance, &a.Name, &a.Request, &event, &host, &open); err != nil {
			return err
		}
		if all[a.id] == nil {
			all[a.id] = &a
		}
		known := all[a.id]
		if host != "" {
			known.hosts = append(known.hosts, host)
		}
		if !open {
			return nil
		}
		if host != "" {
			known.Hosts = append(known.Hosts, host)
			event += " on " + host
		}
		known.Open = append(known.Open, event)
		return nil
	}, "SELECT a.id, a.instance_uuid, COALESCE(a.action, ''), COALESCE(a.request_id, ''), "+event+", "+host+", "+open+
		" FROM instance_actions a"+join+" WHERE a.deleted = 0 AND a.instance_uuid IN ("+novadb.Places(len(uuids))+")", uuids...)
	latest := map[string]*action{}
	for _, a := range all {
		key := cleanup.KeyOf(a.instance)
		known := latest[key]
		if known == nil || (len(a.Open) > 0) != (len(known.Open) > 0) && len(a.Open) > 0 || (len(a.Open) > 0) == (len(known.Open) > 0) && a.id > known.id {
			latest[key] = a
		}
	}
	actions := map[string]cleanup.Action{}
	for key, a := range latest {
		if len(a.Open) == 0 {
			a.Hosts = a.hosts
		}
		slices.Sort(a.Open)
		actions[key] = a.Action
	}
	return actions, err
}
