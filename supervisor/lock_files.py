"""Lock files that a call which was ended may have left: looked for, told of, never touched.

Blocks: run it in a thread, with patience, because the directory may lie on a file system that hangs.
"""

from __future__ import annotations

import contextlib
import glob
import itertools
import os

from supervisor.containment.survivors import printable

MOST = 10
"""So many are named."""


def left_behind(patterns: tuple[str, ...], start: str, found: list[str]) -> None:
    """Append to ``found`` the files that match, as text. Relative patterns begin in ``start``, ``~`` is the daemon's
    user. No ``**``: what it would walk is nobody's to wait for."""
    for pattern in patterns:
        path = os.path.join(start, os.path.expanduser(pattern))
        with contextlib.suppress(OSError, ValueError):
            matches = glob.iglob(path, recursive=False, include_hidden=True)
            found += [printable(os.fsencode(one)) for one in itertools.islice(matches, MOST - len(found))]
