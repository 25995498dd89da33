"""Writes into HOSTILE_PLACE, which is none of its own, and connects to HOSTILE_PORT of this machine."""

import os
import socket

from _bounded import bound, say

bound()
path = os.path.join(os.environ["HOSTILE_PLACE"], "written-by-a-tool")
try:
    with open(path, "x"):
        say("write obtained")
except OSError as error:
    say("write refused", error.errno)
line = socket.socket()
line.settimeout(5)
try:
    line.connect(("127.0.0.1", int(os.environ["HOSTILE_PORT"])))
    say("net obtained")
except OSError as error:
    say("net refused", error.errno)
