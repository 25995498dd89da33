"""Reads nothing, neither stdin nor HOSTILE_FD: who writes to it without a bound waits for ever."""

import signal

from _bounded import bound, say

bound()
say("ready")
while True:
    signal.pause()
