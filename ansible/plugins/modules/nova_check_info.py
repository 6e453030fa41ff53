#!/usr/bin/python
# Copyright: the gpustack authors
# Apache License 2.0 (see LICENSE)

from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: nova_check_info
short_description: Check nova.conf on controllers and compute nodes for consistency
version_added: 0.1.0
description:
  - Runs C(gpustack nova check), which changes nothing.
  - A check that has failed is no failure of the module, see C(ok).
author:
  - the gpustack authors (@gpustack)
extends_documentation_fragment:
  - gpustack.nova.binary
  - gpustack.nova.root
  - gpustack.nova.cloud
options:
  role:
    description:
      - The role of the machine, C(controller), C(compute) or C(all). By default it is inferred.
    type: str
    choices: [controller, compute, all]
  release:
    description:
      - Nova's release, such as C(zed). By default that of the installed one.
    type: str
  conf:
    description:
      - Check these files, each as [ROLE=]FILE[,FILE]. By default all of the machine.
    type: list
    elements: str
  inventories:
    description:
      - Check against the hardware in these documents of C(host scan), files or folders on the host of the task.
    type: list
    elements: str
  flavors:
    description:
      - Check the flavors of the cloud, too.
    type: bool
    default: false
  libvirt:
    description:
      - The version of libvirt on the compute nodes.
    type: str
  qemu:
    description:
      - The version of QEMU on the compute nodes.
    type: str
"""

EXAMPLES = r"""
- name: Check the configuration of the node
  gpustack.nova.nova_check_info:
    role: compute
  register: checked
  become: true
  failed_when: checked is failed or not checked.ok
"""

RETURN = r"""
ok:
  description: Whether no check has failed.
  returned: success
  type: bool
problems:
  description: The findings of checks that have failed, each with its remedy.
  returned: success
  type: list
  elements: dict
offered:
  description: The functions that C(device_count) of the document counts, each with its host and address; null if no hardware is known.
  returned: success
  type: list
  elements: dict
document:
  description: The document of C(gpustack nova check -o json), which docs/json.md of gpustack describes.
  returned: if gpustack has printed one
  type: dict
exit_status:
  description: The exit status of gpustack.
  returned: if gpustack was run
  type: int
reason:
  description: Why the module has failed, one of the words in the notes.
  returned: failure
  type: str
"""

from ansible_collections.gpustack.nova.plugins.module_utils.gpustack import CLOUD, ROOT, Gpustack, joined

FLAGS = joined(ROOT, CLOUD, {
    "role": ("--role", "str"),
    "release": ("--release", "str"),
    "conf": ("--conf", "list"),
    "inventories": ("--inventory", "list"),
    "flavors": ("--flavors", "bool"),
    "libvirt": ("--libvirt", "str"),
    "qemu": ("--qemu", "str"),
})
OWN = {"role": {"type": "str", "choices": ["controller", "compute", "all"]}}


def main():
    task = Gpustack(["nova", "check"], FLAGS, OWN)
    task.run()
    problems = [f for f in task.field("findings") if task.field("status", f) == "fail"]
    task.succeed(ok=task.field("passed"), problems=problems, offered=task.field("offered"))


if __name__ == "__main__":
    main()
