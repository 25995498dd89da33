"""A client: HOSTILE_COUNT connections at once, each a byte every 50 ms, until all are cut or 20 s have passed."""

import contextlib
import os
import socket
import time

from _bounded import bound, say

bound()
lines, cut, until = [], 0, time.monotonic() + 20
for _ in range(int(os.environ["HOSTILE_COUNT"])):
    line = socket.socket(socket.AF_UNIX)
    try:
        line.connect(os.environ["HOSTILE_SOCKET"])
        lines.append(line)
    except OSError:
        cut += 1
say("ready")
while lines and time.monotonic() < until:
    for line in list(lines):
        with contextlib.suppress(BlockingIOError):
            try:
                line.send(b"{", socket.MSG_DONTWAIT)
                if line.recv(4096, socket.MSG_DONTWAIT):
                    continue
            except (BrokenPipeError, ConnectionError):
                pass
            lines.remove(line)
            cut += 1
    time.sleep(0.05)
say("cut", cut, "open", len(lines))
