"""Signals HOSTILE_TARGET_PID, and its own pid 1, with what stops, ends and kills."""

import os
import signal

from _bounded import bound, say

bound()
assert os.getpid() != 1
for name in ("SIGSTOP", "SIGKILL"):
    for target in (int(os.environ["HOSTILE_TARGET_PID"]), 1):
        try:
            os.kill(target, getattr(signal, name))
            say(name, "went to", "pid 1" if target == 1 else "the supervisor")
        except OSError:
            say(name, "refused")
