"""What the detectors say of a run as a whole: progress, healthy work, several at once, what outlives a suspension."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol._contracts import Refresh
from protocol._deadlines import NS_PER_MS
from supervisor.core.attempts import MOST_TALLIES
from supervisor.core.detector_sets import DEFAULT, SETS, Levels, Settings
from supervisor.core.detectors import Detectors
from supervisor.core.novelty import MOST_SEEN
from tests.supervisor.core.looping import (
    OFF,
    STRICT,
    Run,
    around,
    failed,
    hung,
    lost,
    ok,
    polling,
    reading,
    worded,
    writing,
    wrote,
)

# ---------------------------------------------------------------- progress


@pytest.mark.behaviour("M016", "M051", "M030")
def test_four_steps_without_anything_new_end_the_run():
    run = Run().play(((reading(f"a{n}"), failed(n, f"code_{n}")) for n in range(20)), steps=True)
    assert run.said == [(4, "stop", "no_progress")]
    assert run.stopped is not None
    assert "4 steps in a row" in run.stopped.text


@pytest.mark.behaviour("M030")
def test_anything_new_ends_the_row_of_steps():
    stale, fresh = (reading("a"), ok()), (reading("b"), ok("new"))
    run = Run(repeat_call=OFF).play([stale, *[stale] * 3, fresh, *[stale] * 3], steps=True)
    assert run.said == []
    assert run.play([stale], steps=True).said == [(9, "stop", "no_progress")]


@pytest.mark.parametrize(
    "news",
    [
        ok,
        lambda n: ok(artefacts=(f"sha {n}",)),
        lambda n: ok(evidence=(f"doc-{n}",)),
        lambda n: failed(test_digest=f"{n} red"),
        lambda n: failed(code=f"E{n}", feedback=True),
        lambda n: failed(error_place=f"a.py:{n}", feedback=True),
    ],
)
def test_what_is_progress(news):
    calls = [(reading(f"a{n}", failure_is_feedback=True), news(n)) for n in range(12)]
    assert Run().play(calls, steps=True).said == []


@pytest.mark.behaviour("M016")
@pytest.mark.parametrize(
    "nothing",
    [
        lambda n: ok(n % 2),  # other than the last is not new
        lambda n: failed(n, f"E{n}"),  # an error is no news where failures are not results
        lambda n: failed(0, "E0", feedback=True, error_place="a.py:1"),
        lambda n: ok(artefacts=("sha",)),
    ],
)
def test_what_is_none(nothing):
    calls = [(reading(f"a{n}", failure_is_feedback=True), nothing(n)) for n in range(12)]
    run = Run().play(calls, steps=True)
    assert run.stopped is not None
    assert run.stopped.detector == "no_progress"


def test_evidence_that_a_validator_has_accepted_is_progress_once():
    run = Run()
    for n in range(9):
        assert run.detectors.evidence(f"doc-{n}") is True
        assert run.step_over().level == "pass"
    assert [run.detectors.evidence("doc-0") for _ in range(4)] == [False] * 4
    assert [run.step_over().level for _ in range(4)] == ["pass", "pass", "pass", "stop"]


@pytest.mark.behaviour("M018", "M030")
def test_a_tool_that_judges_itself_is_believed_and_nothing_else_is():
    def judged(n: int, own: str):
        return reading(f"a{n}", progress="self"), ok(n, own_fingerprint=own, artefacts=(f"sha {n}",))

    assert Run().play((judged(n, f"screen {n}") for n in range(20)), steps=True).said == []
    empty = Run().play((judged(n, "") for n in range(20)), steps=True)
    seen = Run().play((judged(n, "screen") for n in range(20)), steps=True)
    assert empty.said == [(4, "stop", "no_progress")]
    assert seen.said == [(5, "stop", "no_progress")]


def test_the_outcome_of_a_tool_that_judges_itself_is_its_fingerprint():
    ask = reading("down", "press", progress="self")
    assert Run(STRICT).play((ask, ok("pressed", own_fingerprint=f"screen {n}")) for n in range(9)).said == []
    same = Run(STRICT).play((ask, ok(n, own_fingerprint="screen")) for n in range(9))
    assert same.said == [(3, "warn", "repeat_call"), (4, "stop", "repeat_call")]


@pytest.mark.behaviour("M119")
def test_a_question_is_asked_where_a_set_says_so_and_an_answer_begins_the_row_anew():
    run = Run(SETS["qa_readonly"]).play([(reading("a"), ok())] * 3, steps=True)
    assert run.said == [(3, "stop", "no_progress")]
    assert run.stopped is not None
    assert run.stopped.action == "ask"
    assert [run.step_over().level for _ in range(2)] == ["pass", "stop"]


# ---------------------------------------------------------------- healthy runs


@pytest.mark.behaviour("M156")
@pytest.mark.case("B097")
@pytest.mark.parametrize("name", list(SETS))
def test_work_that_repeats_with_progress_is_left_alone(name):
    blocks = [(reading(f"{n}", "read_block"), ok(f"block {n}")) for n in range(60)]
    edits = [(writing(f"file {n}", "edit_file", n), wrote(artefacts=(f"sha {n}",))) for n in range(40)]
    tests = [
        call
        for n in range(30)
        for call in (
            (writing(f"fix {n}", "edit_file", n), wrote(artefacts=(f"fix {n}",))),
            (
                reading("test", "shell", n + 1, failure_is_feedback=True),
                failed(f"{30 - n} red", "exit_1", feedback=True, test_digest=f"{30 - n} red"),
            ),
        )
    ]
    for calls in (blocks, edits, tests):
        assert Run(SETS[name]).play(calls, steps=True).said == []


@pytest.mark.case("B098")
def test_one_result_for_different_arguments_of_a_write_is_normal():
    tags = [(writing(f"item {n}", "tag", n), wrote(True)) for n in range(40)]
    assert Run().play(tags).said == []
    assert Run().play(tags[:3], steps=True).said == []


# ---------------------------------------------------------------- several at once, observing


@pytest.mark.behaviour("M161")
def test_the_highest_level_wins_then_the_order_and_all_are_told():
    run = Run(cycle=Levels(2, 3, 4), repeat_call=Levels(2, 3, 4), repeat_error=Levels(2, 3, 4), same_error=OFF)
    run.play(around(2, (reading("a"), failed()), (reading("b"), failed())))
    fired = run.detectors.before(reading("a")).fired
    assert [(one.detector, one.level) for one in fired] == [
        ("repeat_error", "warn"),
        ("ping_pong", "warn"),
        ("repeat_call", "warn"),
    ]
    higher = Run(cycle=Levels(2, 3, 4), repeat_call=Levels(1, 2, 4), repeat_error=OFF, same_error=OFF)
    higher.play(around(2, (reading("a"), failed()), (reading("b"), failed())))
    verdict = higher.detectors.before(reading("a"))
    assert (verdict.level, verdict.detector) == ("block", "repeat_call")


def test_a_warned_call_has_a_notice_of_each_detector_that_warned():
    run = Run().play(around(2, (reading("a"), failed()), (reading("b"), failed())))
    notices = run.call(reading("a"), failed()).notices
    assert [(one.detector, one.level, one.attempt) for one in notices] == [
        ("repeat_error", "warn", 3),
        ("ping_pong", "warn", 3),
    ]


@pytest.mark.parametrize("name", list(SETS))
def test_a_set_that_observes_lets_everything_pass_and_tells_the_same(name):
    """M158 too: detector, level and count of what would have been."""
    watching = Run(SETS[name], observe=True)
    told = []
    for number in range(1, 41):
        verdict = watching.call(reading("a"), ok())
        assert (verdict.level, verdict.settles, verdict.notices, verdict.text) == ("pass", False, (), "")
        told += [(number, one.level, one.detector) for one in verdict.fired[:1]]
    assert watching.executed == 40
    levels = SETS[name].repeat_call
    firsts = {level: min(number for number, one, _ in told if one == level) for _, level, _ in told}
    assert firsts["stop"] == min(levels.stop_after, 40) + 1
    assert firsts["warn"] == levels.warn_after + 1
    step = [watching.step_over() for _ in range(40)]
    assert {one.level for one in step} == {"pass"}
    assert step[-1].fired[0].detector == "no_progress"


# ---------------------------------------------------------------- across a suspension, and bounds

CALLS = st.one_of(
    st.tuples(st.just("call"), st.integers(0, 4), st.integers(0, 2), st.integers(0, 6)),
    st.tuples(st.just("begin"), st.integers(0, 4), st.integers(0, 2), st.just(0)),
    st.tuples(st.just("end"), st.integers(0, 9), st.just(0), st.integers(0, 6)),
    st.tuples(st.sampled_from(["unknown_tool", "invalid_arguments", "step", "evidence"]), *[st.integers(0, 2)] * 3),
)
OUTCOMES = (
    ok("x"),
    ok("y"),
    failed("x"),
    failed("y", "E2", feedback=True),
    hung(),
    lost(),
    wrote("x", artefacts=("a",)),
)
TIGHT = Settings(
    Levels(1, 2, 3),
    Levels(2, 3, 5),
    Levels(1, 2, 4),
    Levels(2, 3, 4),
    Levels(1, None, 3),
    Levels(1),
    Levels(stop_after=4),
    Levels(stop_after=2),
    Levels(stop_after=2),
    Levels(stop_after=2),
)


def ask_of(call: int, state: int, now_ms: int):
    if call == 0:
        return polling(now_ms=now_ms, refresh=Refresh(max=2, min_interval_ms=2))
    if call == 1:
        return writing("w", state=state, progress="self")
    return worded(f"trio cancel scope {'!' * call}", state=state, failure_is_feedback=call == 4)


def play(detectors: Detectors, given, open_tokens: list[int], place: int) -> object:
    """One event; what the machine said. Tokens of attempts that stay in flight are kept."""
    kind, first, second, third = given
    if kind in ("unknown_tool", "invalid_arguments"):
        return detectors.refused(kind)
    if kind == "step":
        return detectors.step_over()
    if kind == "evidence":
        return detectors.evidence(str(first))
    if kind == "end":
        return detectors.end(open_tokens.pop(first % len(open_tokens)), OUTCOMES[third]) if open_tokens else None
    ask = ask_of(first, second, place)
    verdict = detectors.before(ask)
    if verdict.level in ("too_early", "block", "stop"):
        detectors.blocked(ask, verdict)
        return verdict
    token = detectors.begin(ask, f"c_{place}", verdict)
    if kind == "begin":
        open_tokens.append(token)
        return verdict, token
    return verdict, detectors.end(token, OUTCOMES[third])


@settings(max_examples=60)
@given(st.lists(CALLS, max_size=80), st.lists(CALLS, max_size=40))
def test_what_was_dumped_as_json_and_loaded_goes_on_as_the_machine_itself(past, future):
    machine, tokens = Detectors(TIGHT), []
    for place, given_ in enumerate(past):
        play(machine, given_, tokens, place)
    text = json.dumps(machine.dump())
    loaded = Detectors(TIGHT)
    loaded.load(json.loads(text))
    assert json.dumps(loaded.dump()) == text
    others = list(tokens)
    for place, given_ in enumerate(future, len(past)):
        assert play(machine, given_, tokens, place) == play(loaded, given_, others, place)
    assert json.dumps(loaded.dump()) == json.dumps(machine.dump())


@settings(max_examples=40)
@given(st.lists(CALLS, max_size=80))
def test_an_equal_sequence_always_gives_equal_verdicts(events):
    def told() -> list[object]:
        machine, tokens = Detectors(TIGHT), []
        return [play(machine, given_, tokens, place) for place, given_ in enumerate(events)]

    assert told() == told()


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=40), st.lists(st.integers(0, 41), max_size=40)
)
def test_unrelated_successful_calls_in_between_lower_no_count(calls, places):
    """Nor raise one: the count of a call is its own. The window, which only cycles and the breaker use, is apart."""
    plain, mixed = Detectors(), Detectors()
    for place, (call, outcome) in enumerate(calls):
        for extra in range(places.count(place)):
            other = reading(f"unrelated {place} {extra}")
            mixed.end(mixed.begin(other, "c_x"), ok(f"{place} {extra}"))
        ask = reading(f"a{call}")
        one, two = plain.before(ask), mixed.before(ask)
        assert two.prior == one.prior
        counts = {fired.detector: fired.count for fired in two.fired}
        for fired in one.fired:
            if fired.detector in ("repeat_call", "repeat_error", "same_error"):
                assert counts[fired.detector] == fired.count
        for machine in (plain, mixed):
            machine.end(machine.begin(ask, f"c_{place}"), OUTCOMES[outcome])


def test_memory_is_bounded_whatever_comes():
    machine = Detectors()
    for n in range(MOST_SEEN + 500):
        ask = reading(f"a{n}")
        verdict = machine.before(ask)
        machine.end(machine.begin(ask, f"c_{n}", verdict), ok(n, evidence=("e" * 1_000 + str(n),)))
    state = machine.dump()
    assert len(state["tallies"][2]) == MOST_TALLIES
    assert len(state["window"]) == DEFAULT.window
    assert len(state["novelty"][4]) == MOST_SEEN
    assert state["open"] == []
    assert len(json.dumps(state)) < 600_000


def test_the_time_between_polls_is_measured_by_the_clock_that_is_passed_in():
    refresh = Refresh(min_interval_ms=5)
    machine = Detectors()
    ask = polling(now_ms=10, refresh=refresh)
    machine.end(machine.begin(ask, "c"), ok())
    early, late = polling(now_ms=14, refresh=refresh), polling(now_ms=15, refresh=refresh)
    assert machine.before(early).wait_ms == 1
    assert machine.before(late).wait_ms == 0
    assert late.now_ns - early.now_ns == NS_PER_MS
