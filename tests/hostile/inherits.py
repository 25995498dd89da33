"""Says what it was born with: descriptors, stdin, session, signal mask, umask, environment."""

import os
import signal

from _bounded import bound, say

bound()
found = []
for name in os.listdir("/proc/self/fd"):
    try:
        if int(name) > 2:
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    except OSError:
        continue  # what the listing itself had open
say("descriptors", found or "clean")
say("stdin", os.readlink("/proc/self/fd/0"))
try:
    os.close(os.open("/dev/tty", os.O_RDWR))
    say("terminal obtained")
except OSError:
    say("terminal none")
say("session", "own" if os.getsid(0) == os.getpid() else "shared")
say("blocked", sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, []))))
ignored = [int(number) for number in signal.valid_signals() if signal.getsignal(number) == signal.SIG_IGN]
say("ignored", sorted(ignored))
with open("/proc/self/oom_score_adj") as score:
    say("oom", score.read().strip())
say("environment", *sorted(os.environ))
