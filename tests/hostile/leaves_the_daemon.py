"""A client: HOSTILE_COUNT times it says HOSTILE_WORDS or a part of them and is gone, now and then by half."""

import os
import random
import socket
import time

from _bounded import bound, say

bound()
chance, words = random.Random(int(os.environ.get("HOSTILE_SEED", "1"))), os.environ["HOSTILE_WORDS"].encode()
whole = 0
for _ in range(int(os.environ["HOSTILE_COUNT"])):
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(5)
        try:
            line.connect(os.environ["HOSTILE_SOCKET"])
            part = len(words) if chance.random() < 0.5 else chance.randrange(len(words))
            line.sendall(words[:part])
            whole += part == len(words)
            time.sleep(chance.random() * 0.02)
            if chance.random() < 0.3:
                line.shutdown(socket.SHUT_WR)
                line.recv(64)
        except OSError:
            continue
say("said all of it", whole, "times")
