#!/usr/bin/python
# Copyright: the gpustack authors
# Apache License 2.0 (see LICENSE)

from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: enable
short_description: Enable a compute service that was drained
version_added: 0.1.0
description:
  - Runs C(gpustack nova enable), with the credentials of an administrator of the cloud.
  - A service that was disabled by other means than M(gpustack.nova.drain) is refused. An enabled one is no change.
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
"""

EXAMPLES = r"""
- name: Return the node to scheduling
  gpustack.nova.enable:
    host: "{{ inventory_hostname }}"
    cloud: lab
  delegate_to: localhost
"""

RETURN = r"""
entry:
  description: The number of the entry in the journal, which M(gpustack.nova.undo) accepts; null if nothing was changed.
  returned: if gpustack has printed a document
  type: int
document:
  description: The document of C(gpustack nova enable -o json), which docs/json.md of gpustack describes.
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
OWN = {"host": {"type": "str", "required": True}}


def main():
    task = Gpustack(["nova", "enable"], FLAGS, OWN, argument="host")
    task.succeed(**task.change())


if __name__ == "__main__":
    main()
