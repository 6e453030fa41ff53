"""A hypervisor that is not there: Nova's fake driver, with a few additions.

Its files are in the folder that is state_path on this host:
cards.json    the PCI devices, read whenever Nova asks
compute_id    Nova's own
guests.json   the guests, which outlive nova-compute as those of a real host do
hold-CALL     while it exists, the method CALL waits before it does anything, and
held-CALL     exists while it does
fail-CALL     while it exists, the method CALL fails before it does anything
"""

import functools
import json
import os
import time

from oslo_serialization import jsonutils

import nova.conf
from nova import exception
from nova.virt import driver
from nova.virt import fake

try:
    from nova.virt import node  # what a host knows itself by, after Zed
except ImportError:
    node = None

CONF = nova.conf.CONF

# The methods that can be held: those that change guests.
HOLDABLE = (
    "spawn",
    "destroy",
    "cleanup",
    "power_on",
    "power_off",
    "migrate_disk_and_power_off",
    "finish_migration",
    "confirm_migration",
    "finish_revert_migration",
    "pre_live_migration",
    "live_migration",
    "post_live_migration_at_destination",
    "rollback_live_migration_at_destination",
)


def path(name):
    return os.path.join(CONF.state_path, name)


def hold(call):
    if not os.path.exists(path("hold-" + call)):
        return
    with open(path("held-" + call), "w"):
        pass
    while os.path.exists(path("hold-" + call)):
        time.sleep(0.05)  # eventlet's: the rest of nova-compute goes on
    os.remove(path("held-" + call))


def fail(call):
    # As the libvirt driver does when it cannot shrink a disk: the guest is as before.
    if os.path.exists(path("fail-" + call)):
        raise exception.InstanceFaultRollback(
            exception.ResizeError(reason=call + " is to fail"))


class Driver(fake.FakeDriver):
    def __init__(self, virtapi, read_only=False):
        super().__init__(virtapi, read_only)
        if os.path.exists(path("guests.json")):
            with open(path("guests.json")) as file:
                for guest in json.load(file):
                    self.instances[guest["uuid"]] = fake.FakeInstance(**guest)

    def get_available_resource(self, nodename):
        hold("get_available_resource")  # an audit begins with it
        resources = super().get_available_resource(nodename)
        with open(path("cards.json")) as file:
            resources["pci_passthrough_devices"] = jsonutils.dumps(json.load(file))
        if node:
            resources["uuid"] = node.get_local_node_uuid()
        return resources

    def get_nodenames_by_uuid(self, refresh=False):
        # The fake driver's are others each time.
        return driver.ComputeDriver.get_nodenames_by_uuid(self, refresh)

    def keep_guests(self):
        guests = [vars(guest) for guest in self.instances.values()]
        with open(path("guests.json.new"), "w") as file:
            json.dump(guests, file)
        os.rename(path("guests.json.new"), path("guests.json"))


def holdable(call):
    method = getattr(fake.FakeDriver, call)

    @functools.wraps(method)
    def wrapper(self, *args, **kwargs):
        hold(call)
        fail(call)
        result = method(self, *args, **kwargs)
        self.keep_guests()
        return result

    return wrapper


for name in HOLDABLE:
    setattr(Driver, name, holdable(name))
