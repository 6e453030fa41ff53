"""Asks Nova which devices a definition of an alias selects: the alias on a line of
input, on a line of output the answer, as JSON. The keys are device types, with +far
where the device is on another NUMA node than the guest and +none where its node is
unknown; the values are whether such a device supports a guest's request. An alias that
Nova rejects is an error."""
import inspect
import json
import sys

import nova.conf
from nova import objects
from nova.objects import fields
from nova.pci import request, stats

CONF = nova.conf.CONF
objects.register_all()
CONF([], project="nova", default_config_files=[], default_config_dirs=[])



def supports(alias, kind, node):
    """Whether a host with one device of the alias's product and of a type supports it."""
    pool = objects.PciDevicePool(
        vendor_id=alias["vendor_id"].lower(), product_id=alias["product_id"].lower(), numa_node=node, count=1, tags={"dev_type": kind})
    topology = objects.NUMATopology(cells=[
        objects.NUMACell(
            id=n, cpuset={n}, pcpuset=set(), memory=1024, cpu_usage=0, memory_usage=0, mempages=[], pinned_cpus=set(), siblings=[], socket=n,
            network_metadata=objects.NetworkMetadata(physnets=set(), tunneled=False))
        for n in (0, 1)])
    pools = stats.PciDeviceStats(topology, stats=objects.PciDevicePoolList(objects=[pool]))
    flavor = objects.Flavor(extra_specs={"pci_passthrough:alias": alias["name"].strip() + ":1"})
    requests = request.get_pci_requests_from_flavor(flavor).requests
    cells = [objects.InstanceNUMACell(id=0, cpuset={0}, pcpuset=set(), memory=512)]
    arguments = {"numa_cells": cells}
    if "provider_mapping" in inspect.signature(pools.support_requests).parameters:
        arguments["provider_mapping"] = None
    return pools.support_requests(requests, **arguments)


def ask(alias):
    CONF.set_override("alias", [json.dumps(alias)], "pci")
    for get in ("get_alias_from_config", "_get_alias_from_config"):  # the first is cached, from 2025.2 on
        clear = getattr(getattr(request, get, None), "cache_clear", None)
        if clear:
            clear()
    try:
        answer = {}
        for kind in (fields.PciDeviceType.STANDARD, fields.PciDeviceType.SRIOV_PF, fields.PciDeviceType.SRIOV_VF):
            for where, node in ("", 0), ("+far", 1), ("+none", None):
                answer[kind + where] = supports(alias, kind, node)
        return answer
    except Exception as e:
        return {"error": "%s: %s" % (type(e).__name__, e)}


for line in sys.stdin:
    print(json.dumps(ask(json.loads(line))), flush=True)
