package find

import (
	"context"
	"database/sql"

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
	host, event, open, join := "''", "''", "FALSE", ""
	if r.columns["instance_actions_events.finish_time"] {
		host = "COALESCE(" + r.column("instance_actions_events", "host", "NULL") + ", '')"
		event, open = "COALESCE(e.event, '')", "e.id IS NOT NULL AND e.finish_time IS NULL"
		join = " LEFT JOIN instance_actions_events e ON e.action_id = a.id AND e.deleted = 0"
	}
	actions, last := map[string]cleanup.Action{}, map[string]int64{}
	// The events of an action that have not finished come first, by name.
	return actions, r.query(ctx, "instance_actions", func(rows *sql.Rows) error {
		var a cleanup.Action
		var id int64
		var instance, event, host string
		var open bool
		if err := rows.Scan(&id, &instance, &a.Name, &a.Request, &event, &host, &open); err != nil {
			return err
		}
		key := cleanup.KeyOf(instance)
		if id == last[key] {
			a = actions[key]
		} else if !open && len(actions[key].Open) > 0 {
			return nil
		}
		if host != "" && (open || len(a.Open) == 0) {
			a.Hosts = append(a.Hosts, host)
		}
		if open && host != "" {
			event += " on " + host
		}
		if open {
			a.Open = append(a.Open, event)
		}
		actions[key], last[key] = a, id
		return nil
	}, "SELECT a.id, a.instance_uuid, COALESCE(a.action, ''), COALESCE(a.request_id, ''), "+
		event+", "+host+", "+open+" AS unfinished FROM instance_actions a"+join+
		" WHERE a.deleted = 0 AND a.instance_uuid IN ("+novadb.Places(len(uuids))+") ORDER BY a.id, unfinished DESC, 5, 6", uuids...)
}
