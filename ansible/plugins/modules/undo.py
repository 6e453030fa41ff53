#!/usr/bin/python
# Copyright: the gpustack authors
# Apache License 2.0 (see LICENSE)

from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: undo
short_description: Undo a change made by gpustack
version_added: 0.1.0
description:
  - Runs C(gpustack undo) for an entry of the journal, as root for a change of the machine, also in check mode.
  - An entry that is already undone is no change.
author:
  - the gpustack authors (@gpustack)
extends_documentation_fragment:
  - gpustack.nova.binary
  - gpustack.nova.root
  - gpustack.nova.cloud
attributes:
  diff_mode:
    support: full
options:
  entry:
    description:
      - The number of the entry, which the other modules return and C(gpustack history) lists.
    type: str
    required: true
  allow:
    description:
      - Let the functions at these addresses leave the host.
    type: list
    elements: str
  live:
    description:
      - Of host release, also unbind drivers whose unbinding may hang.
    type: bool
    default: false
  conf:
    description:
      - Of repair-migration, read nova.conf from this file below the root.
    type: str
  guests:
    description:
      - Of repair-migration, reports of C(gpustack host guests), which prove that no guest uses a device that undo frees.
    type: list
    elements: str
  host_is_off:
    description:
      - Of repair-migration, compute hosts on which neither nova-compute nor a guest runs.
    type: list
    elements: str
"""

EXAMPLES = r"""
- name: Undo the preparation of the node
  gpustack.nova.undo:
    entry: "{{ prepared.entry }}"
  become: true
"""

RETURN = r"""
reboot_required:
  description: Whether the machine has to be rebooted; null if that is unknown, and for an entry that is already undone.
  returned: success
  type: bool
entry:
  description: The number of the entry in the journal, which M(gpustack.nova.undo) accepts; null if nothing was changed.
  returned: if gpustack has printed a document
  type: int
document:
  description: The document of C(gpustack undo -o json), which docs/json.md of gpustack describes.
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

import re

from ansible_collections.gpustack.nova.plugins.module_utils.gpustack import CLOUD, ROOT, Gpustack, joined

FLAGS = joined(ROOT, CLOUD, {"allow": ("--allow", "list"), "live": ("--live", "bool"), "conf": ("--conf", "str"),
                              "guests": ("--guests", "list"), "host_is_off": ("--host-is-off", "list")})
OWN = {"entry": {"type": "str", "required": True}}


class Undo(Gpustack):
    def check_failed(self):
        if self.rc == 1 and not self.document.get("refusals") and self.undone():
            self.succeed(changed=False, entry=int(self.params["entry"]), reboot_required=None)
        super(Undo, self).check_failed()

    def undone(self):
        """Returns whether the journal says that the entry is undone."""
        root = [] if self.params["root"] == "/" else ["--root=" + self.params["root"]]
        rc, out, err = self.execute(["history", "-o", "json"] + root + ["--", self.params["entry"]])
        entries = (self.parse(out) or {}).get("entries") or [] if rc == 0 else []
        return [e.get("status") for e in entries] == ["undone"]


def main():
    task = Undo(["undo"], FLAGS, OWN, argument="entry")
    if not re.match("[0-9]+$", task.params["entry"]):
        # Without an entry, gpustack undoes the latest one.
        task.fail("error", "entry: not a number of the journal: %r" % task.params["entry"])
    shown = task.change()
    task.succeed(reboot_required=task.field("reboot_required"), **shown)


if __name__ == "__main__":
    main()
