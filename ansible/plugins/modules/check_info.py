#!/usr/bin/python
# Copyright: the gpustack authors
# Apache License 2.0 (see LICENSE)

from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: check_info
short_description: Check whether the machine is ready to assign GPUs to guests
version_added: 0.1.0
description:
  - Runs C(gpustack host check), which changes nothing.
  - A machine that is not ready is no failure of the module, see C(ready) and C(verdict).
author:
  - the gpustack authors (@gpustack)
extends_documentation_fragment:
  - gpustack.nova.binary
  - gpustack.nova.root
"""

EXAMPLES = r"""
- name: Wait until the node is ready
  gpustack.nova.check_info:
  register: node
  until: node is succeeded and node.ready
  retries: 20
  delay: 15
"""

RETURN = r"""
verdict:
  description: C(ready), C(not prepared), C(pending reboot), C(not ready), C(drifted) or C(unknown).
  returned: success
  type: str
ready:
  description: Whether the verdict is C(ready).
  returned: success
  type: bool
reboot_pending:
  description: Whether a reboot is required until the running kernel matches the record.
  returned: success
  type: bool
problems:
  description: The findings of checks that have failed, each with its remedy.
  returned: success
  type: list
  elements: dict
document:
  description: The document of C(gpustack host check -o json), which docs/json.md of gpustack describes.
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

FLAGS = joined(ROOT)


def main():
    task = Gpustack(["host", "check"], FLAGS)
    task.run(report="verdict")
    verdict = task.field("verdict")
    task.succeed(
        verdict=verdict,
        ready=verdict == "ready",
        reboot_pending=task.field("reboot_required") is True,
        problems=[f for f in task.field("findings") if task.field("status", f) == "fail"],
    )


if __name__ == "__main__":
    main()
