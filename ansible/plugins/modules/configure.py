#!/usr/bin/python
# Copyright: the gpustack authors
# Apache License 2.0 (see LICENSE)

from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: configure
short_description: Configure aliases, device specs and scheduler filters in nova.conf
version_added: 0.1.0
description:
  - Runs C(gpustack nova configure), as root, also in check mode. Run again, it changes nothing.
  - It restarts nothing, see C(restart).
  - Files that a deployment tool generates are refused. With I(render) nothing is changed, and C(rendered) has the options for the tool.
author:
  - the gpustack authors (@gpustack)
extends_documentation_fragment:
  - gpustack.nova.binary
  - gpustack.nova.root
attributes:
  diff_mode:
    support: full
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
  aliases:
    description:
      - Aliases to define, each as NAME=VENDOR:PRODUCT[,KEY=VALUE].
    type: list
    elements: str
  hca:
    description:
      - RDMA adapters or VFs to offer, each as ADDRESS=alias:NAME or ADDRESS=port[:PHYSNET].
    type: list
    elements: str
  inventories:
    description:
      - Files or folders with documents of C(host scan) on the host of the task. An alias is defined for each product in them.
    type: list
    elements: str
  names:
    description:
      - Files with the names of aliases on the host of the task, each a controller's nova.conf or a document of C(nova configure).
    type: list
    elements: str
  remove_aliases:
    description:
      - Remove these aliases and the device specs that only they use.
    type: list
    elements: str
  if_present:
    description:
      - Succeed without a change if no file defines the aliases of I(remove_aliases).
    type: bool
    default: false
  by_address:
    description:
      - Write device specs by address.
    type: bool
    default: false
  placement:
    description:
      - Track the devices in Placement. It cannot be turned off again on a compute node.
    type: bool
    default: false
  computes_report:
    description:
      - Assert that all compute nodes report devices, if it cannot be verified.
    type: bool
    default: false
  managed:
    description:
      - Whether libvirt binds the functions to vfio-pci.
    type: str
    choices: ['yes', 'no']
  one_time_use:
    description:
      - Assign each device to one guest only, until an operator releases it.
    type: bool
    default: false
  libvirt:
    description:
      - The version of libvirt, for live_migratable.
    type: str
  qemu:
    description:
      - The version of QEMU, for live_migratable.
    type: str
  conf:
    description:
      - The file below the root to configure. By default C(/etc/nova/nova.conf).
    type: str
  drop_in:
    description:
      - Write new options to a file of their own in nova.conf.d.
    type: bool
    default: false
  render:
    description:
      - Only return the options for a deployment tool, as C(ini), C(kolla), C(tripleo) or C(rhoso).
    type: str
    choices: [ini, kolla, tripleo, rhoso]
  api_timeout:
    description:
      - How many seconds to wait for each answer of the cloud and the first answer of each database.
    type: int
"""

EXAMPLES = r"""
- name: Offer the prepared GPUs of a compute node
  gpustack.nova.configure:
    role: compute
    names:
      - /etc/gpustack/controller.conf
  register: configured
  become: true

- name: Define the aliases of all nodes on a controller
  gpustack.nova.configure:
    role: controller
    inventories:
      - /srv/gpustack/nodes
  become: true

- name: Offer the GPUs of a product no longer, before they return to the host
  gpustack.nova.configure:
    role: compute
    remove_aliases:
      - K4200
    if_present: true
  become: true

- name: Render the options for kolla-ansible
  gpustack.nova.configure:
    role: controller
    inventories:
      - /srv/gpustack/nodes
    release: zed
    render: kolla
  register: options
"""

RETURN = r"""
restart:
  description: The services to restart, in order.
  returned: success
  type: list
  elements: str
rendered:
  description: The options for a deployment tool; null without any.
  returned: success
  type: str
entry:
  description: The number of the entry in the journal, which M(gpustack.nova.undo) accepts; null if nothing was changed.
  returned: if gpustack has printed a document
  type: int
document:
  description: The document of C(gpustack nova configure -o json), which docs/json.md of gpustack describes.
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

from ansible_collections.gpustack.nova.plugins.module_utils.gpustack import ROOT, Gpustack, joined

FLAGS = joined(ROOT, {
    "role": ("--role", "str"),
    "release": ("--release", "str"),
    "aliases": ("--alias", "list"),
    "hca": ("--hca", "list"),
    "inventories": ("--inventory", "list"),
    "names": ("--names", "list"),
    "remove_aliases": ("--remove-alias", "list"),
    "if_present": ("--if-present", "bool"),
    "by_address": ("--by-address", "bool"),
    "placement": ("--placement", "bool"),
    "computes_report": ("--computes-report", "bool"),
    "managed": ("--managed", "str"),
    "one_time_use": ("--one-time-use", "bool"),
    "libvirt": ("--libvirt", "str"),
    "qemu": ("--qemu", "str"),
    "conf": ("--conf", "str"),
    "drop_in": ("--drop-in", "bool"),
    "render": ("--render", "str"),
    "api_timeout": ("--timeout", "seconds"),
})
OWN = {
    "role": {"type": "str", "choices": ["controller", "compute", "all"]},
    "managed": {"type": "str", "choices": ["yes", "no"]},
    "render": {"type": "str", "choices": ["ini", "kolla", "tripleo", "rhoso"]},
}


def main():
    task = Gpustack(["nova", "configure"], FLAGS, OWN)
    shown = task.change()
    task.succeed(restart=task.field("restart"), rendered=task.field("rendered"), **shown)


if __name__ == "__main__":
    main()
