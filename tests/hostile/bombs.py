"""Forks sleepers in sessions of their own, sixty at a time, and replaces who dies, a thousand in all."""

import os
import signal
import time

from _bounded import bound, fork, say

bound()
say("ready")
made, living = 0, set()
while True:
    while len(living) < 60 and made < 1_000:
        try:
            child = fork()
        except OSError as error:
            say("refused", error.errno)
            break
        if child == 0:
            os.setsid()
            signal.pause()
        living.add(child)
        made += 1
    ended, _ = os.waitpid(-1, os.WNOHANG)
    living.discard(ended)
    time.sleep(0 if ended else 0.005)
