"""Globs on paths of a walk: ``*`` and ``?`` stay within a name, ``**`` crosses directories, ``[a-z]``, ``{a,b}``.

A glob without a slash is matched against the file's name at any depth, one with a slash against its path from the
start of the walk.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from protocol._errors import InvalidArguments

_PIECE = re.compile(r"\*\*/|\*\*|\*|\?|\[(!?)(\]?[^\]/]*)\]|[{},]|\\.|.", re.DOTALL)
_FIXED = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]", "{": "(?:", "}": ")"}


def glob_matcher(glob: str | None) -> Callable[[str], bool]:
    """Whether a path fits. ``None`` fits all. Raises InvalidArguments for a glob that means nothing."""
    if glob is None:
        return lambda _path: True
    pattern = _translated(glob)
    whole_path = "/" in glob
    return lambda path: pattern.fullmatch(path if whole_path else path.rpartition("/")[2]) is not None


def _translated(glob: str) -> re.Pattern[str]:
    try:
        return re.compile("".join(_pieces(glob.removeprefix("/"))), re.DOTALL)
    except re.error as error:
        raise InvalidArguments(f"glob {glob!r} means nothing ({error}); allowed: * ? ** [a-z] {{a,b}}") from error


def _pieces(glob: str) -> list[str]:
    pieces: list[str] = []
    open_braces = 0
    for match in _PIECE.finditer(glob):
        text = match[0]
        open_braces += (text == "{") - (text == "}")
        if match[2] is not None:
            pieces.append(f"[{'^' if match[1] else ''}{_class(match[2])}]")
        elif text == "," and open_braces:
            pieces.append("|")
        else:
            pieces.append(_FIXED.get(text) or re.escape(text[-1]))
    return pieces


def _class(inside: str) -> str:
    """What stands between the brackets, with only ``-`` left to mean something, and not twice in a row."""
    return re.sub(r"[\\\[\]^&~|]|(?<=-)-", lambda match: f"\\{match[0]}", inside)
