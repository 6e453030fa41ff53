package db

import (
	"fmt"
	"strings"
	"testing"

	"gpustack/host/hosttest"
)

// A world is a cell as large as clouds have them: rows that Nova writes while all is well, and
// stale ones of deleted instances among them.
type world struct {
	nodes      int // each with the same number of instances
	instances  int // each with four devices of five; the fifth is free
	migrations int // one of a thousand in error
	stale      int // devices of deleted instances, a multiple of four
}

// devices is how many rows pci_devices has.
func (w world) devices() int {
	return w.instances * 5
}

// pools is the pci_stats of each node: of its free devices, every other is on NUMA node 1.
func (w world) pools() string {
	free := w.devices() / w.nodes / 5
	var pools []string
	for numa, count := range []int{(free + 1) / 2, free / 2} {
		pools = append(pools, fmt.Sprintf(`{"nova_object.name": "PciDevicePool", "nova_object.namespace": "nova", "nova_object.version": "1.1", "nova_object.data":
			{"product_id": "11b4", "vendor_id": "10de", "numa_node": %d, "tags": {"dev_type": "type-PCI"}, "count": %d}, "nova_object.changes": ["count", "numa_node", "product_id", "tags", "vendor_id"]}`, numa, count))
	}
	return `'{"nova_object.name": "PciDevicePoolList", "nova_object.namespace": "nova", "nova_object.version": "1.1", "nova_object.data": {"objects": [` +
		strings.Join(pools, ", ") + `]}, "nova_object.changes": ["objects"]}'`
}

// make fills cell1. Instances were created on one node after the other, and have random uuids;
// the devices of a node were inserted together.
func (w world) make(t testing.TB) {
	t.Helper()
	hosttest.NoError(t, database.Reset(t.Context()))
	// Device d, from 0, is on node d div each; instance i, from 0, is on node i mod nodes.
	each := w.devices() / w.nodes
	owner := fmt.Sprintf("(d %% %[1]d DIV 5 * %[2]d + d DIV %[1]d)", each, w.nodes)
	uuid, node := uuidBy, nodeBy
	// The id of the node of an instance, and of a migration's destination, where the schema has a
	// column for it.
	id := [2]string{}
	if database.Cell1.has("instances", "compute_id") {
		id = [2]string{", compute_id", fmt.Sprintf(", 1 + seq %% %d", w.nodes)}
	}
	dest := [2]string{}
	if database.Cell1.has("migrations", "dest_compute_id") {
		dest = [2]string{", dest_compute_id", fmt.Sprintf(", 1 + seq %% %d", w.nodes)}
	}
	// The columns of instance_extra that nothing reads are most of it.
	blob := func(n int) string { return fmt.Sprintf("REPEAT('{\"nova_object.name\": \"Flavor\", ', %d)", n/30) }
	execInCell1(t,
		"SET SESSION foreign_key_checks = 0, unique_checks = 0",
		fmt.Sprintf(`INSERT INTO services (uuid, host, `+"`binary`"+`, topic, version, report_count, disabled, forced_down, deleted, created_at, updated_at, last_seen_up)
			SELECT %s, %s, 'nova-compute', 'compute', 64, 100, 0, 0, 0, UTC_TIMESTAMP() - INTERVAL 200 DAY, UTC_TIMESTAMP(), UTC_TIMESTAMP() FROM seq_0_to_%d`,
			uuid("seq + 40000000"), node("seq"), w.nodes-1),
		fmt.Sprintf(`INSERT INTO compute_nodes (uuid, host, hypervisor_hostname, hypervisor_type, hypervisor_version, cpu_info, vcpus, memory_mb, local_gb, vcpus_used, memory_mb_used, local_gb_used,
			host_ip, mapped, stats, pci_stats, deleted, created_at, updated_at)
			SELECT %s, %[2]s, %[2]s, 'QEMU', 7002000, '{}', 32, 262144, 1000, 0, 0, 0, '127.0.0.1', 1, REPEAT('{"failed_builds": "0"}', 10), %[4]s, 0,
			UTC_TIMESTAMP() - INTERVAL 200 DAY, UTC_TIMESTAMP() FROM seq_0_to_%[3]d`, uuid("seq + 50000000"), node("seq"), w.nodes-1, w.pools()),
		fmt.Sprintf(`INSERT INTO instances (uuid, host, node, launched_on, vm_state, task_state, power_state, display_name, hostname, user_id, project_id, image_ref, user_data, reservation_id,
			instance_type_id, vcpus, memory_mb, root_gb, ephemeral_gb, hidden, cleaned, locked, progress,
			disable_terminate, shutdown_terminate, deleted, created_at, updated_at, launched_at%[4]s)
			SELECT %[1]s, %[2]s, %[2]s, %[2]s, IF(seq %% 20, 'active', 'stopped'), NULL, 1, CONCAT('guest-', seq), CONCAT('guest-', seq),
			MD5(seq %% 5000), MD5(seq %% 500), %[1]s, REPEAT('IyEvYmluL3NoCg==', 20), CONCAT('r-', seq), 1, 8, 32768, 80, 0, 0, 0, 0, 0, 0, 0, 0,
			UTC_TIMESTAMP() - INTERVAL 100 DAY, UTC_TIMESTAMP() - INTERVAL 90 DAY, UTC_TIMESTAMP() - INTERVAL 100 DAY%[5]s FROM seq_0_to_%[3]d`,
			uuid("seq"), node(fmt.Sprintf("seq %% %d", w.nodes)), w.instances-1, id[0], id[1]),
		fmt.Sprintf(`INSERT INTO instance_extra (instance_uuid, flavor, numa_topology, vcpu_model, keypairs, pci_requests, deleted, created_at, updated_at)
			SELECT %s, %s, %s, %s, %s,
			CONCAT('[{"count": 4, "spec": [{"vendor_id": "10de", "product_id": "11b4", "dev_type": "type-PCI"}], "alias_name": "K4200", "is_new": false, "numa_policy": "legacy", "request_id": "', %s, '", "requester_id": null}]'),
			0, UTC_TIMESTAMP() - INTERVAL 100 DAY, UTC_TIMESTAMP() - INTERVAL 90 DAY FROM seq_0_to_%d`, uuid("seq"), blob(1200), blob(900), blob(600), blob(600), uuid("seq + 10000000"), w.instances-1),
		fmt.Sprintf(`INSERT INTO migrations (uuid, instance_uuid, migration_type, status, source_compute, source_node, dest_compute, dest_node, dest_host, old_instance_type_id, new_instance_type_id,
			hidden, cross_cell_move, user_id, project_id, deleted, created_at, updated_at%[6]s)
			SELECT %[1]s, %[2]s, IF(seq %% 3, 'live-migration', 'resize'), IF(seq %% 1000 = 0, 'error', IF(seq %% 3, 'completed', 'confirmed')),
			%[4]s, %[4]s, %[5]s, %[5]s, '127.0.0.1', 1, 1, 0, 0, MD5(seq %% 5000), MD5(seq %% 500), 0,
			UTC_TIMESTAMP() - INTERVAL 95 DAY, UTC_TIMESTAMP() - INTERVAL 90 DAY%[7]s FROM seq_0_to_%[3]d`,
			uuid("seq + 20000000"), uuid(fmt.Sprintf("seq %% %d", w.instances)), w.migrations-1,
			node(fmt.Sprintf("seq DIV 7 %% %d", w.nodes)), node(fmt.Sprintf("seq %% %d", w.nodes)), dest[0], dest[1]),
		fmt.Sprintf(`INSERT INTO pci_devices (uuid, compute_node_id, address, vendor_id, product_id, dev_type, dev_id, label, status, extra_info, instance_uuid, request_id, numa_node, deleted, created_at, updated_at)
			SELECT %[1]s, 1 + d DIV %[2]d, CONCAT('0000:', LPAD(LOWER(HEX(d %% %[2]d DIV 256)), 2, '0'), ':', LPAD(LOWER(HEX(d %% 256 DIV 8)), 2, '0'), '.', d %% 8),
			'10de', '11b4', 'type-PCI', CONCAT('pci_', LPAD(d %% %[2]d, 12, '0')), 'label_10de_11b4', IF(d %% 5 < 4, 'allocated', 'available'), '{"capabilities": "{\"network\": []}", "parent_ifname": null}',
			IF(d %% 5 < 4, %[3]s, NULL), IF(d %% 5 < 4, %[4]s, NULL), d %% 2, 0, UTC_TIMESTAMP() - INTERVAL 200 DAY, UTC_TIMESTAMP() - INTERVAL 90 DAY FROM (SELECT seq AS d FROM seq_0_to_%[5]d) s`,
			uuid("d + 30000000"), each, uuid(owner), uuid(owner+" + 10000000"), w.devices()-1),
		fmt.Sprintf("UPDATE instances SET deleted = id WHERE id %% %d = 0", w.instances*4/w.stale),
		"ANALYZE TABLE instances, instance_extra, migrations, pci_devices",
	)
}

// uuidBy is the SQL of a uuid that a number decides.
func uuidBy(n string) string {
	return "LOWER(CONCAT_WS('-', SUBSTR(MD5(" + n + "), 1, 8), SUBSTR(MD5(" + n + "), 9, 4), CONCAT('4', SUBSTR(MD5(" + n + "), 14, 3)), CONCAT('a', SUBSTR(MD5(" + n + "), 18, 3)), SUBSTR(MD5(" + n + "), 21, 12)))"
}

// nodeBy is the SQL of a node's name by its number from 0. Nodes are called as clouds call them.
func nodeBy(n string) string {
	return "CONCAT('gpu', 1 + " + n + ", '.example.org')"
}

// The number of a migration's instance's node, and that of the other node, by the migration's id.
func (w world) ownNode() string   { return fmt.Sprintf("((id - 1) %% %d)", w.nodes) }
func (w world) otherNode() string { return fmt.Sprintf("((id - 1) DIV 7 %% %d)", w.nodes) }

// open returns the statements that leave one of so many migrations in error, apart from those of
// deleted instances: the instance has stayed on the source.
func (w world) open(of int) []string {
	return []string{fmt.Sprintf(`UPDATE migrations SET status = 'error', source_compute = %[1]s, source_node = %[1]s, dest_compute = %[2]s, dest_node = %[2]s%[4]s
		WHERE id %% %[3]d = 0 AND instance_uuid IN (SELECT uuid FROM instances WHERE deleted = 0)`,
		nodeBy(w.ownNode()), nodeBy(w.otherNode()), of, destIs("1 + "+w.otherNode()))}
}

// leave returns the statements that leave one device more on the destination of one of so many
// migrations in error.
func (w world) leave(of int) []string {
	return []string{fmt.Sprintf(`INSERT INTO pci_devices (uuid, compute_node_id, address, vendor_id, product_id, dev_type, label, status, extra_info,
			instance_uuid, request_id, numa_node, deleted, created_at, updated_at)
		SELECT %s, 1 + %s, CONCAT(LPAD(HEX(id), 8, '0'), '.9'), '10de', '11b4', 'type-PCI', 'label_10de_11b4', 'allocated', '{}', instance_uuid, uuid, 0, 0,
		UTC_TIMESTAMP() - INTERVAL 200 DAY, UTC_TIMESTAMP() - INTERVAL 95 DAY FROM migrations m WHERE status = 'error' AND id DIV 5 %% %d = 0 AND %[2]s <> %[4]s
		AND NOT EXISTS (SELECT 1 FROM pci_devices d WHERE d.compute_node_id = 1 + %[5]s AND d.address = CONCAT(LPAD(HEX(m.id), 8, '0'), '.9'))`,
		uuidBy("id + 60000000"), w.otherNode(), of, w.ownNode(), strings.ReplaceAll(w.otherNode(), "id", "m.id"))}
}

// execInCell1 runs statements in cell1, with one connection.
func execInCell1(t testing.TB, statements ...string) {
	t.Helper()
	conn, err := database.SQL.Conn(t.Context())
	hosttest.NoError(t, err)
	defer conn.Close()
	for _, statement := range append([]string{"USE nova_cell1"}, statements...) {
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%.160s: %v", statement, err)
		}
	}
}
