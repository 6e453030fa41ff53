"""Answers questions about a cell's database with Nova's own code.

oracle.py CONFIG-FILE

Each line of standard input is a question, each line of standard output its answer,
both JSON objects. A question names in "ask" what it wants: a function of ANSWERS.
Where Nova raises an exception, the answer is its class and its text.

It ends when standard input does.
"""

import collections
import functools
import inspect
import json
import os
import random
import sys
import uuid

from oslo_serialization import jsonutils

import nova.conf
import nova.config
import nova.context
from nova import exception
from nova import objects
from nova.compute import vm_states
from nova.objects import fields
from nova.pci import manager
from nova.pci import request

# What the tracker may change of a row.
COLUMNS = (
    "status", "instance_uuid", "request_id", "vendor_id", "product_id", "dev_type",
    "parent_addr", "numa_node", "dev_id", "label", "extra_info",
)


def cell(connection):
    """The database of a cell, as Nova reaches one that has no message queue from what
    its row in cell_mappings says."""
    url = objects.CellMapping.format_db_url(connection)
    mapping = objects.CellMapping(
        uuid=str(uuid.uuid5(uuid.NAMESPACE_URL, url)), transport_url="none:///",
        database_connection=url)
    return nova.context.target_cell(nova.context.get_admin_context(), mapping)


def track(question):
    """What nova-compute of a node makes of the rows when it starts and does its first
    audit: ResourceTracker._update_available_resource of nova/compute/resource_tracker.py,
    as far as it concerns PCI devices."""
    with cell(question["database"]) as context:
        node = objects.ComputeNode.get_by_id(context, question["compute_node_id"])
        tracker = manager.PciDevTracker(context, node)
        before = {dev.address: row(dev) for dev in tracker.pci_devs}
        tracker.update_devices_from_hypervisor_resources(json.dumps(question["devices"]))

        host, name = node.host, node.hypervisor_hostname
        instances = objects.InstanceList.get_by_host_and_node(
            context, host, name, expected_attrs=[
                "system_metadata", "numa_topology", "flavor", "migration_context", "resources"])
        migrations = objects.MigrationList.get_in_progress_and_error(context, host, name)
        for instance in instances:
            if not vm_states.allow_resource_removal(instance.vm_state, instance.task_state):
                tracker.update_pci_for_instance(context, instance, sign=1)
        tracker.clean_usage(instances, migrations)

        answer = {
            "changes": changes(before, tracker.pci_devs),
            "pools": pools(tracker.stats.pools),
            "offers": offers(tracker),
            "free": sorted({dev.address for dev in tracker.stats.get_free_devs()}),
        }
        if question["save"]:
            node.pci_device_pools = tracker.stats.to_device_pools_obj()
            node.save()
            tracker.save(context)
        return answer


def row(dev):
    """The columns as text, so that they can be compared with what the table says."""
    def text(value):
        if value is None:
            return "NULL"
        return value if isinstance(value, str) else jsonutils.dumps(value, sort_keys=True)
    # One that has no row yet lacks what its row will have as NULL.
    return {column: text(getattr(dev, column) if column in dev else None) for column in COLUMNS}


def changes(before, devs):
    """A list of address, column, value before and value after."""
    found = []
    for dev in sorted(devs, key=lambda dev: dev.address):
        # A card that has no row yet will have one: one line says so.
        old, new = before.get(dev.address, {"status": "NULL"}), row(dev)
        found += [
            {"address": dev.address, "column": column, "before": old[column], "after": new[column]}
            for column in old if old[column] != new[column]]
    return found


def pools(found):
    """What is counted together; after Zed Nova has a pool for each card."""
    counts = collections.Counter()
    for p in found:
        counts[f"{p['vendor_id']}:{p['product_id']}", p["dev_type"], p["numa_node"]] += p["count"]
    return [
        {"product": product, "type": kind, "numa": numa, "count": count}
        for (product, kind, numa), count in sorted(counts.items(), key=str)]


def offers(tracker):
    """How many of each alias a flavor could ask for and be let on the node."""
    most = {}
    supported = tracker.stats.support_requests
    if "provider_mapping" in inspect.signature(supported).parameters:
        supported = functools.partial(supported, provider_mapping=None)  # after Zed
    # Nova 32 has made the function public.
    aliases = getattr(request, "get_alias_from_config", None) or request._get_alias_from_config
    for alias in aliases():
        count = 0
        while supported(requests(f"{alias}:{count + 1}")):
            count += 1
        if count:
            most[alias] = count
    return most


def recorded(question):
    """The free devices that a tracker counts when it has loaded the rows of each node, and
    those that pci_stats of the node has."""
    with cell(question["database"]) as context:
        answer = []
        for node_id in question["nodes"]:
            node = objects.ComputeNode.get_by_id(context, node_id)
            tracker = manager.PciDevTracker(context, node)
            had = [dict(p.to_dict()) for p in node.pci_device_pools or []]
            answer.append({"loaded": pools(tracker.stats.pools), "recorded": pools(had)})
        return {"nodes": answer}


def churn(question):
    """Has the tracker of a node claim, allocate and free devices, as its guests come and go,
    and writes pci_stats and rows as ResourceTracker._update does."""
    with cell(question["database"]) as context:
        node = objects.ComputeNode.get_by_id(context, question["compute_node_id"])
        tracker = manager.PciDevTracker(context, node)
        chosen = random.Random(question["seed"])
        guests, refused = {}, 0
        for _ in range(question["steps"]):
            if guests and chosen.random() < 0.4:
                gone = chosen.choice(sorted(guests))
                tracker.free_instance(context, guests.pop(gone))
                continue
            guest = objects.Instance(context, uuid=str(uuid.UUID(int=chosen.getrandbits(128))))
            guest.pci_devices = objects.PciDeviceList(objects=[])
            wanted = requests(chosen.choice(question["aliases"]))
            try:
                tracker.claim_instance(
                    context, objects.InstancePCIRequests(instance_uuid=guest.uuid, requests=wanted), None)
            except exception.NovaException:
                refused += 1
                continue
            if chosen.random() < 0.8:
                tracker.allocate_instance(guest)
            guests[guest.uuid] = guest
        node.pci_device_pools = tracker.stats.to_device_pools_obj()
        node.save()
        tracker.save(context)
        return {"guests": len(guests), "refused": refused}


def flavor(spec):
    """A flavor whose pci_passthrough:alias is the text given."""
    made = objects.Flavor(
        nova.context.get_admin_context(), id=1, flavorid="gpu", name="gpu", vcpus=8,
        memory_mb=32768, root_gb=80, ephemeral_gb=0, swap=0, rxtx_factor=1.0, vcpu_weight=0,
        disabled=False, is_public=True, description=None, projects=[], created_at=None,
        updated_at=None, deleted_at=None, deleted=False,
        extra_specs={"pci_passthrough:alias": spec} if spec else {})
    made.obj_reset_changes()
    return made


def requests(spec, ids=()):
    """The requests of such a flavor, the first of them with the ids given."""
    made = request.get_pci_requests_from_flavor(flavor(spec)).requests
    for one, request_id in zip(made, ids):
        one.request_id = request_id
    return made


def extra(question):
    """Columns of instance_extra for an instance of such a flavor: Instance.create in
    nova/objects/instance.py."""
    made = objects.InstancePCIRequests(
        instance_uuid=question["instance"], requests=requests(question["spec"], question["request_ids"]))
    return {
        "flavor": jsonutils.dumps(
            {"cur": flavor(question["spec"]).obj_to_primitive(), "old": None, "new": None}),
        "pci_requests": made.to_json(),
    }


def migration_context(question):
    """The column of that name, with cards given by their ids in pci_devices:
    ResourceTracker._move_claim of nova/compute/resource_tracker.py."""
    with cell(question["database"]) as context:
        instance = objects.Instance.get_by_uuid(
            context.elevated(read_deleted="yes"), question["instance"],
            expected_attrs=["flavor", "numa_topology", "pci_requests", "resources"])
        old, new = (
            objects.PciDeviceList(objects=[objects.PciDevice.get_by_dev_id(context, i) for i in question[which]])
            for which in ("old", "new"))
        for dev in new:
            # The context is written after the claim and before the allocation.
            dev.status = fields.PciDeviceStatus.CLAIMED
            dev.instance_uuid = instance.uuid
        made = objects.MigrationContext(
            context=context, instance_uuid=instance.uuid, migration_id=question["migration"],
            old_numa_topology=instance.numa_topology, new_numa_topology=None,
            old_pci_devices=old, new_pci_devices=new,
            old_pci_requests=instance.pci_requests,
            new_pci_requests=objects.InstancePCIRequests(
                instance_uuid=instance.uuid,
                requests=requests(
                    instance.flavor.extra_specs.get("pci_passthrough:alias"),
                    [dev.request_id for dev in new if dev.request_id])),
            old_resources=instance.resources, new_resources=None)
        return {"migration_context": jsonutils.dumps(made.obj_to_primitive())}


def save(question):
    """Instance.save in nova/objects/instance.py, as each step of nova-compute does it."""
    with cell(question["database"]) as context:
        instance = objects.Instance.get_by_uuid(context, question["instance"])
        instance.display_description = question["description"]
        instance.save()
        return {"updated_at": str(instance.updated_at)}


def devices(question):
    """The devices of an instance, of which each hard reboot asks: get_guest_config of
    nova/virt/libvirt/driver.py."""
    with cell(question["database"]) as context:
        instance = objects.Instance.get_by_uuid(
            context, question["instance"], expected_attrs=["pci_devices", "pci_requests", "numa_topology", "resources"])
        here = instance.get_pci_devices(source=objects.InstancePCIRequest.FLAVOR_ALIAS)
        return {"devices": sorted(f"{dev.compute_node_id} {dev.address}" for dev in here)}


ANSWERS = {"devices": devices, "track": track, "recorded": recorded, "churn": churn, "extra": extra, "context": migration_context, "save": save}


def main():
    # What any module prints goes to the log, not among the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    nova.config.parse_args(["oracle", "--config-file", sys.argv[1]], default_config_files=[], init_rpc=False)
    objects.register_all()
    print("{}", file=answers)
    for line in sys.stdin:
        question = json.loads(line)
        try:
            answer = ANSWERS[question["ask"]](question)
        except Exception as e:
            answer = {"error": type(e).__name__, "message": str(e)}
        print(json.dumps(answer), file=answers)


main()
