"""Runs a service of Nova or Glance in the foreground, as its own script would.

main.py MODULE ARGUMENT...
"""

import importlib
import os
import signal
import sys

import stacks  # for SIGUSR1

# The first process of a PID namespace has no default actions for signals. Services
# that end in an orderly way set their own.
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))

module, sys.argv = sys.argv[1], sys.argv[1:]
service = importlib.import_module(module)

if module.startswith("nova."):
    import nova.servicegroup.api
    import nova.virt

    # A service reports itself up when it has started, not five seconds later: tests
    # wait for it.
    nova.servicegroup.api.INITIAL_REPORTING_DELAY = 0
    # compute_driver is always looked for below nova.virt.
    nova.virt.__path__.append(os.path.join(os.path.dirname(__file__), "lab"))

service.main()
