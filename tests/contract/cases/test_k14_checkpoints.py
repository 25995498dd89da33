"""What was written while somebody was killed, and what was changed behind our back: said, and never passed over."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from deadlined import Client
from tests.contract.conftest import RUNS_TOOLS, open_daemons

pytestmark = pytest.mark.contract

HERE = Path(__file__).resolve().parent
ROUNDS = 150
CONFIG = RUNS_TOOLS


@pytest.mark.case("B091")
def test_a_record_torn_by_a_kill_is_dropped_and_those_around_it_are_whole(tmp_path: Path) -> None:
    words = [sys.executable, str(HERE / "case_torn.py"), str(tmp_path / "journal.db"), str(ROUNDS), "7"]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[2])}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=200, check=True)
    said = json.loads(done.stdout)
    assert (said["broken"], said["whole"]) == (0, ROUNDS)
    assert said["records"] >= ROUNDS, "what was appended behind each kill is there"


@pytest.mark.case("B094")
@pytest.mark.behaviour("M125")
def test_a_hole_in_the_middle_of_the_log_is_said_and_a_run_resumes_with_all_it_had_counted() -> None:
    with open_daemons() as start:
        first = start(CONFIG)
        with Client(first.socket) as client:
            run = client.open_run(profile="qa_readonly")
            run.call("page", {"number": 1})
            for query in ("a", "b", "c"):
                run.call("lookup", {"query": query})
            before = run.wait()
            assert before.outcome == "suspended"
        first.private.stop()
        (journal,) = first.directory.glob("state/*/journal.db")
        _punch(journal, run.id)
        second = start(CONFIG, after=first)
        with Client(second.socket) as client:
            assert any("changed by somebody else" in what for what in client.status().degraded)
            resumed = client.attach_run(run.id)
            view = resumed.resume()
            used = {name: one.used for name, one in view.budgets.items()}
            assert used == {name: one.used for name, one in before.budgets.items()}
            assert (view.step, view.calls) == (before.step, 4)
            resumed.call("lookup", {"query": "a"})
            resumed.cancel()
            (tried,) = [event for event in resumed.events() if event.kind == "call_validated"][-1:]
            assert tried.data["prior"] == 1, "what was tried before the pause is remembered"


def _punch(journal: Path, run: str) -> None:
    """Zeroes in the middle of what the log has of a run, as a disk leaves them."""
    with sqlite3.connect(journal) as database:
        numbers = [seq for (seq,) in database.execute("SELECT seq FROM events WHERE run = ? ORDER BY seq", (run,))]
        middle = numbers[len(numbers) // 2]
        database.execute("UPDATE events SET data = '{\"0\":0}' WHERE seq = ?", (middle,))
    database.close()
