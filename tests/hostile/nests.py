"""Says one well-formed frame on HOSTILE_FD: a million nested arrays, as msgpack or (HOSTILE_HOW=json) as JSON."""

import os
import time

from _bounded import bound

bound()
body = b"[" * 500_000 + b"]" * 500_000 if os.environ["HOSTILE_HOW"] == "json" else b"\x91" * 1_000_000 + b"\xc0"
rest = memoryview(len(body).to_bytes(4, "big") + body)
try:
    while rest:
        rest = rest[os.write(int(os.environ["HOSTILE_FD"]), rest) :]
except OSError:
    pass
while True:
    time.sleep(1000)
