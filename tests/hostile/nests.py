"""Says one frame on HOSTILE_FD that nests a million arrays: msgpack, or by HOSTILE_HOW JSON or an answer's content."""

import os
import time

from _bounded import bound

bound()
arrays = b"\x91" * 1_000_000 + b"\xc0"
body = {
    "msgpack": arrays,
    "json": b"[" * 500_000 + b"]" * 500_000,
    "answer": b"\x84\xa2op\xa5ended\xa5nonce\x01\xa3how\xa2ok\xa7content" + arrays,
}[os.environ["HOSTILE_HOW"]]
rest = memoryview(len(body).to_bytes(4, "big") + body)
try:
    while rest:
        rest = rest[os.write(int(os.environ["HOSTILE_FD"]), rest) :]
except OSError:
    pass
while True:
    time.sleep(1000)
