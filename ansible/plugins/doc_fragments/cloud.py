# Copyright: the gpustack authors
# Apache License 2.0 (see LICENSE)

from __future__ import absolute_import, division, print_function

__metaclass__ = type


class ModuleDocFragment(object):
    DOCUMENTATION = r"""
options:
  os_cloud:
    description:
      - The cloud in clouds.yaml. Without it the variables C(OS_CLOUD), or C(OS_AUTH_URL) and the others, count.
    type: str
  os_region_name:
    description:
      - The region of the cloud.
    type: str
  os_cacert:
    description:
      - A file with the certificates to trust.
    type: path
  insecure:
    description:
      - Skip TLS certificate verification.
    type: bool
    default: false
  timeout:
    description:
      - How long to wait for each answer, such as C(1m0s).
    type: str
notes:
  - Passwords and tokens are not options, so that they are in no result and in no log. Write them into clouds.yaml or secure.yaml
    on the host of the task. Ansible prints what C(environment) sets for a task with C(-vvv).
"""
