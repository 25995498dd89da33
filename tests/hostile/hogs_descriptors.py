"""Opens descriptors until refused (at most 50 000) and keeps them."""

import os
import signal

from _bounded import bound, say

bound()
held = 0
try:
    while held < 50_000:
        os.open(os.devnull, os.O_RDONLY)
        held += 1
except OSError as error:
    say("refused", error.errno, "within its limit" if held < 1_024 else "far too late")
while True:
    signal.pause()
