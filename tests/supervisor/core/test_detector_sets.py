"""Every level of every set can be reached (a limit that another one always hides is none), and settings of which one
could not are refused."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from supervisor.core.detector_sets import DEFAULT, SERVED, SETS, Levels, Settings, refuse_contradictions
from tests.supervisor.core.looping import Run, again, failed, ok, polling, reading, worded, writing, wrote


def first_at(detector: str, level: str, settings: Settings) -> int:
    """The first call (step, for no_progress) of a plain loop that should be met with a level."""
    return getattr(getattr(settings, detector), f"{level}_after") + (detector != "no_progress")


# ---------------------------------------------------------------- a plain loop for each detector


def play_repeat_error(run: Run) -> None:
    run.play(again(reading("a"), failed(), 40))


def play_repeat_call(run: Run) -> None:
    run.play(again(reading("a"), ok(), 40))


def play_poll_no_progress(run: Run) -> None:
    run.play(again(polling(), ok(), 40))


def play_same_error(run: Run) -> None:
    run.play((reading(f"a{n}"), failed(n)) for n in range(40))


def play_near_duplicate(run: Run) -> None:
    run.play((worded(f"trio cancel scope {'!' * n}"), ok()) for n in range(4))


def play_unknown_tool(run: Run) -> None:
    for _ in range(9):
        run.refused("unknown_tool")


def play_invalid_arguments(run: Run) -> None:
    for _ in range(9):
        run.refused("invalid_arguments")


def play_no_progress(run: Run) -> None:
    run.call(reading("a"), failed())
    for number in range(1, 40):
        run.number = number
        run.step_over()


LOOPS: dict[str, Callable[[Run], None]] = {
    "repeat_error": play_repeat_error,
    "repeat_call": play_repeat_call,
    "poll_no_progress": play_poll_no_progress,
    "same_error": play_same_error,
    "near_duplicate": play_near_duplicate,
    "unknown_tool": play_unknown_tool,
    "invalid_arguments": play_invalid_arguments,
    "no_progress": play_no_progress,
}


def served(name: str, detector: str) -> list[str]:
    levels = getattr(SETS[name], detector)
    return [level.removesuffix("_after") for level in SERVED[detector] if getattr(levels, level) is not None]


@pytest.mark.behaviour("M155", "M159")
@pytest.mark.case("B103")
@pytest.mark.parametrize("name", list(SETS))
@pytest.mark.parametrize("detector", list(LOOPS))
def test_every_level_of_every_set_is_reached_by_its_own_loop_at_its_own_number(name, detector):
    run = Run(SETS[name])
    LOOPS[detector](run)
    reached = {level: number for number, level, who in run.firsts() if who == detector}
    wanted = {level: first_at(detector, level, SETS[name]) for level in served(name, detector)}
    if SETS[name].block_settles and "block" in wanted:  # what comes after that is for a run that only observes
        wanted.pop("stop")
    assert reached == wanted


@pytest.mark.case("B103")
@pytest.mark.parametrize("name", list(SETS))
def test_a_pair_of_calls_in_turn_reaches_every_level_of_every_set(name):
    """Two writes: each is a new situation for the other, so that no detector of single calls comes first."""
    run = Run(SETS[name])
    run.play((writing("ab"[n % 2], state=n), wrote("ab"[n % 2])) for n in range(20))
    levels = ["warn", "block"] if SETS[name].block_settles else ["warn", "block", "stop"]
    wanted = {level: 2 * first_at("cycle", level, SETS[name]) - 1 for level in levels}
    assert {level: number for number, level, who in run.firsts() if who == "ping_pong"} == wanted


@pytest.mark.parametrize("name", list(SETS))
def test_many_small_loops_reach_the_breaker_of_every_set(name):
    run = Run(SETS[name])
    run.play((worded(f"trio cancel scope {'!' * n}"), ok()) for n in range(60))
    assert run.stopped is not None
    assert run.stopped.detector == "breaker"
    assert run.number == SETS[name].near_duplicate.warn_after + SETS[name].breaker.stop_after + 1


@pytest.mark.behaviour("M159")
def test_the_demo_fires_at_the_sixth_ninth_and_eleventh_call_and_ends_at_the_ninth():
    run = Run(SETS["demo"]).play(again(reading("a"), ok(), 40), steps=True)
    assert run.firsts() == [(6, "warn", "repeat_call"), (9, "block", "repeat_call")]
    assert (run.stopped is not None, run.executed) == (True, 8)
    watched = Run(SETS["demo"], observe=True)
    fired = [watched.call(reading("a"), ok()).fired for _ in range(11)]
    levels = [next((one.level for one in each if one.detector == "repeat_call"), "pass") for each in fired]
    assert levels == ["pass"] * 5 + ["warn"] * 3 + ["block"] * 2 + ["stop"]


@pytest.mark.behaviour("M159")
def test_production_is_patient_at_one_call_a_step_too():
    run = Run(SETS["production"]).play(again(reading("a"), ok(), 40), steps=True)
    assert run.firsts() == [(11, "warn", "repeat_call"), (21, "block", "repeat_call"), (31, "stop", "repeat_call")]


@pytest.mark.behaviour("M153")
def test_the_window_is_thirty_attempts_in_every_set():
    assert {settings.window for settings in SETS.values()} == {30}


def test_every_built_in_set_can_hold():
    for settings in SETS.values():
        refuse_contradictions(settings)


@pytest.mark.case("B103")
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"window": 6, "cycle": Levels(None, None, 5)}, "window = 6 is not allowed; allowed: 30 to 256"),
        ({"window": 257}, "allowed: 30 to 256"),
        (
            {"cycle": Levels(2, 3, 7)},
            "window = 30 never shows the 7 laps of 5 calls of cycle; allowed: a window of at least 35",
        ),
        (
            {"repeat_call": Levels(10, 20, 31)},
            "never shows the 31 prior attempts of repeat_call; allowed: a window of at least 31",
        ),
        ({"breaker": Levels(stop_after=31)}, "window of at least 31"),
        (
            {"repeat_call": Levels(5, 5, 10)},
            "repeat_call.warn_after = 5 is not below repeat_call.block_after = 5; allowed: warn_after below",
        ),
        ({"repeat_call": Levels(5, 10, 10)}, "repeat_call.block_after = 10 is not below repeat_call.stop_after = 10"),
        ({"repeat_error": Levels(3, None, 3)}, "repeat_error.warn_after = 3 is not below repeat_error.stop_after = 3"),
        ({"repeat_error": Levels(0)}, "repeat_error.warn_after = 0 is not allowed; allowed: at least 1"),
        ({"cycle": Levels(1)}, "cycle.warn_after = 1 is not allowed; allowed: at least 2"),
        ({"breaker": Levels(3)}, "breaker.warn_after is not allowed; allowed in breaker: stop_after"),
        (
            {"near_duplicate": Levels(2, 3)},
            "near_duplicate.block_after is not allowed; allowed in near_duplicate: warn_after",
        ),
    ],
)
def test_settings_that_could_never_work_are_refused_with_what_is_allowed(changes, words):
    with pytest.raises(ValueError, match="allowed") as refused:
        refuse_contradictions(msgspec.structs.replace(DEFAULT, **changes))
    assert words in str(refused.value)


def test_a_larger_window_allows_larger_numbers():
    refuse_contradictions(msgspec.structs.replace(DEFAULT, window=35, cycle=Levels(2, 3, 7)))
