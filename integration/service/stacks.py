"""Prints what a program is doing when it gets SIGUSR1: the stacks of its threads and greenlets."""

import gc
import signal
import sys


def show(*_):
    import traceback  # not before eventlet patches what it needs

    for number, frame in sys._current_frames().items():
        print(f"thread {number}:", file=sys.stderr)
        traceback.print_stack(frame, limit=-12)
    if "greenlet" in sys.modules:
        for found in gc.get_objects():
            if isinstance(found, sys.modules["greenlet"].greenlet) and found.gr_frame:
                print("greenlet:", file=sys.stderr)
                traceback.print_stack(found.gr_frame, limit=-12)
    sys.stderr.flush()


signal.signal(signal.SIGUSR1, show)
