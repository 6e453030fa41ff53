"""Reads files as oslo.config does: a file's bytes as base64 on each line of input,
its options, or the line of the first fault, as JSON on a line of output."""
import base64
import json
import os
import sys
import tempfile

from oslo_config import cfg, iniparser


def read(name):
    sections = {}
    try:
        cfg.ConfigParser(name, sections).parse()
    except iniparser.ParseError as e:
        return {"error": str(e), "line": e.lineno}
    except UnicodeDecodeError as e:
        return {"error": str(e), "line": 0}
    return {"sections": sections}


with tempfile.TemporaryDirectory() as folder:
    name = os.path.join(folder, "nova.conf")
    for line in sys.stdin:
        with open(name, "wb") as f:
            f.write(base64.b64decode(line))
        print(json.dumps(read(name)), flush=True)
