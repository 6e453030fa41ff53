"""Runs lists of nova-manage commands at the same time, each list in turn.

manage.py CONFIG-FILE LISTS, these as a JSON list of lists of commands, and a command
as a list of arguments.

Each command is run in a process of its own, as it would be by hand, but the modules,
which take most of the time, are loaded once.
"""

import json
import os
import sys

from nova.cmd import manage


def child(work, *arguments):
    """Starts a process that does the work and ends with what it returns."""
    pid = os.fork()
    if pid == 0:
        sys.exit(work(*arguments))
    return pid


def wait(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def run(command):
    sys.argv = ["nova-manage", "--config-file", conf] + command
    return manage.main()


def in_turn(commands):
    for command in commands:
        status = wait(child(run, command))
        if status != 0:
            return f"nova-manage {' '.join(command)}: exit status {status}"


conf, lists = sys.argv[1], json.loads(sys.argv[2])
pids = [child(in_turn, commands) for commands in lists]
if any([wait(pid) for pid in pids]):
    sys.exit(1)
