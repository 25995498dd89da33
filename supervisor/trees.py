"""Removing directories that tools had to themselves. A tree may be deeper than Python recurses and than a path may be
long, its directories may be closed to their owner, links may lead anywhere: none of that may raise, block or reach
outside.
"""

from __future__ import annotations

import contextlib
import os
import secrets


def remove_tree(path: str) -> None:
    """Remove a directory and all below it, or a single file. What will not go stays; nothing is raised. Nobody may be
    writing in it any more. May take long: call it from a thread.

    Depth is taken out of the tree instead of being followed: each directory found is first moved up to the top.
    """
    if os.path.islink(path) or not os.path.isdir(path):
        with contextlib.suppress(OSError):
            os.unlink(path)
        return
    pending = [path]
    while pending:
        directory = pending.pop()
        with contextlib.suppress(OSError):
            os.chmod(directory, 0o700)  # never a link: `_emptied` yields real directories
            pending += _emptied(directory, path)
            if directory != path:
                os.rmdir(directory)
    with contextlib.suppress(OSError):
        os.rmdir(path)


def _emptied(directory: str, top: str) -> list[str]:
    """Unlink what is no directory; where the others are now: in ``top``, under names that nobody chose."""
    found: list[str] = []
    with os.scandir(directory) as entries:
        for entry in list(entries):
            with contextlib.suppress(OSError):
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.path)
                elif directory == top:
                    found.append(entry.path)
                else:
                    found.append(_moved_up(entry.path, top))
    return found


def _moved_up(directory: str, top: str) -> str:
    os.chmod(directory, 0o700)  # moving it writes its "..", which takes write permission (rename(2))
    moved = os.path.join(top, secrets.token_hex(8))
    os.rename(directory, moved)
    return moved
