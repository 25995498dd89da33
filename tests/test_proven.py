"""`make cases`: its list and the marks agree, and only what really passed counts."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proven import __main__ as command
from tests.proven.listing import SUBJECTS, TESTS, Row, Subject
from tests.proven.verdict import verdict

CASES = SUBJECTS["cases"]


@functools.cache
def parsed() -> dict[Path, tuple[bytes, ast.Module]]:
    """Every file of the tests, its text and its tree."""
    sources = {path: path.read_bytes() for path in TESTS.rglob("*.py")}
    return {path: (source, ast.parse(source)) for path, source in sources.items() if b"mark" in source}


def trees(*words: str) -> Iterator[tuple[Path, ast.Module]]:
    """The files in which any of the words stands at all."""
    for path, (source, tree) in parsed().items():
        if any(word.encode() in source for word in words):
            yield path, tree


def marks(tree: ast.AST, mark: str) -> Iterator[ast.Call]:
    """Every ``….mark.MARK(…)`` of a module."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="mark"), attr=name)) if name == mark:
                yield node


def test_there_are_132_cases_each_with_its_report_and_what_must_hold() -> None:
    rows = CASES.rows()
    assert list(rows) == [f"B{number:03}" for number in range(1, 133)]
    for id_, row in rows.items():
        assert re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", row.source), id_
        assert 20 < len(row.holds) < 120, id_
    assert len({row.holds for row in rows.values()}) == 132


def test_there_are_173_behaviours_each_shown_in_one_way() -> None:
    rows = SUBJECTS["behaviours"].rows()
    assert list(rows) == [f"M{number:03}" for number in range(1, 174)]
    for id_, row in rows.items():
        assert 20 < len(row.holds) < 120, id_
        assert sum(bool(way) for way in (row.entailed_by, row.doc, row.needs)) <= 1, id_
        assert set(row.entailed_by) <= rows.keys() - {id_}, id_
    documented = [id_ for id_, row in rows.items() if row.doc]
    assert len(documented) <= 20, "at most so many by documentation alone"
    assert len({row.holds for row in rows.values()}) == 173


def test_an_entailed_row_stands_and_falls_with_the_rows_that_entail_it() -> None:
    rows = {
        "A": Row("", ""),
        "B": Row("", "", ("A",)),
        "C": Row("", "", ("B", "D")),
        "D": Row("", "", needs="more"),
        "E": Row("", "", doc="docs/no-such-page.md"),
    }
    found = verdict(rows, {"t": {"ids": ["A"], "outcome": "passed", "why": ""}})
    assert (found.proven, found.entailed, found.documented) == (["A"], ["B"], [])
    assert set(found.missing) == {"C", "D", "E"}


@pytest.mark.parametrize("subject", SUBJECTS.values(), ids=list(SUBJECTS))
def test_every_mark_of_a_test_names_rows_of_the_list(subject: Subject) -> None:
    rows = subject.rows()
    for path, tree in trees(subject.mark):
        for call in marks(tree, subject.mark):
            ids = [argument.value if isinstance(argument, ast.Constant) else None for argument in call.args]
            assert ids, f"{path.name}:{call.lineno} names nothing"
            assert set(ids) <= rows.keys(), f"{path.name}:{call.lineno}: {ids}"
            assert not call.keywords, f"{path.name}:{call.lineno}"


SUITE = """
import pytest

@pytest.mark.case("X1")
def test_good(): pass

@pytest.mark.case("X2")
@pytest.mark.parametrize("which", [1, 2])
def test_half(which): assert which == 1

@pytest.mark.case("X3", "X1")
def test_two_at_once(): pass

@pytest.mark.case("X4")
def test_skipped(): pytest.skip("no such host")

@pytest.mark.case("X5")
@pytest.mark.xfail(strict=True, reason="not yet")
def test_expected_to_fail(): raise AssertionError

@pytest.mark.case("X6")
def test_clean(broken): pass

@pytest.fixture
def broken():
    yield
    raise AssertionError("left something")

def test_unmarked(): raise AssertionError
"""


_PLAIN = "-p no:cacheprovider -p no:trio -p no:anyio -p no:hypothesispytest"
"""Plugins that the small suite has no use for; each takes longer to load than the suite to run."""


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Subject:
    tests = TESTS / "proven"
    directory = tmp_path / "tests"
    (directory / "proven").mkdir(parents=True)
    for file in ("__init__.py", "recorder.py"):
        (directory / "proven" / file).write_bytes((tests / file).read_bytes())
    (directory / "__init__.py").touch()
    (directory / "test_small.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nmarkers = case(id): x\naddopts = {_PLAIN}\n")
    monkeypatch.setattr(command, "TESTS", directory)
    monkeypatch.chdir(tmp_path)
    return Subject("small", "case", tmp_path / "small.toml")


@pytest.mark.parametrize("lanes", [0, 2])
def test_proven_is_what_passed_in_all_its_parts_and_nothing_else(small: Subject, lanes: int) -> None:
    code, outcomes = command.run_marked(small, lanes, collect=False)
    found = verdict({f"X{number}": Row("", "") for number in range(1, 8)}, outcomes)
    assert code == 1
    assert found.proven == ["X1", "X3"]
    assert {id_: why.partition(":")[0] for id_, why in found.missing.items()} == {
        "X2": "failed",
        "X4": "skipped",
        "X5": "skipped",
        "X6": "failed",
        "X7": "no test",
    }
    assert "no such host" in found.missing["X4"]
    assert [test.partition("::")[2] for test in found.red] == ["test_clean", "test_half[2]"]


def test_counting_runs_nothing(small: Subject) -> None:
    code, outcomes = command.run_marked(small, 0, collect=True)
    assert code == 0
    rows = {id_: Row("", "") for id_ in ("X1", "X6", "X7")}
    assert verdict(rows, outcomes, "collected").proven == ["X1", "X6"]


def test_the_report_says_how_many_and_lists_the_others() -> None:
    rows = {"X1": Row("a/b#1", "this holds"), "X2": Row("a/b#2", "that holds")}
    found = verdict(rows, {"t.py::t": {"ids": ["X1"], "outcome": "passed", "why": ""}})
    said = command.report(Subject("small", "case", Path("x")), rows, found, 1, 2.0, collect=False).splitlines()
    assert said[0] == "small: 1 of 2 proven; 1 marked tests, 2.0 s"
    assert "X2" in said[1]
    assert "no test; wanted: that holds" in said[1]
    assert len(said) == 2


def test_tests_with_real_processes_lie_where_the_rest_is_looked_for() -> None:
    """`.ci/run` runs them by `make rest`; a marked test elsewhere would never run there."""
    looked_in = ("tests/contract/", "tests/supervisor/containment/")
    makefile = (TESTS.parent / "Makefile").read_text(encoding="utf-8")
    assert " ".join(["tests/contract", "tests/supervisor/containment"]) in makefile
    for path, tree in trees("contract", "chaos"):
        place = path.relative_to(TESTS.parent).as_posix()
        if not place.startswith(looked_in):
            marked = {
                node.attr
                for node in ast.walk(tree)
                if isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Attribute)
                and node.value.attr == "mark"
            }
            assert not {"contract", "chaos"} & marked, f"{place} marks a test that would not run"


def test_whatever_starts_a_daemon_is_marked_as_such() -> None:
    """Else it would run in `make check`, beside the tests that start nothing."""
    unmarked = [
        path.name
        for path in (TESTS / "contract").rglob("test_*.py")
        if "\npytestmark = pytest.mark.contract" not in path.read_text(encoding="utf-8")
        and "\npytestmark = [pytest.mark.contract" not in path.read_text(encoding="utf-8")
    ]
    assert unmarked == []
