"""How the demo judges; that it has no surprise on real programs is a contract test."""

import pytest

from deadlined import demo
from deadlined._demo_scenes import SCENES, Scene, Unexpected
from protocol._outcomes import CallResult, Exit, KillReceipt, Reason, Status

KILL = KillReceipt(["pidns"], 2, 0.4, 1.9, True)
KILLED = CallResult("c_1", "shell", Status.KILLED, reason=Reason.TIME_BUDGET, kill=KILL)


class _Stage:
    mark = "a mark that nobody carries"


def _judged(result, outcome="killed (time_budget)", at_least=1, needs=()):
    return demo._row(Scene("scene", needs, lambda stage: result, outcome, at_least), _Stage)


def test_a_scene_that_went_as_it_must_is_no_surprise():
    row = _judged(KILLED)
    assert (row.outcome, row.killed, row.signalled_after_ms, row.surprise) == ("killed (time_budget)", 2, 0.4, None)


def test_a_failing_command_shows_its_exit_code():
    assert _judged(CallResult("c_1", "t", Status.ERROR, exit=Exit(code=1)), "error, exit 1", 0).surprise is None


@pytest.mark.parametrize(
    ("result", "surprise"),
    [
        (CallResult("c_1", "t", Status.OK), "expected killed"),
        (CallResult("c_1", "t", Status.KILLED, reason=Reason.TIME_BUDGET), "at least 1 killed"),
        (
            CallResult("c_1", "t", Status.KILLED, reason=Reason.TIME_BUDGET, kill=KillReceipt([], 2, 0.1, None, False)),
            "not confirmed",
        ),
    ],
)
def test_another_end_is_a_surprise(result, surprise):
    assert surprise in _judged(result).surprise


def test_a_survivor_is_a_surprise(monkeypatch):
    monkeypatch.setattr("deadlined._outside.marked", lambda mark: {1})
    assert "1 alive after the answer" in _judged(KILLED).surprise


def test_a_missing_program_is_said_and_is_no_surprise():
    row = _judged(KILLED, needs=("no-such-program-anywhere",))
    assert "no no-such-program-anywhere here" in row.outcome
    assert row.surprise is None


def test_what_a_scene_saw_itself_is_a_surprise():
    def play(stage):
        raise Unexpected("2 alive")

    assert demo._row(Scene("scene", (), play, "ok"), _Stage).surprise == "2 alive"


def test_every_kind_of_hostile_program_has_a_scene():
    assert len(SCENES) >= 8
    assert {scene.outcome for scene in SCENES} == {
        "ok",
        "error, exit 1",
        "killed (time_budget)",
        "killed (output_limit)",
        "duplicate_call (repeat_call)",
        "not_executed (time_budget)",
    }


def test_a_row_fits_its_columns():
    assert len(demo._line(_judged(KILLED))) < 120
