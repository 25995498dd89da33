"""Exits 0 and leaves a daemon: forked twice, a session of its own, no descriptor of ours."""

import os
import signal

from _bounded import bound, fork, say

bound()
if fork():
    os.wait()
    say("done")
    os._exit(0)
os.setsid()
if fork():
    os._exit(0)
os.chdir("/")
os.closerange(0, 256)
while True:
    signal.pause()
