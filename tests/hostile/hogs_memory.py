"""Touches 16 MiB at a time, up to 96, and keeps them."""

import os
import signal

from _bounded import bound, say

bound()
held = []
try:
    for _ in range(6):
        held.append(bytearray(b"x") * (16 << 20))
except MemoryError:
    say("refused")
    os._exit(3)
say("held", len(held))
while True:
    signal.pause()
