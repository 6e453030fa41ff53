"""Reads files as oslo.config does: a file's bytes as base64 on each line of input,
its options, or the line of the first fault, as JSON on a line of output. A line
"find", a root, a home and the name of a program, with tabs between them, asks for the
files below the root that the program finds by itself. A line "values" and a list of texts
as JSON asks for the values of some options that the texts give as files, by the names of
Nova's releases from Ocata to Wallaby, or for the error."""
import base64
import glob
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


def find(root, home, program):
    os.environ["HOME"] = home
    exists = os.path.exists
    os.path.exists = lambda name: exists(root + name)
    try:
        files = cfg.find_config_files("nova", program)
        folders = cfg.find_config_dirs("nova", program)
    finally:
        os.path.exists = exists
    for folder in folders:
        files += [name[len(root):] for name in sorted(glob.glob(root + folder + "/*.conf"))]
    return {"files": files}


def values(texts, folder):
    args = []
    for i, text in enumerate(texts):
        args += ["--config-file", os.path.join(folder, "%d.conf" % i)]
        with open(args[-1], "w") as f:
            f.write(text)
    conf = cfg.ConfigOpts()
    conf.register_opts([
        cfg.ListOpt("enabled_filters", deprecated_name="scheduler_default_filters", deprecated_group="DEFAULT"),
        cfg.MultiStrOpt("available_filters", default=[], deprecated_name="scheduler_available_filters", deprecated_group="DEFAULT"),
    ], group="filter_scheduler")
    conf.register_opt(cfg.MultiStrOpt("alias", default=[], deprecated_name="pci_alias", deprecated_group="DEFAULT"), group="pci")
    conf(args, project="nova", default_config_files=[], default_config_dirs=[])
    try:
        return {"enabled": conf.filter_scheduler.enabled_filters, "available": conf.filter_scheduler.available_filters, "alias": conf.pci.alias}
    except cfg.Error as e:
        return {"error": str(e)}


with tempfile.TemporaryDirectory() as folder:
    name = os.path.join(folder, "nova.conf")
    for line in sys.stdin:
        if line.startswith("find\t"):
            print(json.dumps(find(*line.rstrip("\n").split("\t")[1:])), flush=True)
            continue
        if line.startswith("values\t"):
            print(json.dumps(values(json.loads(line.split("\t", 1)[1]), folder)), flush=True)
            continue
        with open(name, "wb") as f:
            f.write(base64.b64decode(line))
        print(json.dumps(read(name)), flush=True)
