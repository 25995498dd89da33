"""Writes up to 256 MiB to stdout: lines first, then one that does not end."""

import os

from _bounded import bound

bound()
for block in [b"a line of a flood\n" * 3640] * 512 + [b"x" * 65_536] * 3584:
    os.write(1, block)
