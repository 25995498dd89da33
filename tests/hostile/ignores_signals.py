"""Ignores all signals that can be ignored, and sleeps."""

import signal
import time

from _bounded import bound, say

bound()
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, signal.SIG_IGN)
say("ready")
while True:
    time.sleep(1000)
