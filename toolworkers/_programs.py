"""Which file a command's first word names, looked for as execvp(3) does but on the *call's* PATH, not on ours.

Found or not is told apart from runnable or not, because the two have exit codes of their own (127 and 126). That the
kernel then takes the file is left to whoever spawns it.
"""

from __future__ import annotations

import os

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def find_program(word: str, search_path: str) -> str:
    """The path to run. A word with a slash is one already; an empty entry of the search path is the working directory.

    Raises FileNotFoundError when nothing of that name is there, PermissionError when what is there cannot be run.
    """
    found = None
    for candidate in _candidates(word, search_path):
        if os.path.isdir(candidate) or not os.path.exists(candidate):
            continue
        if os.access(candidate, os.X_OK):
            return candidate
        found = found or candidate
    if found is not None:
        raise PermissionError(f"{found}: not executable")
    if "/" in word and os.path.isdir(word):
        raise PermissionError(f"{word}: is a directory")
    raise FileNotFoundError(f"{word}: no such program" + ("" if "/" in word else " on PATH"))


def _candidates(word: str, search_path: str) -> list[str]:
    if "/" in word:
        return [word]
    if not word:
        return []
    return [os.path.join(directory or ".", word) for directory in search_path.split(":")]
