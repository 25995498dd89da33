"""What a client may say of a run: what is too long, too many or no such thing is refused in words, before anything."""

from __future__ import annotations

from typing import Any

import pytest

from protocol._budgets import LimitError
from protocol._checks import FieldsCheck, FieldValue, FileCheck, PersonCheck
from protocol._client_messages import OpenRun
from protocol._runs import AgentOptions
from supervisor.core.run_wishes import (
    ALL_CHECKS,
    MOST_AMOUNT,
    MOST_ANSWER,
    MOST_CHECKS,
    MOST_FIELDS,
    MOST_NAME,
    MOST_PATH,
    MOST_TEXT,
    limits_of,
    refuse_check,
    refuse_fields,
    refuse_opening,
    too_long,
    too_many,
)


def refused(**fields: Any) -> str:
    return refuse_opening(OpenRun(1, **fields), None, False) or ""


def test_what_a_client_means_is_taken() -> None:
    assert refused() == ""
    longest = {"goal": "g" * MOST_TEXT, "session": "s" * MOST_NAME, "workspace": "/" + "w" * (MOST_PATH - 1)}
    assert refused(**longest, checks=["c" * (ALL_CHECKS // MOST_CHECKS)] * MOST_CHECKS, profile="p" * MOST_NAME) == ""
    assert refused(session="a/../b ü", checks=["test 'a b' = c"]) == ""


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"goal": "g" * (MOST_TEXT + 1)}, "goal has 4001 characters; allowed: at most 4000"),
        ({"session": "s" * (MOST_NAME + 1)}, "session has 201"),
        ({"session": ""}, "session '' is not allowed"),
        ({"session": "a\nb"}, "printable"),
        ({"session": "a\0b"}, "printable"),
        ({"workspace": "here"}, "not an absolute path"),
        ({"workspace": "/a\0b"}, "not an absolute path"),
        ({"workspace": "/" + "w" * MOST_PATH}, "workspace has 4097"),
        ({"checks": ["true"] * (MOST_CHECKS + 1)}, "33 checks; allowed: at most 32"),
        ({"checks": ["true", "c" * (MOST_TEXT + 1)]}, "a check has 4001"),
        ({"checks": ["c" * MOST_TEXT] * 5}, "20000 characters together"),
        ({"checks": ["true", "echo 'open"]}, "is not a command line: No closing quotation"),
        ({"checks": [" "]}, "a check is empty"),
        ({"checks": ["a\0b"]}, "NUL"),
        ({"checks": [FileCheck("/out", matches="(")]}, "is no regular expression"),
        ({"checks": [FileCheck("/out", matches="a", exists=True)]}, "wants more than one thing"),
        ({"checks": [FileCheck("")]}, "has no path"),
        ({"checks": [FileCheck("/a\0b")]}, "has no path"),
        ({"checks": [FileCheck("out")]}, "is beneath the workspace, and the run has none"),
        ({"checks": [FileCheck("/out", equals="x" * (MOST_TEXT + 1))]}, "has 4001 characters"),
        ({"checks": [FileCheck("/" + "x" * MOST_PATH)]}, "its path has 4097 characters"),
        ({"checks": [FieldsCheck(())]}, "a check of 0 fields; allowed: 1 to 64"),
        ({"checks": [FieldsCheck(("a",) * 65)]}, "a check of 65 fields"),
        ({"checks": [FieldsCheck(("a", " "))]}, "a check of a field without a name"),
        ({"checks": [FieldsCheck(("x" * (MOST_NAME + 1),))]}, "a field's name has 201 characters"),
        ({"checks": [PersonCheck("x" * (MOST_TEXT + 1))]}, "a check's question has 4001"),
        ({"checks": [PersonCheck("x" * MOST_TEXT)] * 5}, "20000 characters together"),
        ({"profile": "p" * (MOST_NAME + 1)}, "profile has 201"),
        ({"goal": " \n", "agent": AgentOptions()}, "goal is empty"),
    ],
)
def test_what_cannot_be_is_refused_in_words(fields: dict[str, Any], said: str) -> None:
    assert said in refused(**fields)
    assert len(refused(**fields)) < 500, "and what was said is not said back whole"


def test_a_run_that_is_part_of_another_is_part_of_its_session() -> None:
    for session in (None, "s"):
        assert refuse_opening(OpenRun(1, session=session), "s", True) is None
    assert "not that of the run" in (refuse_opening(OpenRun(1, session="other"), "s", True) or "")
    assert "not that of the run" in (refuse_opening(OpenRun(1, session="other"), None, True) or "")


def test_checks_of_every_form_are_taken() -> None:
    forms = [FileCheck("out"), FileCheck("out", matches="^a"), FieldsCheck(("a",)), PersonCheck(), "true"]
    assert refused(checks=forms, workspace="/w") == ""
    assert refused(checks=[FileCheck("/tmp/out")]) == "", "a root of the tools may be there"


def test_the_fields_of_an_answer_are_held_to_their_bounds() -> None:
    assert refuse_fields({f"f{number}": FieldValue("x", ("c_1",)) for number in range(MOST_FIELDS)}) is None
    assert "65 fields" in (refuse_fields({f"f{number}": FieldValue("x") for number in range(65)}) or "")
    assert "together" in (refuse_fields({"f": FieldValue("x" * MOST_ANSWER)}) or "")
    assert "together" in (refuse_fields({"f": FieldValue("", ("x" * MOST_ANSWER, "y"))}) or "")
    assert "a field's name" in (refuse_fields({"f" * (MOST_NAME + 1): FieldValue("x")}) or "")


def test_a_check_is_a_command_line() -> None:
    assert refuse_check("pytest -q") is None
    assert refuse_check('echo "') is not None


def test_texts_and_amounts_are_held_to_their_bounds() -> None:
    assert too_long("it", "abc", 3) is None
    assert too_long("it", "abcd", 3) == "it has 4 characters; allowed: at most 3"
    assert too_many(tokens_in=MOST_AMOUNT, tokens_out=None) is None
    assert "tokens_out" in (too_many(tokens_in=1, tokens_out=MOST_AMOUNT + 1) or "")


@pytest.mark.parametrize("deadline", [0, -1, 2.0, "5", True, float("nan"), float("inf")])
def test_a_deadline_that_is_no_whole_number_of_milliseconds_is_refused(deadline: Any) -> None:
    with pytest.raises(LimitError, match="deadline_ms"):
        limits_of(OpenRun(1, deadline_ms=deadline))


def test_a_deadline_is_the_stricter_of_the_two_that_were_said() -> None:
    assert limits_of(OpenRun(1)) == {}
    assert limits_of(OpenRun(1, deadline_ms=5)) == {"wall_ms": 5}
    assert limits_of(OpenRun(1, deadline_ms=5, limits={"wall_ms": 3, "steps": 1})) == {"wall_ms": 3, "steps": 1}
