-- The rows of compute node 21 in nova.pci_devices, as the talk "GPU on OpenStack" (OpenStack Days
-- Tokyo 2017) shows them on the old host after a migration. docs/talk.md says what they mean. For a
-- database with Nova's schema that has this compute node, for tests only.
INSERT INTO pci_devices (id, created_at, updated_at, deleted, compute_node_id, address, product_id, vendor_id, dev_type,
    dev_id, label, status, extra_info, instance_uuid, request_id, numa_node) VALUES
    (45, '2016-08-11 00:54:45', '2016-08-19 04:58:01', 0, 21, '0000:84:00.0', '11b4', '10de', 'type-PCI',
    'pci_0000_84_00_0', 'label_10de_11b4', 'available', '{}', NULL, NULL, 1),
    (48, '2016-08-11 00:54:45', '2016-08-19 04:58:01', 0, 21, '0000:88:00.0', '11b4', '10de', 'type-PCI',
    'pci_0000_88_00_0', 'label_10de_11b4', 'available', '{}', NULL, NULL, 1);
