"""Looks for HOSTILE_CANARY's value in the environment and command line of every process it can see."""

import os

from _bounded import bound, say

bound()
wanted, found = os.environ.pop("HOSTILE_CANARY").encode()[::-1], 0
for pid in filter(str.isdigit, os.listdir("/proc")):
    for file in ("environ", "cmdline"):
        try:
            with open(f"/proc/{pid}/{file}", "rb") as opened:
                found += wanted in opened.read()
        except OSError:
            continue
say("obtained" if found else "nothing found")
