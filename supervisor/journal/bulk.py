"""Many changes in few steps. Owns how a group of statements is carried out; leaves to `store` what is in it and when.

Each step of a statement lets go of the interpreter lock and has to get it back, and against a busy loop that takes up
to a switch interval (5 ms by default): thirty calls in sixty steps were seen to take a second, in few steps they take
what SQLite takes.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Sequence

import apsw

MOST_ROWS = 64
"""Of one statement; a power of two, as every number of rows that a statement is made for: so few are kept prepared."""
_ROW = re.compile(r"VALUES (\(\?(?:, \?)*\))(?!\s*,)")
Values = tuple[object, ...]


def execute(connection: apsw.Connection, statements: Iterable[tuple[str, Values]]) -> None:
    """Carry out statements with their values, in their order. Raises apsw.Error; the caller has the transaction."""
    for text, same in itertools.groupby(statements, key=lambda one: one[0]):
        execute_rows(connection, text, [values for _, values in same])


def execute_rows(connection: apsw.Connection, text: str, rows: Sequence[Values]) -> None:
    """Carry out one statement for each row of values, in their order. Raises apsw.Error."""
    if len(rows) == 1:
        connection.execute(text, rows[0])
    elif rows and _for_many(text, 1) is None:
        connection.executemany(text, rows)
    else:
        _execute_many(connection, text, rows)


def _execute_many(connection: apsw.Connection, text: str, rows: Sequence[Values]) -> None:
    start = 0
    while start < len(rows):
        count = min(MOST_ROWS, 1 << (len(rows) - start).bit_length() - 1)
        connection.execute(
            _for_many(text, count) or text, tuple(itertools.chain.from_iterable(rows[start : start + count]))
        )
        start += count


@functools.lru_cache(maxsize=256)
def _for_many(text: str, count: int) -> str | None:
    """An insert of one row as an insert of ``count``; None where there is more in it than the row's own values."""
    found = _ROW.search(text)
    if found is None or text.count("?") != found[1].count("?"):
        return None
    return text[: found.start(1)] + ", ".join([found[1]] * count) + text[found.end(1) :]
