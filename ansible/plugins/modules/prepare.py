#!/usr/bin/python
# Copyright: the gpustack authors
# Apache License 2.0 (see LICENSE)

from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: prepare
short_description: Assign GPUs to guests from the next boot on
version_added: 0.1.0
description:
  - Runs C(gpustack host prepare), as root, also in check mode. Run again, it changes nothing.
  - It plans kernel arguments, modules, initramfs hooks and a blacklist, applies and records them. M(gpustack.nova.undo) undoes the entry.
  - Without a selection every NVIDIA GPU that is not for containers is selected.
author:
  - the gpustack authors (@gpustack)
extends_documentation_fragment:
  - gpustack.nova.binary
  - gpustack.nova.root
attributes:
  diff_mode:
    support: full
options:
  state:
    description:
      - C(present) assigns the selection to guests.
      - C(absent) returns all functions to the host.
    type: str
    choices: [present, absent]
    default: present
  devices:
    description:
      - Select these devices, each an address or VENDOR:PRODUCT. With a record they are added to it. An empty list is an error.
    type: list
    elements: str
  vendors:
    description:
      - Select the GPUs made by these vendors, four digits each. An empty list is an error.
    type: list
    elements: str
  only:
    description:
      - The whole selection. Functions that it does not name are returned to the host. An empty list is an error, use I(state=absent).
    type: list
    elements: str
  remove:
    description:
      - Remove these devices from the selection.
    type: list
    elements: str
  allow:
    description:
      - Let the functions at these addresses leave the host.
    type: list
    elements: str
  nvswitch:
    description:
      - Which side gets the NVSwitches of the GPUs, C(host) or C(guest).
    type: str
    choices: [host, guest]
  driver:
    description:
      - The driver to bind functions to, C(vfio-pci) or C(pci-stub).
    type: str
    choices: [vfio-pci, pci-stub]
  if_present:
    description:
      - Succeed without a change on a machine that has no such device.
    type: bool
    default: false
  take_over:
    description:
      - Remove the ids of selected functions from other files and kernel arguments that bind them.
    type: bool
    default: false
  allow_unsafe_interrupts:
    description:
      - For machines without interrupt remapping, where guests may then attack the host.
    type: bool
    default: false
  rebuild:
    description:
      - Regenerate initramfs and menu on a root elsewhere too, and even if no file changes.
    type: bool
    default: false
  no_rebuild:
    description:
      - Do not regenerate initramfs and menu.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Assign all GPUs of the node to guests
  gpustack.nova.prepare:
    if_present: true
  register: prepared
  become: true

- name: Assign exactly these GPUs
  gpustack.nova.prepare:
    only:
      - "0000:84:00.0"
      - "0000:88:00.0"
  become: true

- name: Return all GPUs to the host
  gpustack.nova.prepare:
    state: absent
  become: true
"""

RETURN = r"""
reboot_required:
  description: Whether the machine has to be rebooted until the running kernel matches the record, also if nothing was changed; null if that is unknown.
  returned: success
  type: bool
plan_changed:
  description: Whether there was, or in check mode is, something to do.
  returned: success
  type: bool
entry:
  description: The number of the entry in the journal, which M(gpustack.nova.undo) accepts; null if nothing was changed.
  returned: if gpustack has printed a document
  type: int
document:
  description: The document of C(gpustack host prepare -o json), which docs/json.md of gpustack describes.
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
    "devices": ("--device", "list"),
    "vendors": ("--vendor", "list"),
    "only": ("--only", "list"),
    "remove": ("--remove", "list"),
    "allow": ("--allow", "list"),
    "nvswitch": ("--nvswitch", "str"),
    "driver": ("--driver", "str"),
    "if_present": ("--if-present", "bool"),
    "take_over": ("--take-over", "bool"),
    "allow_unsafe_interrupts": ("--allow-unsafe-interrupts", "bool"),
    "rebuild": ("--rebuild", "bool"),
    "no_rebuild": ("--no-rebuild", "bool"),
})
OWN = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "nvswitch": {"type": "str", "choices": ["host", "guest"]},
    "driver": {"type": "str", "choices": ["vfio-pci", "pci-stub"]},
}


def main():
    task = Gpustack(["host", "prepare"], FLAGS, OWN)
    for name in ("devices", "vendors", "only"):
        # Without a flag, gpustack selects every GPU.
        if task.params[name] == []:
            task.fail("error", "%s: the list is empty: omit the option to select every GPU, or use state: absent to select none" % name)
    shown = task.change(*(["--none"] if task.params["state"] == "absent" else []))
    task.succeed(reboot_required=task.field("reboot_required"), plan_changed=task.field("changed"), **shown)


if __name__ == "__main__":
    main()
