"""This process's own direct children, as the kernel lists them: what guard, zygote and worker have in place of a
namespace where there is none.

Nothing in here signals anybody. A direct child that was not reaped keeps its number, so whoever is its parent, has one
thread and reaps nowhere else may signal it by number without hitting a stranger.
"""

from __future__ import annotations

import os

_CHUNK = 65_536


def direct_children() -> list[int]:
    """Pids of all direct children of this process's threads, the dead that wait to be reaped among them.

    A child that ends while the kernel writes the list may hide another (proc(5)): ask again until there is none. Raises
    OSError where there is no such list (/proc is not mounted, or Linux was built without it).
    """
    found: list[int] = []
    for thread in os.listdir("/proc/self/task"):
        try:
            descriptor = os.open(f"/proc/self/task/{thread}/children", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            if thread == str(os.getpid()):
                raise
            continue  # another thread, and it has just ended
        try:
            found += map(int, _whole(descriptor).split())
        finally:
            os.close(descriptor)
    return found


def _whole(descriptor: int) -> bytes:
    text = b""
    while data := os.read(descriptor, _CHUNK):
        text += data
    return text
