#!/usr/bin/python
# Copyright: the gpustack authors
# Apache License 2.0 (see LICENSE)

from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: guests_info
short_description: Show which guests use which PCI functions
version_added: 0.1.0
description:
  - Runs C(gpustack host guests), which changes nothing, as root.
  - A report that is not complete proves no absence of guests. It is no failure of the module, see C(complete).
author:
  - the gpustack authors (@gpustack)
extends_documentation_fragment:
  - gpustack.nova.binary
  - gpustack.nova.root
options:
  conf:
    description:
      - Read Nova's host from these files below the root, which are what nova-compute reads.
    type: list
    elements: str
  token:
    description:
      - Record that the report was made after C(gpustack repair-migration) printed this token. It is a time, not a secret.
    type: str
"""

EXAMPLES = r"""
- name: Read the guests of the node
  gpustack.nova.guests_info:
  register: report
  become: true

- name: Stop if a guest may have a device
  ansible.builtin.assert:
    that: report.empty
    fail_msg: "guests: {{ report.guests }}, complete: {{ report.complete }}"
"""

RETURN = r"""
complete:
  description: Whether everything could be read.
  returned: success
  type: bool
empty:
  description: Whether the report is complete and has no guest, no domain and no process that uses a device.
  returned: success
  type: bool
guests:
  description: UUIDs, or else names or processes, of guests that have devices, running or not.
  returned: success
  type: list
  elements: str
running:
  description: The same of all guests that run, with devices or without.
  returned: success
  type: list
  elements: str
document:
  description: The document of C(gpustack host guests -o json), which docs/json.md of gpustack describes.
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

FLAGS = joined(ROOT, {"conf": ("--conf", "list"), "token": ("--token", "str")})


def name_of(guest):
    """Returns the UUID of a guest, else its name, else its process."""
    return guest.get("uuid") or guest.get("name") or "process %s (%s)" % (guest.get("pid"), guest.get("command"))


def main():
    task = Gpustack(["host", "guests"], FLAGS)
    task.run()
    complete = task.field("complete")
    holders, guests, domains = [task.field(name) or [] for name in ("holders", "guests", "domains")]
    running = holders + guests + [d for d in domains if task.field("running", d)]
    using = holders + [g for g in guests if task.field("asked", g)] + [d for d in domains if task.field("functions", d)]
    task.succeed(
        complete=complete,
        empty=complete and not holders and not guests and not domains,
        guests=sorted(set(name_of(g) for g in using)),
        running=sorted(set(name_of(g) for g in running)),
    )


if __name__ == "__main__":
    main()
