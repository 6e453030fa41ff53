# Prints what each module of the collection passes to AnsibleModule, its table of flags and the
# tasks of its EXAMPLES, as JSON. Each file must be valid in Python 3.6.
import ast
import glob
import importlib
import json
import os
import sys

import yaml

import ansible.module_utils.basic


class Called(Exception):
    pass


def record(**kwargs):
    raise Called(kwargs)


ansible.module_utils.basic.AnsibleModule = record
collections = sys.argv[1]
sys.path.insert(0, collections)
base = os.path.join(collections, "ansible_collections/gpustack/nova/plugins")
for path in glob.glob(base + "/*/*.py"):
    with open(path) as f:
        ast.parse(f.read(), path, feature_version=(3, 6))
utils = importlib.import_module("ansible_collections.gpustack.nova.plugins.module_utils.gpustack")
modules = {}
init = utils.Gpustack.__init__


def note(self, command, flags, own=None, argument=None, **kwargs):
    modules[name] = {"command": command, "flags": flags, "argument": argument}
    init(self, command, flags, own, argument, **kwargs)


utils.Gpustack.__init__ = note
for path in sorted(glob.glob(base + "/modules/*.py")):
    name = os.path.basename(path)[:-3]
    module = importlib.import_module("ansible_collections.gpustack.nova.plugins.modules." + name)
    try:
        module.main()
    except Called as e:
        modules[name].update(e.args[0])
    modules[name]["examples"] = yaml.safe_load(module.EXAMPLES)
json.dump(modules, sys.stdout)
