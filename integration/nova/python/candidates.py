"""Prints, as JSON lines, what Placement answers to many requests, on a database in memory.

candidates.py: the first line names the release, the second one has the providers, each other line a
request (its microversion and address) and the answer. nova/cloud/cloudtest must give the same.
"""

import importlib.metadata
import json
import logging
import re
import uuid

import os_resource_classes
import os_traits
import webob
from oslo_config import cfg
from placement import conf as placement_conf
from placement import deploy

logging.disable(logging.CRITICAL)
K4200, ONE, MANAGED, SHARED = "CUSTOM_PCI_10DE_11B4", "HW_PCI_ONE_TIME_USE", "COMPUTE_MANAGED_PCI_DEVICE", "MISC_SHARES_VIA_AGGREGATE"
AVX, AGGREGATE = "HW_CPU_X86_AVX2", "a0000000-0000-4000-8000-000000000001"


def uuid_of(name):
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


def inventory(total, **others):
    return {"total": total, "reserved": 0, "min_unit": 1, "max_unit": total, "step_size": 1, "allocation_ratio": 1.0, **others}


def device(parent, address, traits=(), cls=K4200, **used):
    return {"name": f"{parent}_{address}", "parent": parent, "traits": [MANAGED, *traits], "inventories": {cls: inventory(1)}, "used": used}


def node(name, traits=(), used=None, disk=100, aggregates=(), **others):
    inventories = {"VCPU": inventory(16, allocation_ratio=2.0, max_unit=16), "MEMORY_MB": inventory(65536, reserved=512, step_size=64), **others}
    if disk:
        inventories["DISK_GB"] = inventory(disk)
    return {"name": name, "traits": list(traits), "inventories": inventories, "used": used or {}, "aggregates": list(aggregates)}


PROVIDERS = [
    node("gpu1", [AVX, "CUSTOM_FAST"], PCPU=inventory(8)),
    device("gpu1", "0000:84:00.0", ["CUSTOM_NEW"]),
    device("gpu1", "0000:85:00.0", CUSTOM_PCI_10DE_11B4=1),
    # Devices below a NUMA node, and one of another class.
    node("gpu2", [AVX], used={"VCPU": 30}),
    {"name": "gpu2_numa0", "parent": "gpu2", "traits": ["CUSTOM_FAST"], "inventories": {"PCPU": inventory(4)}, "used": {}},
    device("gpu2_numa0", "0000:84:00.0", ["CUSTOM_NEW", "CUSTOM_ODD"]),
    device("gpu2", "0000:86:00.0", cls="CUSTOM_PCI_10DE_2330"),
    # Without a disk of its own, beside a shared one.
    node("gpu3", disk=0, aggregates=[AGGREGATE]),
    device("gpu3", "0000:84:00.0"),
    {"name": "nfs", "traits": [SHARED, "STORAGE_DISK_SSD"], "inventories": {"DISK_GB": inventory(2000)}, "used": {"DISK_GB": 100}, "aggregates": [AGGREGATE]},
    # With both disks.
    node("gpu4", ["CUSTOM_FAST"], aggregates=[AGGREGATE]),
    # In no aggregate of a provider that shares, all devices taken.
    node("gpu5", [AVX]),
    device("gpu5", "0000:84:00.0", CUSTOM_PCI_10DE_11B4=1),
    {"name": "one", "traits": [], "inventories": {"VGPU": inventory(4, max_unit=2, min_unit=2, step_size=2)}, "used": {"VGPU": 2}},
]
UNUSED = ["CUSTOM_UNUSED"]  # a resource class without an inventory, and a trait of no provider


def requests():
    numbers = "VCPU:1,MEMORY_MB:1024"
    disk = numbers + ",DISK_GB:10"
    resources = [
        "VCPU:1", "VCPU:2", "VCPU:3", "VCPU:17", "VCPU:33", "PCPU:1", "PCPU:5", "PCPU:9", "PCPU:1,VCPU:1", numbers, disk, "DISK_GB:10", "DISK_GB:500", "DISK_GB:1900", "DISK_GB:1901",
        "MEMORY_MB:65024", "MEMORY_MB:65088", "MEMORY_MB:100", f"{K4200}:1", f"{K4200}:2", f"{disk},{K4200}:1", f"{numbers},{K4200}:1", "CUSTOM_PCI_10DE_2330:1",
        f"{K4200}:1,CUSTOM_PCI_10DE_2330:1", "VGPU:1", "VGPU:2", "VGPU:4", "FPGA:1", "CUSTOM_UNUSED:1", "CUSTOM_NOTHERE:1", "NOTHERE:1", f"{numbers},CUSTOM_NOTHERE:1",
        "", "VCPU", "VCPU:x", "VCPU:0", "VCPU:-1", "VCPU:1:2", "VCPU:1,", "VCPU:1,VCPU:3",
    ]
    required = [
        AVX, "CUSTOM_FAST", "!" + AVX, f"{AVX},CUSTOM_FAST", f"{AVX},!CUSTOM_FAST", "CUSTOM_NEW", "!CUSTOM_NEW", "CUSTOM_ODD", "!CUSTOM_ODD", MANAGED, "!" + MANAGED, "STORAGE_DISK_SSD",
        "!STORAGE_DISK_SSD", f"{AVX},CUSTOM_NEW", f"{AVX},!CUSTOM_ODD", "CUSTOM_UNUSED", "!CUSTOM_UNUSED", "CUSTOM_NOTHERE", "!CUSTOM_NOTHERE", "NOTHERE", "HW_CPU_X86_AVX512F", ONE,
        "", f"{AVX},", f"in:{AVX},CUSTOM_FAST", "in:CUSTOM_ODD,CUSTOM_FAST", f"in:{AVX},CUSTOM_NOTHERE", "in:", "in:!CUSTOM_FAST", f"{AVX},!{AVX}", "!",
    ]
    versions = ["1.12", "1.16", "1.17", "1.21", "1.22", "1.26", "1.27", "1.28", "1.29", "1.33", "1.34", "1.38", "1.39"]
    for r in resources:
        for version in ("1.28", "1.29"):
            yield version, f"/allocation_candidates?resources={r}"
            yield version, f"/resource_providers?resources={r}"
    for t in required:
        for version in ("1.28", "1.29", "1.38", "1.39"):
            if version in ("1.29", "1.39"):
                yield version, f"/allocation_candidates?resources={disk}&required={t}"
                yield version, f"/allocation_candidates?resources={numbers},{K4200}:1&required={t}"
            if version in ("1.28", "1.39"):
                yield version, f"/resource_providers?required={t}"
                yield version, f"/resource_providers?resources={K4200}:1&required={t}"
    for version in [*versions, "1.40", "2.0", "x", "latest"]:
        yield version, f"/allocation_candidates?resources={disk}"
        yield version, f"/allocation_candidates?resources={disk},{K4200}:1"
        yield version, f"/allocation_candidates?resources={numbers}&required={AVX}"
        yield version, f"/allocation_candidates?resources={numbers}&required=!{AVX}"
        yield version, f"/allocation_candidates?resources={numbers}&required={AVX}&required=CUSTOM_FAST"
        yield version, f"/allocation_candidates?resources={numbers}&required=in:{AVX},CUSTOM_FAST"
        yield version, f"/allocation_candidates?resources={numbers}&colour=red"
        yield version, "/resource_providers"
        yield version, f"/resource_providers?required={AVX}"
        yield version, f"/resource_providers?required=!{AVX}"
        yield version, f"/resource_providers?required={AVX}&required=CUSTOM_FAST"
        yield version, "/resource_providers?colour=red"
    for version in ("1.28", "1.39"):
        for name in ("gpu2", "gpu2_numa0", "nowhere"):
            u = uuid_of(name)
            yield version, f"/resource_providers?name={name}"
            yield version, f"/resource_providers?uuid={u}"
            yield version, f"/resource_providers?in_tree={u}"
            yield version, f"/resource_providers?in_tree={u}&resources={K4200}:1"
            yield version, f"/resource_providers/{u}/inventories"
            yield version, f"/resource_providers/{u}/usages"
            yield version, f"/resource_providers/{u}/allocations"
            yield version, f"/allocations/{uuid_of('0 of ' + name)}"
        yield version, f"/resource_providers/{uuid_of('gpu5_0000:84:00.0')}/allocations"


def application():
    conf = cfg.ConfigOpts()
    placement_conf.register_opts(conf)
    conf.set_override("connection", "sqlite://", group="placement_database")
    conf([], project="placement", default_config_files=[])
    conf.set_override("sync_on_startup", True, group="placement_database")
    conf.set_override("auth_strategy", "noauth2", group="api")
    app = deploy.loadapp(conf)

    def call(method, url, version="1.39", body=None):
        # "!" and others stand in the table as they are.
        request = webob.Request.blank(url.replace(" ", "%20"), method=method)
        request.headers["X-Auth-Token"] = "admin"
        request.headers["OpenStack-API-Version"] = "placement " + version
        request.headers["Accept"] = "application/json"
        if body is not None:
            request.body = json.dumps(body).encode()
            request.content_type = "application/json"
        return request.get_response(app)

    return call


def must(response):
    assert response.status_int < 300, response.text
    return response


def fill(call):
    for name in UNUSED + [K4200, "CUSTOM_PCI_10DE_2330"]:
        must(call("PUT", "/resource_classes/" + name))
    for name in sorted({t for p in PROVIDERS for t in p["traits"] if t.startswith("CUSTOM_")} | set(UNUSED)):
        must(call("PUT", "/traits/" + name))
    for p in PROVIDERS:
        p["uuid"] = uuid_of(p["name"])
        body = {"uuid": p["uuid"], "name": p["name"]}
        if p.get("parent"):
            body["parent_provider_uuid"] = uuid_of(p["parent"])
        must(call("POST", "/resource_providers", body=body))
        generation = 0
        for what, key, value in (("inventories", "inventories", p["inventories"]), ("traits", "traits", p["traits"]), ("aggregates", "aggregates", p.get("aggregates", []))):
            body = {"resource_provider_generation": generation, key: value}
            generation = must(call("PUT", f"/resource_providers/{p['uuid']}/{what}", body=body)).json["resource_provider_generation"]
    for p in PROVIDERS:
        p["held"] = {uuid_of(f"{n} of {p['name']}"): part for n, part in enumerate(parts(p.pop("used")))}
        for consumer, part in p["held"].items():
            body = {"allocations": {p["uuid"]: {"resources": part}}, "project_id": "p", "user_id": "u", "consumer_generation": None, "consumer_type": "INSTANCE"}
            must(call("PUT", "/allocations/" + consumer, body=body))


def parts(used):
    """What is used, by consumer: none gets more than max_unit."""
    if used.get("VCPU", 0) > 16:
        return [{"VCPU": 16}, {"VCPU": used["VCPU"] - 16}]
    return [used] if used else []


def canonical(value, key=""):
    """Lists without an order, sorted; what changes from run to run, left out."""
    if isinstance(value, dict):
        gone = ("links", "request_id", "generation", "resource_provider_generation", "consumer_generation", "code")
        return {k: canonical(v, k) for k, v in value.items() if k not in gone}
    if isinstance(value, list):
        return sorted((canonical(v) for v in value), key=lambda v: json.dumps(v, sort_keys=True))
    if key == "detail":
        # The texts of jsonschema depend on its release.
        value = re.sub(r"'(\w+)' does not match any of the regexes.*", r"Additional properties are not allowed ('\1' was unexpected)", value.split("Failed validating")[0])
        return re.sub(r"\s+", " ", value).strip()
    return value


if __name__ == "__main__":
    call = application()
    fill(call)
    release = importlib.metadata.version("openstack-placement")
    known = {"resource_classes": sorted(os_resource_classes.STANDARDS) + UNUSED, "traits": sorted(os_traits.get_traits()) + UNUSED}
    dump = {"sort_keys": True, "separators": (",", ":")}
    print(json.dumps({"release": release, "known": known}, **dump))
    print(json.dumps({"providers": PROVIDERS}, **dump))
    for version, url in requests():
        response = call("GET", url, version)
        body = canonical(response.json) if response.content_type == "application/json" else response.text
        print(json.dumps({"version": version, "url": url, "status": response.status_int, "body": body}, **dump))
