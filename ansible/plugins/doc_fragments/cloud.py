# Copyright: the gpustack authors
# Apache License 2.0 (see LICENSE)

from __future__ import absolute_import, division, print_function

__metaclass__ = type


class ModuleDocFragment(object):
    DOCUMENTATION = r"""
options:
  cloud:
    description:
      - The cloud in clouds.yaml. Without it the variables C(OS_CLOUD), or C(OS_AUTH_URL) and the others, count.
    type: str
  region_name:
    description:
      - The region of the cloud.
    type: str
  ca_cert:
    description:
      - A file with the certificates to trust.
    type: path
  validate_certs:
    description:
      - Whether to verify TLS certificates. By default they are verified.
    type: bool
  api_timeout:
    description:
      - How many seconds to wait for each answer.
    type: int
notes:
  - Passwords and tokens are not options, so that they are in no result and in no log. Write them into clouds.yaml or secure.yaml
    on the host of the task. Ansible prints what C(environment) sets for a task with C(-vvv).
"""
