"""A client: HOSTILE_COUNT connections that say random bytes, half of them after a length; what came of each."""

import os
import random
import socket
from collections import Counter

from _bounded import bound, say

bound()
chance, ends = random.Random(int(os.environ.get("HOSTILE_SEED", "1"))), Counter()
for _ in range(int(os.environ["HOSTILE_COUNT"])):
    words = chance.randbytes(chance.randint(1, 4096))
    if chance.random() < 0.5:
        words = chance.choice([0, 1, len(words), 2**31, 2**32 - 1]).to_bytes(4, "big") + words
    elif chance.random() < 0.5:
        words = b"{" + words + b"\n"
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(10)
        try:
            line.connect(os.environ["HOSTILE_SOCKET"])
            line.sendall(words)
            line.shutdown(socket.SHUT_WR)
            ends["reply" if line.recv(4096) else "close"] += 1
        except TimeoutError:
            ends["silence"] += 1
        except OSError:
            ends["close"] += 1
say(*(f"{end} {ends[end]}" for end in ("reply", "close", "silence")))
