"""Announces a frame of almost 4 GiB on HOSTILE_FD (HOSTILE_HOW=little: least byte first), and sends 32 MiB of it."""

import os
import time

from _bounded import bound

bound()
link = int(os.environ["HOSTILE_FD"])
try:
    os.write(link, (0xFFFF_FF00).to_bytes(4, os.environ["HOSTILE_HOW"]))
    for _ in range(512):
        os.write(link, bytes(1 << 16))
except OSError:
    pass
while True:
    time.sleep(1000)
