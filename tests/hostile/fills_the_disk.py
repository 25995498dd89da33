"""Fills a directory, HOSTILE_IN or its own: a MiB a file, HOSTILE_MIB (at most 200) of them. They stay."""

import os

from _bounded import bound, say

bound()
place, most = os.environ.get("HOSTILE_IN", "."), min(200, int(os.environ["HOSTILE_MIB"]))
if place == "TMPDIR":
    place = os.environ["TMPDIR"]
for number in range(most):
    try:
        with open(os.path.join(place, f"fill-{number}"), "wb") as file:
            file.write(bytes([number]) * (1 << 20))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        say("refused", error.errno)
        raise SystemExit(3) from error
say("filled", most)
