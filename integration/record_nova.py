"""Records what Nova itself says of aliases, device_specs and filters, for the tests of nova check:

    python3 integration/record_nova.py nova/novacheck/testdata/verdicts.json

adds what the installed Nova says to what others have said, or replaces it. It needs python3-nova,
which contains Nova's unit tests, and no other package.

The values are those that Nova's unit tests of PCI devices (nova/tests/unit/pci) give to Nova, and
each key of an alias and of a device_spec with values of each type. The unit tests run only to catch
their values. Nova's own code then judges these one by one: the parser of aliases, the request to
Placement, device_spec, the pools of nova-compute, the translator to Placement, and the choice of
filters. What is recorded is null for a value that Nova accepts, an error, or what becomes of it.
"""
import importlib
import itertools
import json
import os
import sys
import tempfile
import types
import unittest
import uuid
from unittest import mock

import nova.conf
from nova import context, objects
from nova import version
from nova.compute import pci_placement_translator, provider_tree
from nova.pci import devspec, request, stats, utils, whitelist
from nova.scheduler import filters, host_manager
import os_resource_classes
import os_traits
import testtools

CONF = nova.conf.CONF
parse_aliases_name = "get_alias_from_config" if hasattr(request, "get_alias_from_config") else "_get_alias_from_config"
parse_aliases = getattr(request, parse_aliases_name)
asks_placement = lambda: getattr(CONF.filter_scheduler, "pci_in_placement", False)  # since 2023.1

# What the unit tests give to Nova: values of alias with pci_in_placement, values of device_spec
# with report_in_placement, and specs with devices that they are matched with.
caught_aliases, caught_specs, caught_matches = set(), set(), set()


# The unit tests need packages that python3-nova does not depend on. These stand for what the
# tests of PCI devices use of them.

class TestCase(testtools.TestCase):
    """Nova's base class of unit tests, as far as those of PCI devices need it."""

    stdlog = mock.MagicMock()

    def setUp(self):
        super().setUp()
        self.flags(alias=[], device_spec=[], group="pci")

    def flags(self, group=None, **options):
        for name, value in options.items():
            CONF.set_override(name, value, group)
            self.addCleanup(CONF.clear_override, name, group)

    def stub_out(self, name, new):
        self.patch(*[importlib.import_module(name.rpartition(".")[0]), name.rpartition(".")[2]], new)


def stand_in(name, **members):
    module = types.ModuleType(name)
    module.__dict__.update(members)
    module.__getattr__ = lambda attribute: mock.MagicMock()
    sys.modules[name] = module


def with_data(cls):
    """ddt.ddt: a test for each value of ddt.data."""
    for name, test in list(vars(cls).items()):
        for i, value in enumerate(getattr(test, "values", [])):
            def call(self, test=test, value=value):
                return test(self, **value) if getattr(test, "unpacked", False) and isinstance(value, dict) else (
                    test(self, *value) if getattr(test, "unpacked", False) else test(self, value))
            setattr(cls, "%s_%d" % (name, i), call)
        if hasattr(test, "values"):
            delattr(cls, name)
    return cls


def marked(name, value):
    def mark(test):
        setattr(test, name, value)
        return test
    return mark


def is_spec(value):
    """Whether a value is one spec, which PciDeviceSpec gets too."""
    try:
        return isinstance(json.loads(value), dict)
    except ValueError:
        return False


def catch():
    """Runs the unit tests and catches what they give to Nova."""
    stand_in("nova.test", TestCase=TestCase, NoDBTestCase=TestCase)
    stand_in("nova.tests.unit.api.openstack.fakes")
    stand_in("ddt", ddt=with_data, data=lambda *values: marked("values", values), unpack=marked("unpacked", True))
    def parsed(*args, **kwargs):
        caught_aliases.add((tuple(CONF.pci.alias), bool(asks_placement())))
        if hasattr(parse_aliases, "cache_clear"):
            parse_aliases.cache_clear()
        return parse_aliases(*args, **kwargs)
    parsed.cache_clear = lambda: None
    init, match, new_list = devspec.PciDeviceSpec.__init__, devspec.PciDeviceSpec.match, whitelist.Whitelist.__init__

    def spec_init(self, spec):
        caught_specs.add((json.dumps(spec), bool(CONF.pci.report_in_placement)))
        init(self, spec)

    def list_init(self, values=None):
        caught_specs.update((v, bool(CONF.pci.report_in_placement)) for v in values or [] if not is_spec(v))
        new_list(self, values)

    def spec_match(self, device):
        matched = match(self, device)
        # Whether an address is that of a PF, and which function an interface has, is the host's.
        if not self.dev_name and not self.address.is_physical_function and not self._remote_managed:
            caught_matches.add((json.dumps(self.dev_spec_conf), device["address"], device["vendor_id"], device["product_id"], device.get("parent_addr") or ""))
        return matched

    names = ["nova.tests.unit.pci.test_" + n for n in ("devspec", "request", "whitelist", "manager", "stats")]
    with mock.patch.object(request, parse_aliases_name, parsed), \
            mock.patch.object(devspec.PciDeviceSpec, "__init__", spec_init), \
            mock.patch.object(devspec.PciDeviceSpec, "match", spec_match), \
            mock.patch.object(whitelist.Whitelist, "__init__", list_init):
        suite = unittest.TestSuite(unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module(n)) for n in names)
        result = unittest.TextTestRunner(stream=open(os.devnull, "w")).run(suite)
    broken = [str(test) for test, _ in result.errors + result.failures]
    print("nova %s: %d unit tests, of which %d do not pass here: %s" % (
        installed(), result.testsRun, len(broken), ", ".join(broken) or "none"), file=sys.stderr)


# Values of every type of JSON, for each key.
VALUES = [None, True, False, 1, 1.5, "", " ", "x", ["x"], {}]
IDS = {"vendor_id": "10de", "product_id": "11b4"}
BOOLEANS = ["no", "true", "True", " yes ", "1", "0", "t", "f", "y", "n", "on", "off", "maybe", "2"]
CLASSES = ["PGPU", "pgpu", "VGPU", "VCPU", "CUSTOM_GPU", "custom_gpu", "CUSTOM_GPU.1", "gpu", "gpu--a", "gpu__a", "GPU_A", "_gpu", "gpu 1", "PCI_DEVICE"]
TRAITS = ["HW_GPU_API_VULKAN", "hw_gpu_api_vulkan", "HW_GPU_API_X", "COMPUTE_NODE", "CUSTOM_A", "custom_a", "custom_a-b", "a,b", "a, b", "a,,b", ",", "b,a,A",
          "HW_GPU_API_VULKAN,fast", "a--b", "a__b", "é"]
ALIAS_KEYS = {
    "name": ["A", " A ", "é", "a:b", "x" * 256, "x" * 257],
    "vendor_id": ["10DE", "0x10de", "10d", "010de", "*", "g0de", " 10de"],
    "product_id": ["11B4", "0x11b4", "1b4", "011b4", "*", "g1b4", "11b4 "],
    "capability_type": ["pci", "PCI", "vdpa"],
    "device_type": ["type-PCI", "type-PF", "type-VF", "type-pci", "vdpa", "GPU", "NIC"],
    "numa_policy": ["required", "legacy", "preferred", "socket", "Required", "strict"],
    "resource_class": CLASSES,
    "traits": TRAITS,
    "live_migratable": BOOLEANS,
    "managed": [],
    "address": [],
}
SPEC_KEYS = {
    "vendor_id": ["*", "10DE", "0x10de", "de", " 10de", "10de0", "nvidia"],
    "product_id": ["*", "11B4", "0x11b4", "b4", "11b4 ", "11b40"],
    "address": ["*:*:*.*", "84:00.0", "0000:84:00.0", ":84:00.", "*:84:*.*", "8*:00.0", "84:20.0", "84:00.8", "0:0:84:00.0", "1:84:00.0",
                {"bus": "8[48]"}, {"bus": "8("}, {"bus": 84}, {"domain": ".*", "bus": "84", "slot": "00", "function": "[0-7]"}],
    "resource_class": CLASSES,
    "traits": TRAITS,
    "physical_network": ["net1"],
    "trusted": BOOLEANS,
    "remote_managed": BOOLEANS,
    "managed": BOOLEANS,
    "live_migratable": BOOLEANS,
    "one_time_use": BOOLEANS,
    "name": ["K4200"],
    "tag": ["a"],
}
# The traits of every provider of a PCI device; the second since 2026.2.
ALWAYS = {"COMPUTE_MANAGED_PCI_DEVICE", "OWNER_NOVA"}
# Devices of one product, of each type.
DEVICES = [
    {"address": "0000:84:00.0", "dev_type": "type-PCI"},
    {"address": "0000:85:00.0", "dev_type": "type-PF"},
    {"address": "0000:86:00.4", "dev_type": "type-VF", "parent_addr": "0000:86:00.0"},
]


def alias_cases():
    """Lists of values of alias, with pci_in_placement."""
    base = dict(IDS, name="A")
    lists = [[]]
    for key, values in ALIAS_KEYS.items():
        lists += [[json.dumps(dict(base, **{key: v}))] for v in VALUES + values]
    for n in range(4):
        lists += [[json.dumps({k: base[k] for k in keys})] for keys in itertools.combinations(base, n)]
    lists += [[v] for v in (
        "", "{", "1", "null", "\"A\"", "[]", json.dumps([base]), json.dumps([base, base]), "{'name': 'A'}", json.dumps(base) + " # GPU",
        json.dumps(base) + json.dumps(base))]
    for resource in ({"resource_class": "PGPU"}, {"resource_class": "gpu"}, {"resource_class": ""}, {"traits": "fast"}, {"resource_class": "gpu", "traits": "fast"},
                     {"resource_class": "gpu", "vendor_id": "10de"}):
        lists.append([json.dumps(dict(resource, name="A"))])
    second = {"name": "A", "vendor_id": "10de", "product_id": "1bb1"}
    options = [{}, {"device_type": "type-PCI"}, {"device_type": "type-PF"}, {"device_type": "type-PCI", "numa_policy": "legacy"},
               {"device_type": "type-PCI", "numa_policy": "required"}, {"device_type": "type-PCI", "resource_class": "gpu"}]
    for one, two in itertools.product(options, options):
        lists.append([json.dumps(dict(base, **one)), json.dumps(dict(second, **two))])
    typed = {"device_type": "type-PCI"}
    lists += [
        [json.dumps(dict(base, **typed)), json.dumps(dict(base, **typed))],
        [json.dumps(dict(base, **typed)), json.dumps(dict(second, **typed)), json.dumps(dict(second, product_id="2222"))],
        [json.dumps(dict(base, **typed)), json.dumps(dict(second, name=" A", **typed))],
        [json.dumps(dict(base, **typed)), json.dumps(dict(second, name="a", **typed))],
        [json.dumps(base), json.dumps({"name": "B"})],
        [json.dumps(base), json.dumps(dict(second, name="B", numa_policy="strict"))],
        [json.dumps(dict(base, name="B", resource_class="gpu")), json.dumps({"name": "C", "resource_class": "gpu"})],
    ]
    return [(tuple(values), placed) for values in lists for placed in (False, True)
            if not placed or len(values) != 1 or any(key in values[0] for key in ("resource_class", "traits")) or "{" in values[0] and "11b4" not in values[0]]


def spec_cases():
    """Values of device_spec, with report_in_placement."""
    texts = ["", "{", "[]", "[1]", "1", "null", "{}", json.dumps([IDS, IDS]), json.dumps([IDS, {"address": "4*:00.0"}]), "{'vendor_id': '10de'}"]
    for key, values in SPEC_KEYS.items():
        texts += [json.dumps(dict(IDS, **{key: v})) for v in VALUES + values]
    return [(text, reported) for text in texts for reported in (False, True)
            if not reported or any(key in text for key in ("resource_class", "traits", "physical_network", "one_time_use"))]


OWN = "own.filters."
FILTERS = [  # values of enabled_filters, and of available_filters
    (None,), ("",), ("ComputeFilter",), ("ComputeFilter,PciPassthroughFilter",), ("ComputeFilter, PciPassthroughFilter",),
    ("ComputeFilter,,PciPassthroughFilter",), ("ComputeFilter, ,PciPassthroughFilter",), ("ComputeFilter,PciPassthroughFilter,",),
    ("ComputeFilter,PciPassthroughFilter, ",), ("ComputeFilter,PciPassthroughFilter,,",), (",ComputeFilter",), (",",),
    ("ComputeFilter PciPassthroughFilter",), ("PCIPassthroughFilter",), ("PciPassthroughfilter",), ("ComputeFilter,NoSuchFilter",),
    ("nova.scheduler.filters.compute_filter.ComputeFilter",), ("\"ComputeFilter,PciPassthroughFilter\"",), ("ComputeFilter,ComputeFilter",),
    ("ComputeFilter", "nova.scheduler.filters.all_filters"), ("ComputeFilter", "nova.scheduler.filters.compute_filter.ComputeFilter"),
    ("ComputeFilter,PciPassthroughFilter", "nova.scheduler.filters.compute_filter.ComputeFilter"),
    ("ComputeFilter,PciPassthroughFilter", "nova.scheduler.filters.compute_filter.ComputeFilter", "nova.scheduler.filters.pci_passthrough_filter.PciPassthroughFilter"),
    ("ComputeFilter,PciPassthroughFilter", "nova.scheduler.filters.all_filters", "nova.scheduler.filters.pci_passthrough_filter.PciPassthroughFilter"),
    ("ComputeFilter,OwnFilter",), ("ComputeFilter,OwnFilter", "nova.scheduler.filters.all_filters", OWN + "OwnFilter"),
    ("ComputeFilter,OwnFilter", OWN + "OwnFilter"), ("OwnFilter,OtherFilter", OWN + "OwnFilter"), ("OwnFilter,OtherFilter", OWN + "own_filters"),
    ("ComputeFilter,OwnFilter", "nova.scheduler.filters.all_filters", OWN + "own_filters"), ("ComputeFilter", OWN + "NoSuchFilter"),
    ("ComputeFilter", "nova.scheduler.filters.standard_filters"), ("ComputeFilter", "nova.scheduler.filters.compute_filter"), ("ComputeFilter", ""),
    ("ComputeFilter", "ComputeFilter"), ("ComputeFilter", "nova.scheduler.filters.all_filters,own.filters.OwnFilter"),
    ("NUMATopologyFilter,PciPassthroughFilter", "nova.scheduler.filters.numa_topology_filter.NUMATopologyFilter"),
]


def said(e):
    """An exception, short."""
    return {"error": ("%s: %s" % (type(e).__name__, str(e).split("\n")[0].split(" ([")[0]))[:80]}


def clean():
    for group, options in {"pci": ["alias", "device_spec", "report_in_placement"], "filter_scheduler": ["pci_in_placement"]}.items():
        for option in options:
            if option in CONF[group]:
                CONF.clear_override(option, group)
    if hasattr(parse_aliases, "cache_clear"):
        parse_aliases.cache_clear()


def asked(name):
    """What a flavor that requests an alias asks Placement for."""
    flavor = objects.Flavor(extra_specs={"pci_passthrough:alias": name + ":1"})
    spec = objects.RequestSpec(context.RequestContext(), pci_requests=request.get_pci_requests_from_flavor(flavor), requested_resources=[])
    spec.generate_request_groups_from_pci_requests()
    if not spec.requested_resources:
        return {}
    group = spec.requested_resources[0]
    return {"class": list(group.resources)[0], "traits": sorted(group.required_traits)}


def judge_aliases(values, placed):
    clean()
    CONF.set_override("alias", list(values), "pci")
    if placed:
        CONF.set_override("pci_in_placement", True, "filter_scheduler")
    try:
        names = parse_aliases()
    except Exception as e:
        return said(e)
    result = {}
    for name in sorted(names) if placed else []:
        if set(name) & set(":,") or not name:
            continue
        try:
            result[name] = asked(name)
        except Exception as e:
            result[name] = said(e)
    return result or None


def offered(value, device, reported):
    """How nova-compute counts and reports a device: null if it does not offer the device."""
    device = objects.PciDevice(**dict({"compute_node_id": 1, "status": "available", "instance_uuid": None, "extra_info": {}, "parent_addr": None, "numa_node": 0},
                                      **IDS, **device))
    specs = whitelist.Whitelist([value])
    if not specs.get_devspec(device):
        return None
    pools = stats.PciDeviceStats(objects.NUMATopology(cells=[]), dev_filter=specs)
    tree = provider_tree.ProviderTree()
    tree.new_root("gpu1", str(uuid.uuid4()))
    try:
        pools.add_device(device)
        pools.to_device_pools_obj()
        if not reported:
            return {}
        tracker = types.SimpleNamespace(dev_filter=specs, pci_devs=[device], stats=pools)
        pci_placement_translator.update_provider_tree_for_pci(tree, "gpu1", tracker, {}, [])
    except Exception as e:
        return said(e)
    for provider in tree.get_provider_uuids("gpu1")[1:]:
        data = tree.data(provider)
        return {"class": list(data.inventory)[0], "traits": sorted(data.traits - ALWAYS)}
    return {}


def judge_spec(value, reported):
    clean()
    CONF.set_override("report_in_placement", reported, "pci")
    try:
        whitelist.Whitelist([value])
    except Exception as e:
        return said(e)
    devices = {d["dev_type"]: offered(value, d, reported) for d in DEVICES}
    devices = {kind: result for kind, result in devices.items() if result != {}}
    if len(devices) == len(DEVICES) and len({json.dumps(result) for result in devices.values()}) == 1:
        return {"every": devices["type-PCI"]}
    return devices or None


def judge_match(spec, address, vendor, product, parent):
    clean()
    try:
        return devspec.PciDeviceSpec(json.loads(spec)).match({"address": address, "vendor_id": vendor, "product_id": product, "parent_addr": parent})
    except Exception as e:
        return said(e)


def judge_filters(enabled, *available):
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
        lines = ["available_filters = " + a for a in available] + ["enabled_filters = %s" % enabled] * (enabled is not None)
        file.write("[filter_scheduler]\n" + "\n".join(lines) + "\n")
        file.flush()
        CONF.reset()
        CONF(["--config-file", file.name], project="nova", default_config_dirs=[])
    try:
        manager = host_manager.HostManager.__new__(host_manager.HostManager)
        classes = filters.HostFilterHandler().get_matching_classes(CONF.filter_scheduler.available_filters)
        manager.filter_cls_map, manager.filter_obj_map = {c.__name__: c for c in classes}, {}
        manager._choose_host_filters(CONF.filter_scheduler.enabled_filters)
    except Exception as e:
        return said(e)


def own_filters():
    """Filters of an operator's."""
    module = types.ModuleType("own.filters")
    for name in ("OwnFilter", "OtherFilter"):
        setattr(module, name, type(name, (filters.BaseHostFilter,), {"host_passes": lambda *args: True}))
    def own_filters():
        return [module.OwnFilter, module.OtherFilter]
    module.own_filters = own_filters
    sys.modules["own"], sys.modules["own.filters"] = types.ModuleType("own"), module


def installed():
    return version.version_info.version_string()


def merge(known, cases, judge):
    """Replaces what this release said: [CASE, {RELEASES: WHAT THEY SAY}]."""
    mine = installed().split(".")[0]
    found = {json.dumps(case): {} for case, _ in known}
    for case, by_release in known:
        for releases, what in by_release.items():
            found[json.dumps(case)].update({r: what for r in releases.split() if r != mine})
    for case in cases:
        found.setdefault(json.dumps(case), {})[mine] = judge(*json.loads(json.dumps(case)))
    merged = []
    for case, by_release in found.items():
        same = {}
        for r in sorted(by_release):
            same.setdefault(json.dumps(by_release[r]), []).append(r)
        if same:
            merged.append([json.loads(case), {" ".join(releases): json.loads(what) for what, releases in same.items()}])
    return merged


def unique(cases):
    return {json.dumps(case): case for case in cases}.values()


def write(path, parts):
    """Writes lists with one case per line."""
    with open(path, "w") as file:
        for i, (name, value) in enumerate(parts.items()):
            file.write(",\n" if i else "{\n")
            if isinstance(value, list):
                file.write("%s: [\n%s\n]" % (json.dumps(name), ",\n".join(json.dumps(v, ensure_ascii=False) for v in value)))
            else:
                file.write("%s: %s" % (json.dumps(name), json.dumps(value)))
        file.write("\n}\n")


def main(path):
    CONF([], project="nova", default_config_files=[], default_config_dirs=[])
    objects.register_all()
    catch()
    utils.is_physical_function = lambda *address: False
    utils.get_function_by_ifname = lambda name: (None, False)
    own_filters()
    known = {}
    if os.path.exists(path):
        with open(path) as file:
            known = json.load(file)
    places = "pci_in_placement" in CONF.filter_scheduler
    names = [("class", n) for n in sorted(os_resource_classes.STANDARDS)] + [("trait", n) for n in sorted(os_traits.get_traits())] + [
        ("filter", "%s.%s" % (c.__module__, c.__name__)) for c in sorted(filters.all_filters(), key=lambda c: c.__name__)]
    parts = {"novas": dict(sorted(dict(known.get("novas", {}), **{installed().split(".")[0]: installed()}).items()))}
    for part, cases, judge in (
            ("aliases", [a for a in alias_cases() + sorted(caught_aliases) if places or not a[1]], judge_aliases),
            ("specs", spec_cases() + sorted(caught_specs), judge_spec),
            ("matches", sorted(caught_matches), judge_match),
            ("filters", FILTERS, judge_filters),
            ("names", names, lambda *name: None)):
        # The values of other releases' unit tests too.
        theirs = [tuple(case) for case, _ in known.get(part, []) if part != "names" and (part != "aliases" or places or not case[1])]
        parts[part] = merge(known.get(part, []), unique(theirs + list(cases)), judge)
    write(path, parts)


if __name__ == "__main__":
    main(sys.argv[1])
