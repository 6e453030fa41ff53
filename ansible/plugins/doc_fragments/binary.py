# Copyright: the gpustack authors
# Apache License 2.0 (see LICENSE)

from __future__ import absolute_import, division, print_function

__metaclass__ = type


class ModuleDocFragment(object):
    DOCUMENTATION = r"""
options:
  binary:
    description:
      - The program gpustack on the host of the task, a name or a path.
      - A name is searched for in C(PATH), C(/usr/local/sbin), C(/usr/sbin) and C(/sbin).
    type: path
    default: gpustack
attributes:
  diff_mode:
    description: Returns what changes, or would change in check mode.
    support: none
  check_mode:
    description: Changes nothing in check mode, and returns what would change.
    support: full
notes:
  - The module fails with C(reason), which is C(missing_binary), C(unknown_flag) (the installed gpustack is older than this
    collection), C(no_document), C(missing_field), C(unknown_schema), C(refused), C(error) or C(interrupted).
requirements:
  - gpustack on the host of the task
"""
