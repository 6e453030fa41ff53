"""Runs commands of a project's manage program one after the other.

manage.py MODULE CONFIG-FILE COMMANDS, these as a JSON list of lists of arguments.

Each is run in a process of its own, as it would be by hand, but the modules, which
take most of the time, are loaded once.
"""

import importlib
import json
import os
import sys

module, conf, commands = sys.argv[1:]
program = importlib.import_module(module)

for command in json.loads(commands):
    print("run", command[0], flush=True)
    child = os.fork()
    if child == 0:
        sys.argv = [module, "--config-file", conf] + command
        sys.exit(program.main())
    _, status = os.waitpid(child, 0)
    if status != 0:
        sys.exit(f"{command[0]}: exit status {os.waitstatus_to_exitcode(status)}")
