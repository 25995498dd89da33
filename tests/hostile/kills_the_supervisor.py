"""Sends HOSTILE_TARGET_PID, and its own pid 1, what HOSTILE_SIGNALS names (else what stops, and what kills)."""

import os
import signal

from _bounded import bound, say

bound()
assert os.getpid() != 1
for name in os.environ.get("HOSTILE_SIGNALS", "SIGSTOP SIGKILL").split():
    for whose, target in (("supervisor", int(os.environ["HOSTILE_TARGET_PID"])), ("pid1", 1)):
        if whose == "pid1" and os.environ.get("HOSTILE_NO_NAMESPACE"):
            continue  # it would be the machine's
        try:
            os.kill(target, getattr(signal, name))
            say(f"{name}-to-{whose}", "obtained")
        except OSError as error:
            say(f"{name}-to-{whose}", "refused", error.errno)
