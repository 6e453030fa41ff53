"""Asks Nova what a nova.conf says: the file's name on a line of input, the answer
as JSON on a line of output."""
import json
import sys

import nova.conf
from nova import objects
from nova.pci import request, whitelist
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


PARTS = {
    "else": everything_else,
    "report": lambda: CONF.pci.report_in_placement,
    "in_placement": lambda: getattr(CONF.filter_scheduler, "pci_in_placement", None),  # since 2023.1
    "aliases": lambda: {n: [policy, specs] for n, (policy, specs) in request._get_alias_from_config().items()},
    "specs": lambda: [dict(s.get_tags(), vendor=s.vendor_id, product=s.product_id) for s in whitelist.Whitelist(CONF.pci.device_spec).specs],
    "filters": chosen_filters,
    "requested": requested,
}


def ask(name):
    CONF.reset()
    CONF(["--config-file", name], project="nova", default_config_dirs=[])
    answer = {"errors": {}}
    for part, get in PARTS.items():
        try:
            answer[part] = get()
        except Exception as e:
            answer["errors"][part] = "%s: %s" % (type(e).__name__, e)
    return answer


for line in sys.stdin:
    print(json.dumps(ask(line.rstrip("\n"))), flush=True)
