"""Stops a child and itself: a SIGTERM would wait for ever."""

import os
import signal

from _bounded import bound, fork, say

bound()
say("ready")
fork()
os.kill(os.getpid(), signal.SIGSTOP)
while True:
    signal.pause()
