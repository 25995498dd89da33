"""Says half of a frame on HOSTILE_FD, at once or (HOSTILE_HOW=drops) byte by byte, and then nothing more."""

import os
import time

from _bounded import bound

bound()
frame = (2_000).to_bytes(4, "big") + b"\x81" * 1_000
pace = 0.05 if os.environ["HOSTILE_HOW"] == "drops" else 0
for number in range(len(frame)):
    os.write(int(os.environ["HOSTILE_FD"]), frame[number : number + 1])
    time.sleep(pace)
while True:
    time.sleep(1000)
