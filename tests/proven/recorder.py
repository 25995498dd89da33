"""A pytest plugin that notes what became of the tests with a mark: ``-p tests.proven.recorder``.

Works under xdist: the ids of a mark travel in a report's user properties, and only the controlling process writes.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

PROPERTY = "proves"
_WORSE = ("collected", "passed", "skipped", "failed")


class Recorder:
    """Outcomes by test. A test that was skipped in any part was skipped; one that failed in any part failed."""

    def __init__(self, mark: str, path: Path) -> None:
        self._mark, self._path = mark, path
        self._seen: dict[str, dict[str, object]] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            item.user_properties += [(PROPERTY, id_) for mark in item.iter_markers(self._mark) for id_ in mark.args]

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            self._note(item.nodeid, item.user_properties, "collected", "")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # An expected failure is reported as skipped: what is expected to fail proves nothing.
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        self._note(report.nodeid, report.user_properties, report.outcome, why)

    def pytest_sessionfinish(self) -> None:
        self._path.write_text(json.dumps(self._seen))

    def _note(self, test: str, properties: list[tuple[str, object]], outcome: str, why: str) -> None:
        ids = [id_ for name, id_ in properties if name == PROPERTY]
        if ids:
            seen = self._seen.setdefault(test, {"ids": ids, "outcome": outcome, "why": why})
            if _WORSE.index(outcome) > _WORSE.index(str(seen["outcome"])):
                seen |= {"outcome": outcome, "why": why}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--proven-mark", default="", help="note tests with this mark")
    parser.addoption("--proven-record", default="", help="where to write what became of them, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--proven-record") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_recorder(config), "proven-recorder")
    elif config.getoption("--proven-record"):
        config.pluginmanager.register(Marker(config.getoption("--proven-mark")), "proven-marker")


def _recorder(config: pytest.Config) -> Recorder:
    return Recorder(config.getoption("--proven-mark"), Path(config.getoption("--proven-record")))


class Marker:
    """In a process that runs tests for another one: only the ids are put into the reports."""

    def __init__(self, mark: str) -> None:
        self._mark = mark

    pytest_collection_modifyitems = Recorder.pytest_collection_modifyitems
