"""A run's events as a person reads them."""

import pytest

from deadlined.cli._run_story import Story
from protocol._events import Event, EventKind

ADMITTED = {"limits": {"steps": 25}, "deadline_ms": 480_000, "checks": [], "profile": "edit"}


@pytest.fixture
def told():
    """Tell a story further: the lines of one more event, ``at_s`` after the first."""
    story, count = Story(), iter(range(1, 1_000))

    def tell(kind, call=None, at_s=0.0, **data):
        return story.lines(Event(next(count), int(at_s * 1_000), kind, call, "r_1", 0, data, ""))

    return tell


def test_a_run_begins_with_its_bounds_and_what_ends_it(told):
    begun = told(EventKind.RUN_ADMITTED, **{**ADMITTED, "checks": ["make test", {"kind": "person"}]})
    shown = "r_1 · profile edit · 8 m 00 s left · done when: make test · done when: a person confirms the answer"
    assert begun == [shown]


@pytest.mark.behaviour("M168")
def test_a_step_says_what_is_left_of_the_time_and_what_was_used_of_every_limit(told):
    told(EventKind.RUN_ADMITTED, **{**ADMITTED, "limits": {"steps": 25, "wall_ms": 480_000, "tokens_total": 15_000}})
    told(EventKind.BUDGET_RESERVED, charge={"tokens_total": 15_000})
    told(EventKind.BUDGET_SETTLED, charge={"tokens_total": -1_500})
    step = told(EventKind.STEP_BEGUN, at_s=90, step=3, charge={"steps": 1})
    assert step == ["step 3 of 25 · 6 m 30 s left · tokens_total 13500 of 15000 (90 %)"]


def test_a_run_without_a_limit_of_steps_only_counts_them(told):
    told(EventKind.RUN_ADMITTED, **{**ADMITTED, "limits": {}})
    assert told(EventKind.STEP_BEGUN, step=3) == ["step 3 · 8 m 00 s left"]


def test_calls_that_run_together_are_told_apart_when_they_end(told):
    assert told(EventKind.CALL_VALIDATED, "c_1", tool="shell", arguments='{"argv":\n ["make"]}') == [
        '  shell {"argv": ["make"]}'
    ]
    assert told(EventKind.CALL_VALIDATED, "c_2", tool="pay", arguments=None) == ["  pay"]
    ended = {"delivery": "unknown", "duration_ms": 2_000}
    assert told(EventKind.CALL_ENDED, "c_2", tool="pay", status="killed", reason="time_budget", **ended) == [
        "    pay: killed (time_budget) after 2.0 s"
    ]
    assert told(EventKind.CALL_ENDED, "c_1", tool="shell", status="ok", reason=None, **ended) == [
        "    shell: ok after 2.0 s"
    ]


def test_a_long_argument_is_cut_and_cannot_break_the_line(told):
    [line] = told(EventKind.CALL_VALIDATED, "c_1", tool="python", arguments='{"code": "' + "x\n" * 300)
    assert len(line) < 120
    assert line.endswith("…")


def test_the_calls_of_a_check_are_not_told_as_steps(told):
    ended = {"tool": "shell", "status": "error", "reason": None, "delivery": "succeeded", "duration_ms": 3}
    assert told(EventKind.CALL_ENDED, "c_1", **ended) == []
    assert told(EventKind.FINISH_REFUSED, refusals=1, text="check 'make test': 1 failed\nsee") == [
        "  the end is refused (1): check 'make test': 1 failed see"
    ]


def test_another_attempt_is_one_short_line_whoever_failed(told):
    [line] = told(
        EventKind.RETRY_SCHEDULED, delay_ms=500, text='Traceback:\n  File "x"\n' + "long " * 200, **{"class": "t"}
    )
    assert line.startswith("  the model again in 500 ms: Traceback: File")
    assert len(line) <= 240
    assert told(
        EventKind.RETRY_SCHEDULED, "c_1", tool="fetch", delay_ms=250, attempt=2, **{"class": "worker_lost"}
    ) == ["  fetch again in 250 ms: worker_lost"]


def test_refusals_and_detectors_say_why(told):
    assert told(EventKind.CALL_REFUSED, tool="tell", reason="unknown_tool", text="there is no tool 'tell'") == [
        "  tell: not done (unknown_tool): there is no tool 'tell'"
    ]
    assert told(EventKind.DETECTOR_FIRED, detector="repeat_call", level="warn", count=5) == [
        "  repeat_call: warn (5 so far)"
    ]
    assert told(EventKind.BUDGET_REFUSED, dimension="steps", text="25 of 25 steps") == ["  budget: 25 of 25 steps"]


def test_a_question_names_its_approval_and_the_answer_too(told):
    assert told(EventKind.APPROVAL_ASKED, "c_1", approval="a_1", tool="pay", reason="it may change something") == [
        "  pay: waits for a person (a_1): it may change something"
    ]
    assert told(EventKind.APPROVAL_DECIDED, "c_1", approval="a_1", decision="reject", note="not today") == [
        "  a_1: reject: not today"
    ]


def test_time_stands_still_while_a_run_waits(told):
    told(EventKind.RUN_ADMITTED, **ADMITTED)
    assert told(EventKind.RUN_RESUMED, at_s=9_000, remaining_ms=400_000, answer="4711") == [
        "it goes on: 4711 · 6 m 40 s left"
    ]
    assert told(EventKind.STEP_BEGUN, at_s=9_010, step=2) == ["step 2 of 25 · 6 m 30 s left"]


def test_what_says_nothing_to_a_person_is_left_out_and_so_is_what_nobody_knows(told):
    assert told(EventKind.CALL_SENT, "c_1") == []
    assert told("a_kind_of_later_days", "c_1", what="ever") == []
