"""Many changes in few steps: the same outcome as one by one."""

from __future__ import annotations

import random
from collections.abc import Iterator

import apsw
import pytest

from supervisor.journal import bulk

PLAIN = "INSERT INTO pairs (name, value) VALUES (?, ?)"
UPSERT = PLAIN + " ON CONFLICT (name) DO UPDATE SET value = value || excluded.value"
BY_NAME = "UPDATE pairs SET value = value || ? WHERE name = ?"
OTHER_VALUES = "INSERT INTO pairs (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = value || ?"
DROP = "DELETE FROM pairs WHERE name = ?"


@pytest.fixture
def connection() -> Iterator[apsw.Connection]:
    one = apsw.Connection(":memory:")
    one.execute("CREATE TABLE pairs (name TEXT PRIMARY KEY, value TEXT)")
    yield one
    one.close()


def steps(connection: apsw.Connection) -> list[str]:
    """What is executed from now on."""
    seen: list[str] = []

    def trace(_cursor: object, statement: str, _values: object) -> bool:
        seen.append(statement)
        return True

    connection.exec_trace = trace
    return seen


def content(connection: apsw.Connection) -> list[tuple[object, ...]]:
    return list(connection.execute("SELECT name, value FROM pairs ORDER BY name"))


@pytest.mark.parametrize("seed", range(20))
def test_the_outcome_is_that_of_each_statement_after_the_other(connection, seed):
    rng = random.Random(seed)
    statements: list[tuple[str, tuple[object, ...]]] = []
    for number in range(60):
        name, value = f"n{rng.randrange(12)}", f"<{number}>"
        text, values = rng.choice(
            [(UPSERT, (name, value)), (BY_NAME, (value, name)), (OTHER_VALUES, (name, value, value)), (DROP, (name,))]
        )
        statements += [(text, values)] * rng.choice([1, 1, 1, 5])
    plain = apsw.Connection(":memory:")
    plain.execute("CREATE TABLE pairs (name TEXT PRIMARY KEY, value TEXT)")
    for text, values in statements:
        plain.execute(text, values)
    bulk.execute(connection, statements)
    assert content(connection) == content(plain)
    plain.close()


@pytest.mark.parametrize(("rows", "most"), [(1, 1), (2, 1), (30, 4), (64, 1), (200, 5)])
def test_rows_of_one_insert_go_in_few_steps(connection, rows, most):
    seen = steps(connection)
    bulk.execute_rows(connection, PLAIN, [(f"n{number:03}", str(number)) for number in range(rows)])
    assert len(seen) <= most
    connection.exec_trace = None
    assert content(connection) == [(f"n{number:03}", str(number)) for number in range(rows)]


def test_an_insert_with_more_than_its_own_row_is_repeated_as_it_is(connection):
    connection.execute("CREATE TABLE words (word TEXT)")
    bulk.execute_rows(connection, "INSERT INTO words VALUES (?), ('and')", [("a",), ("b",)])
    assert list(connection.execute("SELECT word FROM words")) == [("a",), ("and",), ("b",), ("and",)]


def test_nothing_is_nothing(connection):
    seen = steps(connection)
    bulk.execute_rows(connection, PLAIN, [])
    bulk.execute(connection, [])
    assert seen == []
