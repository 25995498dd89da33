"""Ignores all that can be ignored, blocks the rest, and sleeps in C with the interpreter's lock held."""

import ctypes
import signal

from _bounded import bound, say

bound()
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
say("ready")
ctypes.PyDLL(None).sleep(1000)
