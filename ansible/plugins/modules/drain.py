#!/usr/bin/python
# Copyright: the gpustack authors
# Apache License 2.0 (see LICENSE)

from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: drain
short_description: Take a compute service out of scheduling and list the servers on its host
version_added: 0.1.0
description:
  - Runs C(gpustack nova drain), with the credentials of an administrator of the cloud. It stops and moves no server.
  - The service is disabled with a reason by which M(gpustack.nova.enable) and C(gpustack nova drain --list) find it. A service that was disabled by other means is refused.
author:
  - the gpustack authors (@gpustack)
extends_documentation_fragment:
  - gpustack.nova.binary
  - gpustack.nova.cloud
attributes:
  diff_mode:
    support: full
options:
  host:
    description:
      - The host of the compute service, as Nova names it.
    type: str
    required: true
  reason:
    description:
      - Why the service is disabled. One of I(reason) and I(step) is required.
    type: str
  step:
    description:
      - Only change the reason to this text, which says what is being done on the host.
    type: str
  take_over:
    description:
      - Replace the reason of a drain that this controller's journal does not have. Without it, such a service is refused.
    type: bool
    default: false
  wait:
    description:
      - How long to wait at most until nothing is in progress on the host, such as C(10m0s). With C(0s) it does not wait.
    type: str
  wait_empty:
    description:
      - How long to wait then until no server runs there with GPUs. By default it does not wait.
    type: str
  fail_on_servers:
    description:
      - Fail with the reason C(servers_running) if servers run there with GPUs.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Take the node out of scheduling
  gpustack.nova.drain:
    host: "{{ inventory_hostname }}"
    reason: new kernel
    wait_empty: 2h
    cloud: lab
  delegate_to: localhost

- name: Note what is being done
  gpustack.nova.drain:
    host: "{{ inventory_hostname }}"
    step: reboot
    cloud: lab
  delegate_to: localhost
"""

RETURN = r"""
servers:
  description: The servers on the host, each with C(id), C(name), C(owner) and C(project) (ids), C(status), C(power) (C(running) or C(off)), C(gpus) (null if unknown) and C(request).
  returned: success
  type: list
  elements: dict
running:
  description: Those of C(servers) that run, or may, with GPUs or without.
  returned: success
  type: list
  elements: dict
blocking:
  description: Those of C(servers) that run with GPUs, or whose flavors cannot be read.
  returned: success
  type: list
  elements: dict
empty:
  description: Whether no server is on the host. Null with I(step), which looks at none.
  returned: success
  type: bool
entry:
  description: The number of the entry in the journal, which M(gpustack.nova.undo) accepts; null if nothing was changed.
  returned: if gpustack has printed a document
  type: int
document:
  description: The document of C(gpustack nova drain -o json), which docs/json.md of gpustack describes.
  returned: if gpustack has printed one
  type: dict
exit_status:
  description: The exit status of gpustack.
  returned: if gpustack was run
  type: int
reason:
  description: Why the module has failed, one of the words in the notes, or C(servers_running).
  returned: failure
  type: str
"""

from ansible_collections.gpustack.nova.plugins.module_utils.gpustack import CLOUD, Gpustack, joined

FLAGS = joined(CLOUD, {
    "reason": ("--reason", "str"),
    "step": ("--step", "str"),
    "take_over": ("--take-over", "bool"),
    "wait": ("--wait", "str"),
    "wait_empty": ("--wait-empty", "str"),
})
OWN = {"host": {"type": "str", "required": True}, "fail_on_servers": {"type": "bool", "default": True}}


def server_of(task, server):
    return {
        "id": task.field("id", server),
        "name": task.field("name", server),
        "owner": task.field("user_id", server),
        "project": task.field("project_id", server),
        "status": task.field("server_status", server),
        "power": "running" if task.field("running", server) else "off",
        "gpus": task.field("has_gpus", server),
        "request": task.field("device_request", server),
    }


def main():
    task = Gpustack(
        ["nova", "drain"], FLAGS, OWN, argument="host",
        mutually_exclusive=[("reason", "step"), ("step", "wait"), ("step", "wait_empty")], required_one_of=[("reason", "step")],
    )
    shown = task.change()
    servers = [server_of(task, s) for s in task.field("servers")]
    running = [s for s in servers if s["power"] == "running"]
    shown.update(servers=servers, running=running, blocking=[s for s in running if s["gpus"] is not False], empty=None if task.params["step"] else not servers)
    if shown["blocking"] and not task.check_mode and task.params["fail_on_servers"]:
        names = ", ".join("%s (%s) of user %s" % (s["id"], s["name"], s["owner"]) for s in shown["blocking"])
        task.fail("servers_running", "servers with GPUs run on %s: %s: their owners must stop them, or migrate them" % (task.params["host"], names), **shown)
    task.succeed(**shown)


if __name__ == "__main__":
    main()
