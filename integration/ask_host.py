"""Asks Nova about requests and a host: a case of nova/explain/explaintest as JSON on a line of
input, the answer as JSON on a line of output: what rejects the guest, with the reason; and what
nova-scheduler requests from Placement. The answer to {} is Nova's version."""
import importlib.metadata
import json
import logging
import sys
import types
import uuid

from nova import context
from nova import exception
import nova.conf
from nova import config
from nova import objects
from nova.compute import api
from nova.compute import claims
from nova.pci import request
from nova.pci import stats
from nova.scheduler import request_filter
from nova.scheduler import utils
from nova.scheduler.filters import affinity_filter
from nova.virt import hardware
from nova.scheduler import filters as all_filters

logging.disable()
config.parse_args(["nova-scheduler"], default_config_files=[], configure_db=False, init_rpc=False)
CONF = nova.conf.CONF
objects.register_all()
CLASSES = {c.__name__: c for c in all_filters.HostFilterHandler().get_matching_classes(["nova.scheduler.filters.all_filters"])}
HOST, NODE, IMAGE = "gpu1", "gpu1.example", str(uuid.UUID(int=97))


def flavor_of(case):
    return objects.Flavor(
        id=1, name="f", flavorid="1", vcpus=case["vcpus"], memory_mb=case["ram"], root_gb=case["disk"], ephemeral_gb=0, swap=case["swap"],
        is_public=True, disabled=False, extra_specs=dict(case["specs"]))


def aggregates_of(case):
    return [
        objects.Aggregate(id=i, uuid=str(uuid.UUID(int=i + 1)), name="a%d" % i, metadata=dict(a["metadata"]), hosts=[HOST] if a["has_host"] else [])
        for i, a in enumerate(case["aggregates"] or [])]


class Aggregates:
    """AggregateList of the database (nova/objects/aggregate.py)."""

    def __init__(self, all_of_them):
        self.all = all_of_them

    def get_by_metadata(self, context, key=None, value=None):
        return [a for a in self.all if any((key is None or k == key) and (value is None or v == value) for k, v in a.metadata.items())]

    def get_non_matching_by_metadata_keys(self, context, ignored, prefix, value):
        return [a for a in self.all if any(k.startswith(prefix) and v == value and k not in ignored for k, v in a.metadata.items())]


def zones(aggregates):
    """The availability zones of hosts that are up, here one."""
    mine = [a.metadata["availability_zone"] for a in aggregates if HOST in a.hosts and "availability_zone" in a.metadata]
    return mine or [CONF.default_availability_zone]


def group_of(case):
    """The server group, and the instances on the host."""
    group = case["group"]
    if not group:
        return None, {}
    members = [str(uuid.UUID(int=i + 100)) for i in range(group["on_host"] + group["elsewhere"])]
    here = members[:group["on_host"]]
    hosts = [HOST] * bool(group["on_host"]) + ["gpu2"] * bool(group["elsewhere"])
    rules = {"max_server_per_host": str(group["most"])} if group["most"] else {}
    return objects.InstanceGroup(policy=group["policy"], policies=[group["policy"]], _rules=rules, members=members, hosts=hosts, uuid=str(uuid.UUID(int=99))), dict.fromkeys(here)


def host_of(case, aggregates, instances):
    """What HostState has of the host (nova/scheduler/host_manager.py, _update_from_compute_node)."""
    topology = case["topology"] and objects.NUMATopology.obj_from_db_obj(json.dumps(case["topology"]))
    pools = objects.PciDevicePoolList.obj_from_primitive(case["pools"])
    return types.SimpleNamespace(
        host=HOST, nodename=NODE, numa_topology=topology, pci_stats=stats.PciDeviceStats(topology, stats=pools),
        cpu_allocation_ratio=case["cpu_ratio"], ram_allocation_ratio=case["ram_ratio"], limits={},
        supported_instances=[objects.HVSpec.from_list(s).to_list() for s in case["supported"]],
        hypervisor_type=case["hypervisor"], hypervisor_version=case["version"], hypervisor_hostname=NODE, cpu_info=json.dumps(case["cpu_info"]),
        stats={}, aggregates=[a for a in aggregates if HOST in a.hosts], instances=instances, allocation_candidates=[{"mappings": {}}])


def spec_of(case, group):
    """What nova-api makes of the request (nova/compute/api.py, _validate_and_build_base_options)."""
    flavor = flavor_of(case)
    image = {"id": IMAGE, "name": "i", "disk_format": case["format"], "properties": dict(case["image"])}
    api.API._validate_flavor_image_numa_pci(image, flavor, validate_numa=True)
    image = objects.ImageMeta.from_dict(image)
    if hasattr(hardware, "get_packed_virtqueue_constraint"):  # nova-api asks with the properties as texts, of which it rejects more
        hardware.get_packed_virtqueue_constraint(flavor, image)
    policy = hardware.get_pci_numa_policy_constraint(flavor, image)
    topology = hardware.numa_get_constraints(flavor, image)
    if hasattr(request, "get_alias_from_config"):
        request.get_alias_from_config.cache_clear()
    pci = request.get_pci_requests_from_flavor(flavor, affinity_policy=policy)
    return objects.RequestSpec(
        context.get_admin_context(), flavor=flavor, image=image, numa_topology=topology, pci_requests=pci, is_bfv=case["volume"], project_id=case["project"],
        availability_zone=case["zone"] or None, instance_group=group, instance_uuid=str(uuid.UUID(int=98)), requested_destination=None,
        requested_resources=[], requested_networks=objects.NetworkRequestList(objects=[]), request_level_params=objects.RequestLevelParams(),
        scheduler_hints={}, num_instances=1)


def allows(destination, aggregates):
    mine = {a.uuid for a in aggregates if HOST in a.hosts}
    if destination is None:
        return True
    required = destination.aggregates or [] if "aggregates" in destination else []
    forbidden = destination.forbidden_aggregates or set() if "forbidden_aggregates" in destination else set()
    return all(mine & set(some.split(",")) for some in required) and not mine & set(forbidden)


def query(r):
    """A request to Placement without its granular groups: resources and traits, as explain's Query
    prints them."""
    group = r._rg_by_id.get(None) or objects.RequestGroup()
    resources = ["%s:%d" % (c, n) for c, n in sorted(group.resources.items())]
    required = set(group.required_traits) | set(r._root_required)
    forbidden = set(group.forbidden_traits) | set(r._root_forbidden) - {"COMPUTE_STATUS_DISABLED"}  # of services that are disabled
    return ",".join(resources) + " " + ",".join(sorted(required) + sorted("!" + t for t in forbidden))


def queries(spec):
    first = utils.ResourceRequest.from_request_spec(spec, enable_pinning_translate=True)
    if not first.cpu_pinning_requested or CONF.workarounds.disable_fallback_pcpu_query:
        return [query(first)]
    return [query(first), query(utils.ResourceRequest.from_request_spec(spec, enable_pinning_translate=False))]


def parsed(name, text):
    """The value of an option of [filter_scheduler], which set_override does not parse."""
    return CONF._get_opt_info(name, "filter_scheduler")["opt"].type(text)


def ask(case):
    CONF.set_override("alias", case["aliases"], "pci")
    for name in request_options:
        CONF.set_override(name, case["scheduler"].get(name, False), "scheduler")
    for name in filter_options:
        if name in case["options"]:
            CONF.set_override(name, parsed(name, case["options"][name]), "filter_scheduler")
        else:
            CONF.clear_override(name, "filter_scheduler")
    answer = {"rejects": [], "why": "", "queries": []}
    group, instances = group_of(case)
    try:
        spec = spec_of(case, group)
    except Exception as e:
        return dict(answer, rejects=["api"], why="%s: %s" % (type(e).__name__, e))
    aggregates = aggregates_of(case)
    if case["zone"] and case["zone"] not in zones(aggregates):  # nova/compute/api.py, _check_requested_availability_zone
        answer["rejects"].append("api")
    objects.AggregateList = objects.aggregate.AggregateList = Aggregates(aggregates)
    try:
        for one in request_filter.ALL_REQUEST_FILTERS:
            if one.__name__ != "owner_nova_filter":  # of 34: reads the versions of services, and none is older
                one(spec._context, spec)
        answer["queries"] = queries(spec)
    except exception.NovaException as e:
        return dict(answer, rejects=answer["rejects"] + ["prefilter"] + filtered(case, aggregates, spec, instances), why=str(e))
    if not allows(spec.requested_destination, aggregates):
        answer["rejects"].append("aggregates")
    answer["rejects"] += filtered(case, aggregates, spec, instances)
    return answer


def filtered(case, aggregates, spec, instances):
    """The filters that reject the host, or fail: nova-scheduler rejects the whole request then."""
    host, names = host_of(case, aggregates, instances), []
    for name in case["filters"]:
        try:
            passes = CLASSES[name]().host_passes(host, spec)
        except Exception:
            passes = False
        if not passes:
            names.append(name)
    if "NUMATopologyFilter" not in case["filters"] and not claims_numa(host, spec):
        names.append("claim")
    return names


def claims_numa(host, spec):
    """What nova-compute checks, without limits of NUMATopologyFilter (nova/compute/claims.py)."""
    claim = claims.Claim.__new__(claims.Claim)
    claim.instance = types.SimpleNamespace(numa_topology=spec.numa_topology.obj_clone() if spec.numa_topology else None)
    claim._pci_requests = spec.pci_requests
    claim.tracker = types.SimpleNamespace(pci_tracker=types.SimpleNamespace(stats=host.pci_stats))
    node = objects.ComputeNode(numa_topology=host.numa_topology and host.numa_topology._to_json())
    try:
        return claim._test_numa_topology(node, None) is None
    except ValueError:  # of max() for a node without cores
        return False


request_options = [
    "enable_isolated_aggregate_filtering", "limit_tenants_to_placement_aggregate", "placement_aggregate_required_for_tenants", "image_metadata_prefilter",
    "query_placement_for_image_type_support"]
filter_options = [
    "isolated_hosts", "isolated_images", "restrict_isolated_hosts_to_isolated_images", "aggregate_image_properties_isolation_namespace",
    "aggregate_image_properties_isolation_separator", "image_properties_default_architecture"]

for line in sys.stdin:
    question = json.loads(line)
    print(json.dumps(ask(question) if question else importlib.metadata.version("nova")), flush=True)
