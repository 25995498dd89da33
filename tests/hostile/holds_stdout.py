"""Exits 0 while a grandchild in another session holds stdout open: its end never comes."""

import os
import signal

from _bounded import bound, fork, say

bound()
ready, told = os.pipe()
if fork() == 0:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.write(told, b"x")
    while True:
        signal.pause()
os.read(ready, 1)
say("done")
os._exit(0)
