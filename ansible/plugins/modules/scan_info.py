#!/usr/bin/python
# Copyright: the gpustack authors
# Apache License 2.0 (see LICENSE)

from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: scan_info
short_description: List GPUs, their IOMMU groups and which can be assigned to guests
version_added: 0.1.0
description:
  - Runs C(gpustack host scan), which changes nothing.
author:
  - the gpustack authors (@gpustack)
extends_documentation_fragment:
  - gpustack.nova.binary
  - gpustack.nova.root
options:
  machine:
    description:
      - Add product, BIOS, CPUs, memory, disks and network interfaces.
    type: bool
    default: false
  all:
    description:
      - List every PCI function.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Scan the node
  gpustack.nova.scan_info:
    machine: true
  register: scan

- name: Show its GPUs
  ansible.builtin.debug:
    msg: "{{ scan.document.devices | selectattr('candidate') | map(attribute='address') }}"
"""

RETURN = r"""
document:
  description: The document of C(gpustack host scan -o json), which docs/json.md of gpustack describes.
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

FLAGS = joined(ROOT, {"machine": ("--machine", "bool"), "all": ("--all", "bool")})


def main():
    task = Gpustack(["host", "scan"], FLAGS)
    task.run()
    if task.rc == 2:
        task.unexpected()
    task.field("devices")
    task.succeed()


if __name__ == "__main__":
    main()
