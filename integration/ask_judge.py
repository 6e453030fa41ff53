"""Asks templates/nova/judge.py about many requests in one process: a question on each line of
input, the answer on a line of output. The answer to {} is Nova's version."""
import importlib.metadata
import json
import os
import sys

program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "templates", "nova", "judge.py")
with open(program) as f:
    source = f.read()
begin, end = source.rsplit("\nprint(", 1)
exec(compile(begin.replace("signal.alarm(30)", ""), program, "exec"))

for line in sys.stdin:
    question = json.loads(line)
    if not question:
        print(json.dumps(importlib.metadata.version("nova")), flush=True)
        continue
    for section in ("filter_scheduler", "scheduler", "workarounds", "pci"):
        for option in list(getattr(CONF, section)):
            CONF.clear_override(option, section)
    if hasattr(request, "get_alias_from_config"):
        request.get_alias_from_config.cache_clear()
    print(json.dumps(answer(question)), flush=True)
