"""The comparison without its peers: what a ledger means, who is at work, what the model asks, what is shown."""

from __future__ import annotations

import json
import threading
from dataclasses import asdict
from pathlib import Path

import pytest

from bench.compare import execution
from bench.compare.__main__ import main, outcome_of
from bench.compare.catalogue import KINDS, SETUPS, Setup
from bench.compare.ledger import figures
from bench.compare.script import DONE, GIVEN_UP, Script
from bench.compare.table import Outcome, table

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "compare.md").read_text(encoding="utf-8")
SECOND = 1_000_000_000


@pytest.fixture(autouse=True)
def _place(tmp_path, monkeypatch):
    monkeypatch.setenv(execution.PLACE, str(tmp_path))


def ledger(*entries: tuple[float, str, str]) -> list[str]:
    return [json.dumps({"at_ns": round(at * SECOND), "who": who, "what": what}) for at, who, what in entries]


def told(*at: float) -> list[dict[str, object]]:
    return [{"at_ns": round(one * SECOND), "whom": "model", "said": "timed out", "left": ["thread"]} for one in at]


def test_a_charge_is_late_when_the_end_of_its_own_execution_had_been_told():
    lines = ledger(
        (10, "a", "begun"), (10, "a", "charged"), (11, "b", "begun"), (11.5, "a", "charged"), (11.6, "b", "charged")
    )
    got = figures(lines, told(11, 12))
    assert (got.executions, got.charges, got.late) == (2, 3, 1)
    assert (got.told_s, got.over_s, got.stopped_s) == (1.0, 2.0, pytest.approx(1.6))


def test_an_execution_that_nobody_was_told_of_ends_with_the_last_word():
    lines = ledger((0, "a", "begun"), (0, "a", "charged"), (1, "b", "begun"), (2.5, "b", "charged"))
    assert figures(lines, told(2)).late == 1


def test_a_payment_that_never_charged_has_no_last_charge():
    assert figures(ledger((0, "a", "begun")), told(1)).stopped_s is None


@pytest.mark.parametrize(("lines", "words"), [([], told(1)), (ledger((0, "a", "begun")), [])])
def test_a_cell_in_which_nothing_happened_has_no_figures(lines, words):
    with pytest.raises(ValueError, match="no execution"):
        figures(lines, words)


def test_an_execution_is_at_work_until_its_thread_is_done_with_it():
    inside, leave = threading.Event(), threading.Event()

    def work() -> None:
        with execution.at_work(execution.begin()) as charge:
            charge()
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=work)
    thread.start()
    assert inside.wait(10)
    assert execution.who_is_at_work() == ["thread"]
    leave.set()
    thread.join()
    assert execution.who_is_at_work() == []


def test_a_model_that_is_not_told_paid_asks_twice_and_gives_up():
    script = Script()
    assert [script.decide(heard) for heard in ("", "timed out", "timed out")] == [None, None, GIVEN_UP]
    assert [one.said for one in script.told] == ["timed out", "timed out"]


@pytest.mark.parametrize("heard", ["paid", "Observation:\npaid"])
def test_a_model_that_is_told_paid_does_not_ask_again(heard):
    script = Script()
    assert [script.decide(), script.decide(heard)] == [None, DONE]


def test_a_peer_that_is_not_installed_is_named_and_nothing_is_started(monkeypatch):
    monkeypatch.setattr("subprocess.Popen", None)
    outcome = outcome_of(Setup("nobody", "s", "no-such-package", "Nobody(timeout=…)"), "thread")
    assert "Nobody(timeout=…)  – is not installed" in table([outcome])
    assert outcome.plain()["none"] == "is not installed"


def test_what_a_peer_left_stands_in_its_line():
    got = figures(ledger((0, "a", "begun"), (0, "a", "charged"), (1, "a", "charged")), told(0.5))
    line = " ".join(table([Outcome(SETUPS[1], "thread", got)]).splitlines()[-1].split())
    assert line.endswith("0.5 s model 0.5 s 1.0 s 1 2 1 1 thread 1 thread timed out")


def test_the_page_shows_every_setup_under_every_kind_that_it_can_run():
    blocks = PAGE.split("| **`")[1:]
    assert [block.partition("`")[0] for block in blocks] == list(KINDS)
    for block in blocks:
        kind, rows = block.partition("`")[0], block.split("\n\n")[0]
        shown = [setup.bound for setup in SETUPS if f": `{setup.bound}`" in rows]
        assert shown == [setup.bound for setup in SETUPS if setup.why_not(kind) is None], kind


def test_only_known_peers_and_kinds_are_taken():
    with pytest.raises(SystemExit):
        main(["--only", "nobody"])


def test_a_told_word_is_plain():
    script = Script()
    script.note("caller", "a\n  b")
    assert asdict(script.told[0])["said"] == "a b"
