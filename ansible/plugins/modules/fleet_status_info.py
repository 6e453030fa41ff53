#!/usr/bin/python
# Copyright: the gpustack authors
# Apache License 2.0 (see LICENSE)

from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: fleet_status_info
short_description: List the compute services that gpustack has disabled
version_added: 0.1.0
description:
  - Runs C(gpustack nova drain --list), which changes nothing, with the credentials of an administrator of the cloud.
author:
  - the gpustack authors (@gpustack)
extends_documentation_fragment:
  - gpustack.nova.binary
  - gpustack.nova.cloud
"""

EXAMPLES = r"""
- name: List the drained services
  gpustack.nova.fleet_status_info:
    cloud: lab
  register: fleet
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
services:
  description: The services that gpustack has disabled, each with C(nova_host), C(up), C(since), C(drain_id) and C(step).
  returned: success
  type: list
  elements: dict
unknown_hosts:
  description: Hosts whose cell does not answer.
  returned: success
  type: list
  elements: str
document:
  description: The document of C(gpustack nova drain --list -o json), which docs/json.md of gpustack describes.
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

from ansible_collections.gpustack.nova.plugins.module_utils.gpustack import CLOUD, Gpustack, joined

FLAGS = joined(CLOUD)


def main():
    task = Gpustack(["nova", "drain"], FLAGS)
    task.run("--list")
    if task.rc == 2:
        task.unexpected()
    task.succeed(services=task.field("drained"), unknown_hosts=task.field("unknown_hosts"))


if __name__ == "__main__":
    main()
