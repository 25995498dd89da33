"""Blocks all signals and sleeps inside C with the interpreter's lock held: no code in this process runs again."""

import ctypes
import signal

from _bounded import bound, say

bound()
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
say("ready")
ctypes.PyDLL(None).sleep(1000)
