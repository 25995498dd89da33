"""What a daemon makes for itself is nobody else's, whatever umask it was started under.

Owns directories on the way to where it lives, and the question whether another user could put others in their place.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator

_OTHERS_MAY_WRITE = 0o022


@contextlib.contextmanager
def masked(mask: int) -> Iterator[None]:
    """At least these bits are kept from what is made meanwhile. The umask is the process's: no other thread may run."""
    before = os.umask(mask)
    os.umask(before | mask)
    try:
        yield
    finally:
        os.umask(before)


def make_directories(path: str) -> None:
    """``path`` with mode 0700, where it is not there yet, and what is missing above it, which nobody else may write.

    Raises OSError.
    """
    with masked(_OTHERS_MAY_WRITE):  # os.makedirs gives its mode to the last one only
        os.makedirs(path, mode=0o700, exist_ok=True)


def replaceable_by_others(path: str) -> str | None:
    """The first directory above ``path`` in which every user may rename it, and put another in its place; None: there
    is none. A sticky one (/tmp) is none: there only owners rename. Raises OSError."""
    above = os.path.realpath(path)
    while above != (above := os.path.dirname(above)):
        mode = os.stat(above).st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            return above
    return None
