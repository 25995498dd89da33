"""Looks for HOSTILE_CANARY's value, read backwards, in its environment and in what it can read of every process."""

import os

from _bounded import bound, say

bound()
wanted, found = os.environ.pop("HOSTILE_CANARY").encode()[::-1], 0
say("own", "obtained" if wanted in b" ".join(os.environb.values()) else "refused")
for pid in filter(str.isdigit, os.listdir("/proc")):
    for file in ("environ", "cmdline"):
        try:
            with open(f"/proc/{pid}/{file}", "rb") as opened:
                found += wanted in opened.read()
        except OSError:
            continue
say("others", "obtained" if found else "refused")
