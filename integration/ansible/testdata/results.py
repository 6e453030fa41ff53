# Writes the result of each task as one line of JSON to the file RESULTS.
import json
import os

from ansible.plugins.callback import CallbackBase


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "results"
    CALLBACK_NEEDS_ENABLED = True

    def note(self, result, **more):
        with open(os.environ["RESULTS"], "a") as f:
            f.write(json.dumps(dict(more, task=result._task.get_name(), host=result._host.get_name(), result=result._result)) + "\n")

    def v2_runner_on_ok(self, result):
        self.note(result, failed=False)

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self.note(result, failed=True)

    def v2_runner_on_unreachable(self, result):
        self.note(result, failed=True)
