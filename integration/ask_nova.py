"""Asks Nova what a nova.conf says: the file's name on a line of input, the answer
as JSON on a line of output. Several files, in the order in which they are read, are
separated by NUL. After a tab, the name may be followed by the PCI devices
of the host, a JSON list of what libvirt reports of each, with sriov_totalvfs."""
import json
import sys
import types
import uuid

import nova.conf
from nova import objects
from nova.compute import pci_placement_translator, provider_tree
from nova.pci import request, utils, whitelist
from nova.scheduler import filters
from nova.scheduler import host_manager

CONF = nova.conf.CONF
objects.register_all()
PCI = {"alias", "device_spec", "report_in_placement", "enabled_filters", "available_filters", "pci_in_placement"}


def everything_else():
    """Every option but ours, as Nova sees it."""
    values = {}
    for group in [None] + sorted(CONF._groups):
        section = CONF if group is None else CONF[group]
        for name in section:
            if group is None and name in CONF._groups or name in PCI or name in ("config_file", "fatal_deprecations"):
                continue
            try:
                values["%s.%s" % (group, name)] = repr(section[name])
            except Exception as e:  # an option that needs another to be set
                values["%s.%s" % (group, name)] = type(e).__name__
    return values


def chosen_filters():
    manager = host_manager.HostManager.__new__(host_manager.HostManager)
    classes = filters.HostFilterHandler().get_matching_classes(CONF.filter_scheduler.available_filters)
    manager.filter_cls_map = {c.__name__: c for c in classes}
    manager.filter_obj_map = {}
    return [f.__class__.__name__ for f in manager._choose_host_filters(CONF.filter_scheduler.enabled_filters)]


def requested():
    flavor = objects.Flavor(extra_specs={"pci_passthrough:alias": "K4200:2"})
    return [r.count for r in request.get_pci_requests_from_flavor(flavor).requests]


def first_match(devices):
    """The tags of the first spec that matches, for each device; null for none. Where
    devices are reported, nova-compute makes providers of them when it starts."""
    totals = {d["address"]: d.get("sriov_totalvfs", 0) for d in devices}
    utils.is_physical_function = lambda *address: totals.get("%s:%s:%s.%s" % address, 0) > 0
    vfs = {d.get("parent_addr"): d["product_id"] for d in devices}
    utils.get_vf_product_id_by_pf_addr = lambda address: vfs[address]
    utils.get_pci_ids_by_pci_addr = lambda address: next((d["vendor_id"], d["product_id"]) for d in devices if d["address"] == address)
    filter_ = whitelist.Whitelist(CONF.pci.device_spec)
    pci = [
        objects.PciDevice(
            address=d["address"], vendor_id=d["vendor_id"], product_id=d["product_id"], dev_type=d["dev_type"],
            parent_addr=d.get("parent_addr"), status="available", instance_uuid=None, extra_info={})
        for d in devices]
    tree = provider_tree.ProviderTree()
    tree.new_root("gpu1", str(uuid.uuid4()))
    tracker = types.SimpleNamespace(dev_filter=filter_, pci_devs=[d for d in pci if filter_.get_devspec(d)])
    pci_placement_translator.update_provider_tree_for_pci(tree, "gpu1", tracker, {}, [])
    specs = {d.address: filter_.get_devspec(d) for d in pci}
    return {a: s and {k: v for k, v in s.get_tags().items()} for a, s in specs.items()}


PARTS = {
    "else": everything_else,
    "report": lambda: CONF.pci.report_in_placement,
    "in_placement": lambda: getattr(CONF.filter_scheduler, "pci_in_placement", None),  # since 2023.1
    "aliases": lambda: {n: [policy, specs] for n, (policy, specs) in request._get_alias_from_config().items()},
    "specs": lambda: [dict(s.get_tags(), vendor=s.vendor_id, product=s.product_id) for s in whitelist.Whitelist(CONF.pci.device_spec).specs],
    "filters": chosen_filters,
    "requested": requested,
}


def ask(line):
    name, _, devices = line.partition("\t")
    CONF.reset()
    CONF([word for file in name.split("\0") for word in ("--config-file", file)], project="nova", default_config_dirs=[])
    answer = {"errors": {}}
    for part, get in PARTS.items():
        try:
            answer[part] = get()
        except Exception as e:
            answer["errors"][part] = "%s: %s" % (type(e).__name__, e)
    if devices:
        try:
            answer["first"] = first_match(json.loads(devices))
        except Exception as e:
            answer["errors"]["first"] = "%s: %s" % (type(e).__name__, e)
    return answer


for line in sys.stdin:
    print(json.dumps(ask(line.rstrip("\n"))), flush=True)
