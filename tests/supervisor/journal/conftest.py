"""A journal's file in a directory of the test's own, and what goes into one."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from supervisor.journal.numbers import Draft
from supervisor.journal.rows import CallRow
from supervisor.journal.store import Change, Store


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "journal.db")


@pytest.fixture
def open_store(path: str) -> Iterator[Callable[[], Store]]:
    """Opens the file again each time; whatever is open at the end is closed."""
    opened: list[Store] = []

    def open_one() -> Store:
        store = Store(path)
        store.open()
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        store.close()


def event(
    kind: str = "daemon_started",
    at_ms: int = 5,
    call: str | None = None,
    uid: int | None = None,
    run: str | None = None,
    data: str = "{}",
) -> Change:
    return Change(event=Draft(at_ms, kind, call, run, uid, data))


def row(call: str, place: bytes | None = None, read_only: bool = False) -> CallRow:
    return CallRow(call, 7, None, "shell", place, None if place is None else b"said", call, read_only, 100, "{}", 1_000)


def tampered(path: str, statement: str) -> None:
    """Somebody else writes into the file."""
    with closing(sqlite3.connect(path)) as stranger, stranger:
        stranger.execute(statement)
