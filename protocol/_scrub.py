"""What of a tool's results says nothing (a time, a number of a process), so that two outcomes can be compared. Owns how
a contract says that, and how many it may say. The comparison is the daemon's (``supervisor/core/scrubbing.py``).

Two kinds of entries:

* ``$.took_ms``: a field of the content. Dots lead inwards, lists are passed through, as for roles.
* anything else: a pattern in texts. ``*`` is a run of up to 64 characters without blanks, which ends before the
  character that follows it in the pattern; everything else stands for itself. ``in *s`` covers ``in 0.03s``.

Why no regular expressions: one that backtracks would hold the daemon's loop for as long as a tool's output likes. These
patterns never look back, so a result costs at most (entries x 64) steps a character.
"""

from __future__ import annotations

ENTRIES = 8
LENGTH = 200
_ROOT = "$."


def content_way(entry: str) -> list[str] | None:
    """The way to a field of the content; None: the entry is a pattern."""
    return entry.removeprefix(_ROOT).split(".") if entry.startswith(_ROOT) else None


def refuse_bad_scrub(entries: tuple[str, ...]) -> None:
    """Raise ValueError for an entry that covers nothing or everything, or for too many."""
    if len(entries) > ENTRIES:
        raise ValueError(f"scrub has {len(entries)} entries; allowed: at most {ENTRIES}")
    for entry in entries:
        way = content_way(entry)
        good = all(way) if way is not None else "*" in entry and entry.replace("*", "").strip()
        if not good or len(entry) > LENGTH:
            raise ValueError(
                f"scrub has {entry[:LENGTH]!r}; allowed: '$.field.field' of the content, or a text in which '*' stands"
                f" for what varies and something else says where, of at most {LENGTH} characters"
            )
