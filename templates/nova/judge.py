"""Asks the Nova that is installed here about a request for a guest and the hosts for it: a JSON
document on standard input, one on standard output (nova/explain, Question and Answer). It reads no
configuration file and no database, and opens no connection."""
import importlib.metadata
import json
import logging
import signal
import sys
import types
import uuid

signal.alarm(30)  # docker exec does not end what it has started

from nova import config
from nova import context
from nova import exception
from nova import objects
import nova.conf
from nova.compute import api
from nova.compute import claims
from nova.objects import pci_device_pool
from nova.pci import request
from nova.pci import stats
from nova.scheduler import filters as all_filters
from nova.scheduler import request_filter
from nova.scheduler import utils
from nova.virt import hardware

CONF = nova.conf.CONF
DEVICES = "pci_passthrough:alias"
# Links of nova explain judge these; the others judge the load of a host, or hints of a request.
ELSEWHERE = [
    "ComputeFilter", "AvailabilityZoneFilter", "AllHostsFilter", "IoOpsFilter", "NumInstancesFilter", "MetricsFilter", "AggregateIoOpsFilter",
    "AggregateNumInstancesFilter", "JsonFilter", "DifferentHostFilter", "SameHostFilter", "SimpleCIDRAffinityFilter"]
OF_NODE = ["PciPassthroughFilter", "NUMATopologyFilter", "ImagePropertiesFilter", "ComputeCapabilitiesFilter"]  # read a row of compute_nodes


class Heard(logging.Handler):
    """Keeps the last message: filters say in the log why they reject a host."""

    def __init__(self):
        super().__init__(logging.DEBUG)
        self.text = ""

    def emit(self, record):
        try:
            self.text = record.getMessage()
        except Exception:
            self.text = str(record.msg)


HEARD = Heard()


class Host(types.SimpleNamespace):
    """What filters read of a HostState, which messages name."""

    def __repr__(self):
        return self.host


def rejection(name, why=""):
    return {"filter": name, "message": " ".join(str(why or HEARD.text or "gives no reason").split())}


class Aggregates:
    """AggregateList of the database (nova/objects/aggregate.py)."""

    def __init__(self, all_of_them):
        self.all = all_of_them

    def get_by_metadata(self, context, key=None, value=None):
        return [a for a in self.all if any((key is None or k == key) and (value is None or v == value) for k, v in a.metadata.items())]

    def get_non_matching_by_metadata_keys(self, context, ignored, prefix, value):
        return [a for a in self.all if any(k.startswith(prefix) and v == value and k not in ignored for k, v in a.metadata.items())]


def set_options(question):
    for name, text in question["options"].items():
        section, _, key = name.partition(".")
        if key in ("enabled_filters", "available_filters", "pci_in_placement"):
            continue
        try:
            option = CONF._get_opt_info(key, section)["opt"]
        except Exception:  # no such option: Nova ignores it
            continue
        if not option.multi:
            CONF.set_override(key, option.type(text), section)
    if devices_in_placement(question):
        CONF.set_override("pci_in_placement", True, "filter_scheduler")
    CONF.set_override("alias", question["aliases"], "pci")


def devices_in_placement(question):
    """Whether nova-scheduler asks Placement for devices: nova explain judges them by its answer."""
    text = question["options"].get("filter_scheduler.pci_in_placement", "false")
    return hasattr(CONF.filter_scheduler, "pci_in_placement") and text.strip().lower() in ("1", "t", "true", "on", "y", "yes")


def aggregates_of(question):
    return [
        objects.Aggregate(id=i, uuid=str(uuid.UUID(int=i + 1)), name=a["name"], metadata=dict(a["metadata"] or {}), hosts=list(a["hosts"] or []))
        for i, a in enumerate(question["aggregates"])]


def group_of(question):
    """The server group, and its members by host."""
    group = question["group"]
    if not group:
        return None, {}
    members, number = {}, 100
    for host, count in sorted(group["members"].items()):
        members[host] = [str(uuid.UUID(int=number + i)) for i in range(count)]
        number += count
    rules = {"max_server_per_host": str(group["most"])} if group["most"] else {}
    everyone = [m for of in members.values() for m in of]
    return objects.InstanceGroup(
        policy=group["policy"], policies=[group["policy"]], _rules=rules, members=everyone, hosts=sorted(members), uuid=str(uuid.UUID(int=99))), members


def spec_of(question, group):
    """What nova-api makes of the request (nova/compute/api.py, _validate_and_build_base_options)."""
    asked = question["flavor"]
    specs = dict(asked["extra_specs"] or {})
    if devices_in_placement(question):
        specs.pop(DEVICES, None)
    flavor = objects.Flavor(
        id=1, name=asked["name"], flavorid="1", vcpus=asked["vcpus"], memory_mb=asked["ram"], root_gb=asked["disk"], ephemeral_gb=asked["ephemeral"],
        swap=asked["swap"], is_public=True, disabled=False, extra_specs=specs)
    given = question["image"] or {"id": "", "name": "", "disk_format": "", "properties": {}}
    image = {
        "id": given["id"] or str(uuid.UUID(int=97)), "name": given["name"], "disk_format": given["disk_format"] or "raw",
        "properties": dict(given["properties"] or {})}
    api.API._validate_flavor_image_numa_pci(image, flavor, validate_numa=True)
    image = objects.ImageMeta.from_dict(image)
    if hasattr(hardware, "get_packed_virtqueue_constraint"):  # nova-api asks with the properties as texts, of which it rejects more
        hardware.get_packed_virtqueue_constraint(flavor, image)
    policy = hardware.get_pci_numa_policy_constraint(flavor, image)
    topology = hardware.numa_get_constraints(flavor, image)
    devices = request.get_pci_requests_from_flavor(flavor, affinity_policy=policy)
    return objects.RequestSpec(
        context.get_admin_context(), flavor=flavor, image=image, numa_topology=topology, pci_requests=devices, is_bfv=question["volume"],
        project_id=question["project"] or None, availability_zone=question["zone"] or None, instance_group=group, instance_uuid=str(uuid.UUID(int=98)),
        requested_destination=None, requested_resources=[], requested_networks=objects.NetworkRequestList(objects=[]),
        request_level_params=objects.RequestLevelParams(), scheduler_hints={}, num_instances=1)


def query(r):
    """A request to Placement without its granular groups."""
    group = r._rg_by_id.get(None) or objects.RequestGroup()
    required = set(group.required_traits) | set(r._root_required)
    forbidden = set(group.forbidden_traits) | set(r._root_forbidden) - {"COMPUTE_STATUS_DISABLED"}  # of services that are disabled
    return {"resources": dict(group.resources), "traits": sorted(required) + sorted("!" + t for t in forbidden)}


def queries(spec):
    first = utils.ResourceRequest.from_request_spec(spec, enable_pinning_translate=True)
    if not first.cpu_pinning_requested or CONF.workarounds.disable_fallback_pcpu_query:
        return [query(first)]
    return [query(first), query(utils.ResourceRequest.from_request_spec(spec, enable_pinning_translate=False))]


def host_of(candidate, aggregates, members):
    """What HostState has of the host (nova/scheduler/host_manager.py, _update_from_compute_node)."""
    c = candidate["columns"] or {}
    topology = c.get("numa_topology") and objects.NUMATopology.obj_from_db_obj(json.dumps(c["numa_topology"]))
    pools = pci_device_pool.from_pci_stats(json.dumps(c["pci_stats"])) if c.get("pci_stats") else objects.PciDevicePoolList(objects=[])
    return Host(
        host=candidate["host"], nodename=candidate["node"], numa_topology=topology, pci_stats=stats.PciDeviceStats(topology, stats=pools),
        cpu_allocation_ratio=c.get("cpu_allocation_ratio") or CONF.cpu_allocation_ratio or CONF.initial_cpu_allocation_ratio,
        ram_allocation_ratio=c.get("ram_allocation_ratio") or CONF.ram_allocation_ratio or CONF.initial_ram_allocation_ratio, limits={},
        supported_instances=[objects.HVSpec.from_list(s).to_list() for s in c.get("supported_instances") or []],
        hypervisor_type=c.get("hypervisor_type"), hypervisor_version=c.get("hypervisor_version"), hypervisor_hostname=candidate["node"],
        cpu_info=c.get("cpu_info"), stats={}, aggregates=[a for a in aggregates if candidate["host"] in a.hosts],
        instances=dict.fromkeys(members.get(candidate["host"], [])), allocation_candidates=[{"mappings": {}}])


def aggregates_allow(destination, host):
    mine = {a.uuid for a in host.aggregates}
    if destination is None:
        return True
    required = destination.aggregates or [] if "aggregates" in destination else []
    forbidden = destination.forbidden_aggregates or set() if "forbidden_aggregates" in destination else set()
    return all(mine & set(some.split(",")) for some in required) and not mine & set(forbidden)


def claims_numa(host, spec):
    """What nova-compute checks, without limits of NUMATopologyFilter (nova/compute/claims.py)."""
    claim = claims.Claim.__new__(claims.Claim)
    claim.instance = types.SimpleNamespace(numa_topology=spec.numa_topology.obj_clone() if spec.numa_topology else None)
    claim._pci_requests = spec.pci_requests
    claim.tracker = types.SimpleNamespace(pci_tracker=types.SimpleNamespace(stats=host.pci_stats))
    node = objects.ComputeNode(numa_topology=host.numa_topology and host.numa_topology._to_json())
    try:
        return claim._test_numa_topology(node, None)
    except ValueError as e:  # of max() for a node without cores
        return e


def judge(candidate, host, spec, question, classes):
    """What rejects the host, and what cannot be judged of it."""
    rejects, unjudged = [], []
    if not aggregates_allow(spec.requested_destination, host):
        rejects.append(rejection("request filters of [scheduler]", "the host is not in the aggregates that they require"))
    for name in question["filters"]:
        if name in ELSEWHERE or name == "PciPassthroughFilter" and devices_in_placement(question):
            continue
        if name not in classes:
            unjudged.append(name + " is not a filter of Nova")
        elif name in OF_NODE and candidate["columns"] is None:
            unjudged.append(name + " needs the database of the host")
        elif name == "AggregateMultiTenancyIsolation" and not question["project"]:
            unjudged.append(name + " needs the project of the guest")
        else:
            HEARD.text = ""
            try:
                passes, why = classes[name]().host_passes(host, spec), ""
            except Exception as e:  # nova-scheduler rejects the whole request then
                passes, why = False, e
            if not passes:
                rejects.append(rejection(name, why))
    if "NUMATopologyFilter" not in question["filters"] and candidate["columns"] is not None:
        why = claims_numa(host, spec)
        if why is not None:
            rejects.append(rejection("nova-compute", why))
    return {"host": candidate["host"], "node": candidate["node"], "rejects": rejects, "unjudged": unjudged}


def answer(question):
    set_options(question)
    result = {"version": importlib.metadata.version("nova"), "rejects": [], "queries": [], "hosts": []}
    group, members = group_of(question)
    blank = [{"host": c["host"], "node": c["node"], "rejects": [], "unjudged": []} for c in question["hosts"]]
    try:
        spec = spec_of(question, group)
    except Exception as e:
        return dict(result, rejects=[rejection("nova-api", "%s: %s" % (type(e).__name__, e))], hosts=blank)
    aggregates = aggregates_of(question)
    objects.AggregateList = objects.aggregate.AggregateList = Aggregates(aggregates)
    try:
        for one in request_filter.ALL_REQUEST_FILTERS:
            if one.__name__ != "owner_nova_filter":  # of 34: reads the versions of services, and none is older
                one(spec._context, spec)
        result["queries"] = queries(spec)
    except exception.NovaException as e:
        return dict(result, rejects=[rejection("nova-scheduler", e)], hosts=blank)
    found = all_filters.HostFilterHandler().get_matching_classes(["nova.scheduler.filters.all_filters"])
    classes = {c.__name__: c for c in found}
    for candidate in question["hosts"]:
        result["hosts"].append(judge(candidate, host_of(candidate, aggregates, members), spec, question, classes))
    return result


config.parse_args(["nova-scheduler"], default_config_files=[], configure_db=False, init_rpc=False)
logging.getLogger().handlers = [HEARD]
for kind in ("nova.scheduler", "nova.virt.hardware", "nova.pci"):
    logging.getLogger(kind).setLevel(logging.DEBUG)
objects.register_all()
print(json.dumps(answer(json.load(sys.stdin))), flush=True)
