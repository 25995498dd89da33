"""What the detectors say of calls: the same one, blocked ones, polls, cycles, failures alike, rewordings."""

from __future__ import annotations

import pytest

from protocol._contracts import Refresh
from supervisor.core.detector_sets import Levels
from supervisor.core.detectors import Detectors
from tests.supervisor.core.looping import (
    OFF,
    STRICT,
    Run,
    again,
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

# ---------------------------------------------------------------- the same call


@pytest.mark.behaviour("M014", "M015")
def test_a_call_that_failed_twice_is_warned_at_the_third_and_stops_the_run_at_the_fourth():
    run = Run().play(again(reading("a"), failed(), 9))
    assert run.said == [(3, "warn", "repeat_error"), (4, "stop", "repeat_error")]
    assert run.executed == 3
    assert run.stopped is not None
    assert (run.stopped.count, run.stopped.attempt, run.stopped.earlier) == (3, 4, "c_3")


@pytest.mark.behaviour("M027", "M052", "M154")
def test_a_call_that_succeeds_with_the_same_content_is_a_repetition_too_and_its_key_is_told():
    run = Run(STRICT).play(again(reading("a"), ok(), 9))
    assert run.said == [(3, "warn", "repeat_call"), (4, "stop", "repeat_call")]
    assert run.stopped is not None
    assert [one.key for one in run.stopped.fired] == ["search(a)"]
    digits = Run(STRICT).play(again(reading("a", call_fp="0123456789abcdef" * 4), ok(), 9))
    assert digits.stopped is not None
    assert digits.stopped.fired[0].key == "0123456789abcdef"


@pytest.mark.behaviour("M154")
def test_other_arguments_or_another_outcome_are_no_repetition():
    other_arguments = [(reading(f"file {n}"), ok()) for n in range(60)]
    other_outcomes = [(reading("clock"), ok(n)) for n in range(60)]
    assert Run().play(other_arguments).said == []
    assert Run().play(other_outcomes).said == []


def test_another_outcome_begins_the_count_anew():
    calls = [*again(reading("a"), ok(1), 5), *again(reading("a"), ok(2), 5)]
    assert Run().play(calls).said == [(6, "warn", "repeat_call")]
    assert Run().play([*calls, (reading("a"), ok(2))]).said == [(6, "warn", "repeat_call"), (11, "warn", "repeat_call")]


def test_a_change_by_another_call_begins_the_count_anew():
    test = again(reading("test"), failed(), 2)
    run = Run().play([*test, (writing("edit 1"), wrote()), *[(reading("test", state=1), failed())] * 2])
    assert run.said == []
    assert run.call(reading("test", state=1), failed()).level == "warn"


def test_what_a_call_changes_itself_does_not_hide_its_own_repetition():
    run = Run(STRICT)
    run.play((writing("mark", state=state), wrote()) for state in range(9))
    assert run.said == [(3, "warn", "repeat_call"), (4, "stop", "repeat_call")]


def test_a_state_that_rose_without_a_call_is_a_new_situation():
    run = Run(STRICT)
    run.play((reading("a", state=state), ok()) for state in range(9))
    assert run.said == []


@pytest.mark.case("B101")
def test_calls_in_between_hide_no_repetition():
    make, cheap = writing("make", "run", failure_is_feedback=True), reading("now", "now")
    run = Run()
    for number in range(60):
        run.play([(make, failed("1 error", "exit_2", feedback=True)), (cheap, ok(number))])
        if run.stopped:
            break
    assert [(level, detector) for _, level, detector in run.said] == [
        ("warn", "repeat_error"),
        ("stop", "repeat_error"),
    ]
    assert run.stopped is not None
    assert run.stopped.count == 3


@pytest.mark.case("B101")
@pytest.mark.parametrize(("note", "detector"), [("thinking", "ping_pong"), ("thought {n}", "no_progress")])
def test_cheap_writes_in_between_excuse_a_repetition_for_a_few_steps_only(note, detector):
    """Each note is a change of the state, and so a new situation for the call that fails."""
    calls = []
    for n in range(60):
        make = writing("make", "run", n, failure_is_feedback=True)
        calls.append((make, failed("1 error", "exit_2", feedback=True)))
        calls.append((writing(note.format(n=n), "note", n), wrote("noted")))
    patient = Run(no_progress=OFF) if detector == "ping_pong" else Run()
    assert patient.play(calls, steps=True).stopped is not None
    assert patient.stopped.detector == detector
    assert patient.number <= 9


def test_success_resets_no_count():
    page = reading('{"page": 7}', "read_page")
    assert Run().play(again(page, ok("the same text"), 63)).firsts() == [
        (6, "warn", "repeat_call"),
        (9, "block", "repeat_call"),
        (11, "stop", "repeat_call"),
    ]
    assert Run(STRICT).play(again(page, ok("the same text"), 63), steps=True).said == [
        (3, "warn", "repeat_call"),
        (4, "stop", "repeat_call"),
    ]


@pytest.mark.case("B102")
def test_a_call_that_uses_up_its_deadline_may_be_repeated_less_often_than_one_that_fails_at_once():
    slow, quick = Run().play(again(reading("a"), hung(), 9)), Run().play(again(reading("a"), failed(), 9))
    assert (slow.said, slow.executed) == ([(2, "warn", "repeat_error"), (3, "stop", "repeat_error")], 2)
    assert quick.executed == 3
    assert slow.stopped is not None
    assert (slow.stopped.count, slow.stopped.attempt) == (4, 3)


def test_failures_that_differ_are_failures_of_the_same_call():
    run = Run().play((reading("a"), failed(f"at {n}")) for n in range(9))
    assert run.said == [(3, "warn", "repeat_error"), (4, "stop", "repeat_error")]


def test_a_failure_that_is_a_result_and_differs_is_another_result():
    test = reading("test", "shell", failure_is_feedback=True)
    assert Run().play((test, failed(f"{n} red", "exit_1", feedback=True)) for n in range(60)).said == []
    same = Run().play(again(test, failed("2 red", "exit_1", feedback=True), 9))
    assert same.said == [(3, "warn", "repeat_error"), (4, "stop", "repeat_error")]


def test_a_success_ends_the_row_of_failures():
    calls = [*again(reading("a"), failed(), 2), (reading("a"), ok()), *again(reading("a"), failed(), 2)]
    run = Run().play(calls)
    assert run.said == [(3, "warn", "repeat_error")]


def test_an_attempt_nobody_knows_the_end_of_counts_and_is_no_other_outcome():
    calls = [*again(reading("a"), ok(), 3), (reading("a"), lost()), (reading("a"), ok())]
    run = Run(STRICT, repeat_error=OFF, repeat_call=Levels(5)).play(calls)
    assert run.said == []
    assert run.call(reading("a"), ok()).count == 5
    assert Run().play(again(reading("a"), lost(), 9)).said == [(3, "warn", "repeat_error"), (4, "stop", "repeat_error")]


def test_attempts_in_flight_are_prior_attempts():
    detectors = Detectors(STRICT)
    ask = reading("a")
    for prior, level in enumerate(("pass", "pass", "warn", "stop")):
        verdict = detectors.before(ask)
        assert (verdict.level, verdict.prior) == (level, prior)
        detectors.begin(ask, "c")


@pytest.mark.behaviour("M161")
def test_looking_counts_nothing():
    run = Run().play(again(reading("a"), ok(), 5))
    before = run.detectors.dump()
    assert {run.detectors.before(reading("a")).count for _ in range(50)} == {5}
    assert run.detectors.dump() == before


def test_an_end_of_an_attempt_that_is_not_known_means_nothing():
    detectors = Detectors()
    before = detectors.dump()
    assert detectors.end(7, ok()) is False
    assert detectors.dump() == before


@pytest.mark.behaviour("M157")
def test_an_attempt_is_recorded_with_tool_arguments_and_time_and_its_outcome_is_filled_in_when_it_ends():
    detectors = Detectors()
    first = detectors.begin(reading("a", now_ns=5), "c_1")
    second = detectors.begin(reading("b", now_ns=6), "c_2")

    def recorded() -> list[list[object]]:
        return [[*attempt[1:5], attempt[11]] for attempt in detectors.dump()["attempts"]]

    assert recorded() == [["search", "search(a)", "c_1", 5, None], ["search", "search(b)", "c_2", 6, None]]
    detectors.end(second, ok("found"))
    assert [record[-1] for record in recorded()] == [None, "ok:found"]
    detectors.end(first, failed())
    assert [record[-1] for record in recorded()] == ["error:raised:x", "ok:found"]


@pytest.mark.behaviour("M158")
def test_what_fired_has_a_detector_a_level_a_count_and_a_sentence():
    run = Run().play(again(reading("a"), ok(), 5))
    assert (run.call(reading("b"), ok()).level, run.call(reading("b"), ok()).fired) == ("pass", ())
    (fired,) = run.call(reading("a"), ok()).fired
    assert (fired.detector, fired.level, fired.count, fired.call) == ("repeat_call", "warn", 5, "c_5")
    assert fired.text.startswith("Attempt 6 of the same call of search")


# ---------------------------------------------------------------- blocked attempts


@pytest.mark.behaviour("M107")
def test_a_blocked_call_refers_to_the_earlier_result_and_leaves_the_run_going():
    run = Run().play(again(reading("a"), ok(), 9))
    assert run.said[-1] == (9, "block", "repeat_call")
    assert run.stopped is None
    verdict = run.call(reading("a"))
    assert (verdict.level, verdict.earlier, verdict.settles) == ("block", "c_8", False)
    assert run.call(reading("b"), ok("other")).level == "pass"


@pytest.mark.case("B100")
def test_a_run_recovers_from_a_block():
    run = Run().play(again(reading("a"), ok(), 9))
    useful = [(reading(f"useful {n}"), ok(n)) for n in range(4)]
    run.play([*useful, (writing("edit"), wrote())])
    assert run.call(reading("a", state=1), ok("after the edit")).level == "pass"
    assert run.stopped is None


def test_blocked_attempts_count_so_that_insisting_ends_the_run():
    run = Run().play(again(reading("a"), ok(), 50))
    assert (run.number, run.executed) == (11, 8)


def test_blocked_attempts_of_a_failing_call_count_as_failures():
    run = Run(repeat_error=Levels(2, 3, 5), repeat_call=OFF).play(again(reading("a"), failed(), 9))
    assert run.firsts() == [(3, "warn", "repeat_error"), (4, "block", "repeat_error"), (6, "stop", "repeat_error")]


# ---------------------------------------------------------------- polls


@pytest.mark.behaviour("M108", "M151")
def test_a_poll_whose_answer_changes_may_go_on_for_ever():
    assert Run().play((polling(), ok(n)) for n in range(300)).said == []


@pytest.mark.behaviour("M151")
def test_a_poll_whose_answer_does_not_change_is_warned_then_blocked_then_stopped():
    run = Run().play(again(polling(), ok("pending"), 50))
    assert run.firsts() == [
        (11, "warn", "poll_no_progress"),
        (21, "block", "poll_no_progress"),
        (31, "stop", "poll_no_progress"),
    ]


def test_steps_of_nothing_but_polls_are_left_to_their_own_detector():
    run = Run().play(again(polling(), ok("pending"), 50), steps=True)
    assert run.stopped is not None
    assert (run.stopped.detector, run.number) == ("poll_no_progress", 31)


def test_a_failing_poll_is_no_repeated_error():
    assert Run().play(again(polling(), failed("connection refused"), 10)).said == []


@pytest.mark.behaviour("M108")
def test_a_poll_before_its_time_is_not_executed_and_told_how_long_to_wait():
    refresh = Refresh(min_interval_ms=1_000)
    run = Run().play([(polling(now_ms=0, refresh=refresh), ok())])
    verdict = run.call(polling(now_ms=400, refresh=refresh))
    assert (verdict.level, verdict.wait_ms, verdict.earlier, run.executed) == ("too_early", 600, "c_1", 1)
    assert "600 ms" in verdict.text
    ask = polling(now_ms=1_000, refresh=refresh)
    ask.now_ns -= 1
    assert run.call(ask).wait_ms == 1
    assert run.call(polling("build 8", 400, refresh)).level == "pass"
    assert run.call(polling(now_ms=1_000, refresh=refresh)).level == "pass"


def test_what_came_too_early_counts_as_no_poll_and_not_for_the_breaker():
    refresh = Refresh(min_interval_ms=10)
    run = Run()
    for now_ms in range(150):
        run.call(polling(now_ms=now_ms, refresh=refresh), ok("pending"))
    assert (run.executed, run.stopped) == (15, None)
    assert {level for _, level, _ in run.said} == {"too_early", "warn"}


def test_steps_in_which_polls_come_too_early_and_nothing_else_happens_are_steps_without_progress():
    refresh = Refresh(min_interval_ms=1_000)
    run = Run().play(((polling(now_ms=n, refresh=refresh), ok()) for n in range(9)), steps=True)
    assert run.stopped is not None
    assert (run.stopped.detector, run.number) == ("no_progress", 5)
    impatient = Run()
    for n in range(9):
        impatient.call(polling(now_ms=1_000 * n, refresh=refresh), ok("pending"))
        impatient.call(polling(now_ms=1_000 * n + 1, refresh=refresh))
        impatient.step_over()
    assert impatient.stopped is None


@pytest.mark.behaviour("M108")
def test_a_tool_says_how_often_an_answer_that_does_not_change_may_be_asked_for():
    run = Run().play(again(polling(refresh=Refresh(max=3)), ok("pending"), 5))
    assert run.said == [(5, "block", "poll_no_progress")]
    assert Run().play((polling(refresh=Refresh(max=3)), ok(n)) for n in range(60)).said == []
    assert [level for _, level, _ in Run().play(again(polling(refresh=Refresh(max=0)), ok(), 2)).said] == ["block"]
    over_a_warning = Run().play(again(polling(refresh=Refresh(max=12)), ok(), 14))
    assert over_a_warning.firsts() == [(11, "warn", "poll_no_progress"), (14, "block", "poll_no_progress")]


def test_polls_neither_bring_the_breaker_nor_meet_it():
    polled = Run().play(again(polling(), ok(), 20))  # ten of them were warned of
    assert polled.play(again(reading("a"), ok("other"), 6)).said[-1] == (26, "warn", "repeat_call")
    looped = Run(window=60)
    for n in range(4):
        looped.play(again(reading(f"loop {n}"), ok(), 8 if n < 3 else 6))  # ten warnings
    refresh = Refresh(min_interval_ms=1)
    looped.play((polling(now_ms=n, refresh=refresh), ok()) for n in range(11))
    assert looped.said[-1] == (41, "warn", "poll_no_progress")
    assert looped.call(polling(now_ms=10, refresh=refresh)).level == "too_early"
    assert looped.stopped is None


# ---------------------------------------------------------------- cycles


@pytest.mark.behaviour("M151")
@pytest.mark.case("B099")
def test_two_calls_in_turn_are_stopped_as_a_pair_whichever_of_them_was_blocked():
    a, b = (reading("q"), ok("found")), (reading("1", "get"), ok("thing"))
    assert Run().play(around(20, a, b)).firsts() == [
        (5, "warn", "ping_pong"),
        (7, "block", "ping_pong"),
        (9, "stop", "ping_pong"),
    ]
    insisting = Run().play([*around(3, a, b), a, *[b] * 20])  # a is blocked, and the model goes on with the other one
    assert insisting.stopped is not None
    assert insisting.executed < 20


def test_any_cycle_of_two_to_five_calls_is_seen_at_its_second_third_and_fourth_lap():
    for period in range(2, 6):
        calls = [(reading(f"a{n}"), ok(n)) for n in range(period)]
        run = Run(breaker=OFF, repeat_call=OFF).play(around(9, *calls))
        name = "ping_pong" if period == 2 else "cycle"
        assert run.firsts() == [
            (2 * period + 1, "warn", name),
            (3 * period + 1, "block", name),
            (4 * period + 1, "stop", name),
        ]


def test_a_cycle_whose_outcomes_change_is_none():
    edit = writing("edit", "edit_file")
    calls = [call for n in range(40) for call in ((edit, wrote()), (reading("test", state=n + 1), ok(f"{n} red")))]
    assert Run(repeat_call=OFF).play(calls).said == []


def test_polls_in_turn_are_no_cycle():
    assert Run().play(around(10, (polling("build 7"), ok()), (polling("build 8"), ok()))).said == []


# ---------------------------------------------------------------- other detectors


def test_different_calls_that_fail_alike_are_warned_and_stopped():
    run = Run().play((reading(f"a{n}"), failed(n, "no_such_table")) for n in range(20))
    assert run.firsts() == [(4, "warn", "same_error"), (9, "stop", "same_error")]


def test_the_same_error_is_none_where_failures_are_results_codes_differ_or_one_succeeds():
    feedback = ((reading(f"a{n}", failure_is_feedback=True), failed(n)) for n in range(20))
    codes = ((reading(f"a{n}"), failed(n, f"code_{n}")) for n in range(20))
    success = ((reading(f"a{n}"), ok(n) if n % 3 == 2 else failed(n)) for n in range(20))
    assert [Run().play(calls).said for calls in (feedback, codes, success)] == [[], [], []]


@pytest.mark.behaviour("M146")
def test_reworded_calls_with_the_same_outcome_are_warned_and_at_last_stopped_by_the_breaker():
    texts = [
        f"{first} trio cancel scope deadline {second}" for first in ("the", "please") for second in ("?", "!", "of")
    ]
    run = Run().play((worded(f"{text}{' ' * n}"), ok("nothing")) for n in range(40) for text in texts)
    assert run.firsts() == [(3, "warn", "near_duplicate"), (13, "stop", "breaker")]


def test_rewording_is_nothing_where_outcomes_differ_the_tool_writes_or_the_words_do():
    differing = ((worded(f"trio cancel scope {'!' * n}"), ok(n)) for n in range(30))
    writes = ((worded(f"trio cancel scope {'!' * n}", read_only=False), ok()) for n in range(30))
    words = "one two three four five six seven eight nine ten eleven twelve".split()
    unlike = ((worded(f"{words[n]} {words[n - 1]}"), ok()) for n in range(12))
    assert [Run().play(calls).said for calls in (differing, writes, unlike)] == [[], [], []]


def test_refused_calls_are_told_and_only_too_many_in_a_row_end_the_run():
    for kind in ("unknown_tool", "invalid_arguments"):
        run = Run()
        assert [run.refused(kind).level for _ in range(6)] == ["pass"] * 5 + ["stop"]
        assert run.said == [(6, "stop", kind)]
        other = Run()
        for _ in range(9):
            assert [other.refused(kind).level for _ in range(5)] == ["pass"] * 5
            other.call(reading("a"), ok(object()))
        assert other.stopped is None


def test_a_reworded_call_after_a_change_or_another_outcome_is_no_duplicate():
    alike = [(worded("trio cancel scope"), ok("nothing")), (worded("cancel scope, trio"), ok("nothing"))]
    assert Run().play([*alike, (worded("scope? trio cancel"), ok("nothing"))]).said == [(3, "warn", "near_duplicate")]
    changed = Run().play([*alike, (writing("edit"), wrote())])
    assert changed.call(worded("scope? trio cancel", situation_fp="@1"), ok("nothing")).level == "pass"
    found = Run().play([*alike, (worded("the cancel scope of trio"), ok("found"))])
    assert found.said == [(3, "warn", "near_duplicate")]
    assert found.call(worded("scope? trio cancel"), ok("nothing")).level == "pass"


def test_reworded_polls_are_no_duplicates():
    calls = [(worded(f"build state {'!' * n}", refresh=Refresh()), ok("pending")) for n in range(20)]
    assert Run().play(calls).said == []


def test_a_call_that_failed_has_changed_nothing_that_would_excuse_a_repetition():
    broken = [(writing(f"b{n}"), failed(n, f"E{n}", changed_state=True)) for n in range(2)]
    marks = [(writing("mark", state=state), wrote()) for state in range(3)]
    calls = [marks[0], broken[0], marks[1], broken[1], marks[2]]
    assert Run(STRICT).play(calls).said == [(5, "warn", "repeat_call")]


@pytest.mark.behaviour("M155")
def test_the_breaker_ends_a_run_of_many_small_loops_and_no_healthy_call():
    run = Run()
    for n in range(3):
        run.play(again(reading(f"loop {n}"), ok(), 8))  # three warnings of each
    assert run.call(reading("healthy"), ok("new")).level == "pass"
    run.play(again(reading("loop 3"), ok(), 6))
    assert run.stopped is None
    verdict = run.call(reading("loop 3"), ok())
    assert (verdict.detector, verdict.level, verdict.count) == ("breaker", "stop", 10)
    assert [one.detector for one in verdict.fired] == ["breaker", "repeat_call"]


@pytest.mark.behaviour("M153")
def test_what_has_left_the_window_is_nothing_to_the_breaker():
    run = Run()
    for n in range(3):
        run.play(again(reading(f"loop {n}"), ok(), 8))
    run.play((reading(f"useful {n}"), ok(n)) for n in range(30))
    run.play(again(reading("loop 3"), ok(), 8))
    assert run.stopped is None
    wider = Run(window=60)
    for n in range(3):
        wider.play(again(reading(f"loop {n}"), ok(), 8))
    wider.play([*((reading(f"useful {n}"), ok(n)) for n in range(30)), *again(reading("loop 3"), ok(), 8)])
    assert wider.stopped is not None
