"""Asks the daemon at HOSTILE_SOCKET for a call of its own."""

import os
import socket

from _bounded import bound, say

bound()
line = socket.socket(socket.AF_UNIX)
line.settimeout(10)
try:
    line.connect(os.environ["HOSTILE_SOCKET"])
    line.sendall(b'{"op": "hello", "version": 1}\n')
    heard = line.recv(4096)
    say("obtained" if heard else "refused")
except OSError as error:
    say("refused", error.errno)
