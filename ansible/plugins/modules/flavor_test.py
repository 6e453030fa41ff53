#!/usr/bin/python
# Copyright: the gpustack authors
# Apache License 2.0 (see LICENSE)

from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: flavor_test
short_description: Boot a server with a flavor and count the devices in the guest
version_added: 0.1.0
description:
  - Runs C(gpustack flavor test), which deletes the server afterwards. The module reports no change.
  - A verdict other than C(pass) is a failure with the reason C(verdict). In check mode no server is booted, and the verdict is null.
author:
  - the gpustack authors (@gpustack)
extends_documentation_fragment:
  - gpustack.nova.binary
  - gpustack.nova.root
  - gpustack.nova.cloud
options:
  flavor:
    description:
      - The flavor.
    type: str
    required: true
  image:
    description:
      - The image, a name or an id.
    type: str
    required: true
  host:
    description:
      - Boot on this host.
    type: str
  network:
    description:
      - Attach the server to this network, a name, an id, C(none) or C(auto).
    type: str
  availability_zone:
    description:
      - Boot in this availability zone.
    type: str
  wait:
    description:
      - How long to wait for the server to become active and the guest to report, such as C(10m0s).
    type: str
  conf:
    description:
      - Find aliases in these files, each as [ROLE=]FILE[,FILE].
    type: list
    elements: str
  count:
    description:
      - How many servers to test at the same time.
    type: int
  run:
    description:
      - Also run this command in the guest. Ansible logs it, so write no secret into it, see I(run_file).
    type: str
  run_file:
    description:
      - Also run this script of the host of the task in the guest.
    type: path
  run_wait:
    description:
      - How long the command may take, such as C(5m0s).
    type: str
  one_time_use_ok:
    description:
      - Also test devices that stay reserved afterwards.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Test the node
  gpustack.nova.flavor_test:
    flavor: gpu.k4200.2
    image: debian-12
    host: "{{ inventory_hostname }}"
    cloud: lab
  delegate_to: localhost
"""

RETURN = r"""
verdict:
  description: C(pass), C(fail) or C(unknown); null in check mode.
  returned: success
  type: str
entry:
  description: The number of the entry in the journal, which M(gpustack.nova.undo) accepts; null if nothing was changed.
  returned: if gpustack has printed a document
  type: int
document:
  description: The document of C(gpustack flavor test -o json), which docs/json.md of gpustack describes.
  returned: if gpustack has printed one
  type: dict
exit_status:
  description: The exit status of gpustack.
  returned: if gpustack was run
  type: int
reason:
  description: Why the module has failed, one of the words in the notes, or C(verdict).
  returned: failure
  type: str
"""

from ansible_collections.gpustack.nova.plugins.module_utils.gpustack import CLOUD, ROOT, Gpustack, joined

FLAGS = joined(ROOT, CLOUD, {
    "image": ("--image", "str"),
    "host": ("--host", "str"),
    "network": ("--network", "str"),
    "availability_zone": ("--az", "str"),
    "wait": ("--wait", "str"),
    "conf": ("--conf", "list"),
    "count": ("--count", "int"),
    "run": ("--run", "str"),
    "run_file": ("--run-file", "path"),
    "run_wait": ("--run-wait", "str"),
    "one_time_use_ok": ("--one-time-use-ok", "bool"),
})
OWN = {"flavor": {"type": "str", "required": True}, "image": {"type": "str", "required": True}}


def main():
    task = Gpustack(["flavor", "test"], FLAGS, OWN, argument="flavor")
    task.change()
    verdict = task.field("verdict")
    if verdict != "pass" and not task.check_mode:
        lines = [line for server in task.field("servers") for line in task.field("reasons", server) + task.field("hints", server)]
        task.fail("verdict", "\n".join(["the verdict on flavor %s is %s" % (task.params["flavor"], verdict)] + lines), changed=False, verdict=verdict)
    task.succeed(changed=False, verdict=verdict)


if __name__ == "__main__":
    main()
