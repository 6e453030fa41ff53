# Copyright: the gpustack authors
# Apache License 2.0 (see LICENSE)

"""Runs the program gpustack and turns its document into the result of a module.

Each module is a table of options and the flags that pass them, and what it reads from the document.
gpustack plans, applies, records and judges: no module repeats any of that.
"""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import json
import os
import re

from ansible.module_utils.basic import AnsibleModule

# The folders besides those of PATH in which a program of an administrator may be.
FOLDERS = ["/usr/local/sbin", "/usr/sbin", "/sbin"]

# What a page of help prints in front of the description of an option.
HELP_FLAG = re.compile(r"^  (?:-\w, )?(--[a-z][a-z-]*)", re.MULTILINE)

# Each table has options of a module: the flag that passes the option, and the type of its value. "unless" is a bool whose flag is
# passed if it is false, "seconds" an int that is passed as a time. Those of the cloud are named as in openstack.cloud.
ROOT = {"root": ("--root", "path")}
CLOUD = {
    "cloud": ("--os-cloud", "str"),
    "region_name": ("--os-region-name", "str"),
    "ca_cert": ("--os-cacert", "path"),
    "validate_certs": ("--insecure", "unless"),
    "api_timeout": ("--timeout", "seconds"),
}


def joined(*tables):
    """Returns one table with the options of all tables."""
    options = {}
    for table in tables:
        options.update(table)
    return options


def argument_spec(flags, own):
    """Returns Ansible's description of the options that flags pass, and of the module's own ones."""
    spec = {"binary": {"type": "path", "default": "gpustack"}}
    for name, (flag, kind) in flags.items():
        if kind == "list":
            spec[name] = {"type": "list", "elements": "str"}
        elif kind == "bool":
            spec[name] = {"type": "bool", "default": False}
        else:
            spec[name] = {"type": {"unless": "bool", "seconds": "int"}.get(kind, kind)}
    if "root" in flags:
        spec["root"]["default"] = "/"
    if "token" in flags:
        spec["token"]["no_log"] = False  # a time, not a secret
    spec.update(own)
    return spec


class Gpustack(object):
    """One command of gpustack, as the task of a module.

    command is the list of its words, flags the table of the options that it passes, argument
    the name of the option that is passed without a flag, or None.
    """

    def __init__(self, command, flags, own=None, argument=None, **kwargs):
        self.command = command
        self.flags = flags
        self.argument = argument
        self.module = AnsibleModule(argument_spec=argument_spec(flags, own or {}), supports_check_mode=True, **kwargs)
        self.params = self.module.params
        self.check_mode = self.module.check_mode
        self.words = []
        self.document = None
        self.rc = None

    # How the program is run.

    def program(self):
        """Returns the path of the program, or fails with missing_binary."""
        name = self.params["binary"]
        path = name if os.sep in name else self.module.get_bin_path(name, opt_dirs=FOLDERS)
        if not path or not os.path.isfile(path) or not os.access(path, os.X_OK):
            where = "" if os.sep in name else " in PATH and %s" % ", ".join(FOLDERS)
            self.fail("missing_binary", "%s: no such program%s: install gpustack, or name its place with the option binary" % (name, where))
        return path

    def arguments(self):
        """Returns the flags of the options that are given."""
        passed = []
        for name in sorted(self.flags):
            flag, kind = self.flags[name]
            value = self.params[name]
            if value is None or (name == "root" and value == "/"):
                continue
            if kind == "bool":
                passed += [flag] if value else []
            elif kind == "unless":
                passed += [] if value else [flag]
            elif kind == "seconds":
                passed.append("%s=%ds" % (flag, value))
            elif kind == "list":
                passed += ["%s=%s" % (flag, element) for element in value]
            else:
                passed.append("%s=%s" % (flag, value))
        return passed

    def execute(self, words):
        """Runs the program and returns its exit status, what it printed, and its messages."""
        program = self.program()
        try:
            return self.module.run_command([program] + words, expand_user_and_vars=False, handle_exceptions=False)
        except (OSError, IOError) as e:
            self.fail("missing_binary", "%s: cannot be run on this machine: %s" % (program, e))

    def run(self, *more, **kwargs):
        """Runs the command, checks its document and keeps it. Exit statuses other than 0 and 2,
        refusals and errors fail.

        more are flags that no option passes. With report=FIELD, a document that has the field is an
        answer whatever the exit status is, and its errors are warnings.
        """
        # First, so that the program prints a document of a flag that it does not know.
        self.words = self.command + ["-o", "json"] + self.arguments() + list(more)
        named = ["--", self.params[self.argument]] if self.argument else []
        self.rc, out, err = self.execute(self.words + named)
        self.document = self.parse(out)
        if self.document is None:
            self.check_flags()
            self.fail("interrupted" if self.rc == 130 else "no_document", "%s printed no document (exit status %d): %s" % (self.name(), self.rc, (err or out).strip()))
        if self.document.get("schema") is None:
            self.missing("schema")
        if self.document["schema"] != 1:
            self.fail("unknown_schema", "%s printed a document with schema %s; this collection reads schema 1" % (self.name(), self.document["schema"]))
        if kwargs.get("report") in self.document:
            for line in self.failures():
                self.module.warn(line)
        else:
            self.check_failed()
        for warning in self.document.get("warnings") or []:
            self.module.warn(warning)

    def parse(self, text):
        """Returns the document in text, or None."""
        try:
            document = json.loads(text)
        except ValueError:
            return None
        return document if isinstance(document, dict) else None

    def name(self):
        return " ".join(["gpustack"] + self.command)

    def check_flags(self):
        """Fails with unknown_flag if the program's own help lacks the command or one of its flags. Only
        a run that has failed before it had a report is looked at.
        """
        if self.rc != 1 or "changed" in (self.document or {}):
            return
        rc, out, err = self.execute(["help"] + self.command)
        if rc != 0:
            self.fail("unknown_flag", "%s: this gpustack does not have the command: install a later one" % self.name())
        known = HELP_FLAG.findall(out)
        unknown = sorted(set(w.split("=", 1)[0] for w in self.words if w.startswith("--")) - set(known))
        if known and unknown:
            self.fail("unknown_flag", "%s: this gpustack does not have the option %s: install a later one" % (self.name(), ", ".join(unknown)))

    def failures(self):
        """Returns the texts of refusals and errors, each with its hint in a line of its own."""
        texts = []
        for refusal in self.document.get("refusals") or []:
            address = refusal.get("address")
            texts.append((refusal, (address + ": " if address else "") + str(refusal.get("reason"))))
        texts += [(error, str(error.get("message"))) for error in self.document.get("errors") or []]
        return [text + ("\n" + entry["hint"] if entry.get("hint") else "") for entry, text in texts]

    def check_failed(self):
        """Fails if the document has refusals or errors, or if the exit status is one of failures."""
        lines = self.failures()
        if not lines and self.rc in (0, 2):
            return
        if not self.document.get("refusals"):
            self.check_flags()
        reason = "interrupted" if self.rc == 130 else "refused" if self.document.get("refusals") else "error"
        self.fail(reason, "\n".join(lines or ["%s ended with exit status %d" % (self.name(), self.rc)]))

    # What is read from the document.

    def field(self, name, of=None):
        """Returns a field of the document, or of an object in it; fails with missing_field without it."""
        value = self.document if of is None else of
        if not isinstance(value, dict) or name not in value:
            self.missing(name)
        return value[name]

    def missing(self, name):
        self.fail("missing_field", "the document of %s has no field %s: gpustack and this collection do not match" % (self.name(), name))

    def unexpected(self):
        """Fails for an exit status that the command does not have with these options."""
        self.fail("error", "%s ended with exit status %d" % (self.name(), self.rc))

    # How a module ends.

    def result(self, **own):
        result = {"changed": False}
        if self.document is not None:
            result.update(changed=self.document.get("applied") is True, document=self.document)
            if "entry" in self.document:
                result["entry"] = self.document["entry"]
        if self.rc is not None:
            # Not rc: with an rc other than 0 the task would have failed for Ansible, and 2 is no failure.
            result["exit_status"] = self.rc
        result.update(own)
        return result

    def fail(self, reason, msg, **own):
        """Ends the module with a failure."""
        self.module.fail_json(msg=msg, reason=reason, **self.result(**own))

    def succeed(self, **own):
        """Ends the module."""
        self.module.exit_json(**self.result(**own))

    def change(self, *more):
        """Plans a change in check mode, else makes it without a question. Returns what Ansible
        shows of it: whether there is a change, and its diff.
        """
        self.run("--dry-run" if self.check_mode else "--yes", *more)
        shown = {"changed": self.field("changed" if self.check_mode else "applied")}
        if self.module._diff:
            shown["diff"] = self.diffs()
        return shown

    def diffs(self):
        """Returns the changes of the document in the forms that Ansible shows."""
        service = self.document.get("service")
        if isinstance(service, dict) and self.document.get("changes"):
            return [service_diff(service)]
        shown = [change_text(c) for c in self.document.get("changes") or []]
        for part in ("drivers", "repairs", "requests"):  # of undo
            shown += [change_text(c) for c in self.document.get(part) or []]
        return [{"prepared": text} for text in shown]


def service_diff(service):
    """Returns the change of a compute service."""
    header = "compute service of %s" % service.get("nova_host")
    return {"before_header": header, "after_header": header, "before": state_text(service.get("old_state")), "after": state_text(service.get("new_state"))}


def state_text(state):
    lines = ["%s: %s" % (key, json.dumps(state[key])) for key in sorted(state or {})]
    return "".join(line + "\n" for line in lines)


def change_text(change):
    """Returns a change of a file as a unified diff, any other as it is in the document."""
    if "diff" in change:
        return change["diff"]
    return json.dumps(change, indent=2, sort_keys=True) + "\n"
