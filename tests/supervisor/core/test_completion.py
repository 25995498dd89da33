"""What is asked about a file and made of the answer, and when the fields of an answer are complete."""

from __future__ import annotations

import json
from typing import Any

import pytest

from protocol._checks import FieldsCheck, FieldValue, FileCheck, PersonCheck
from protocol._outcomes import CallResult, ErrorClass, ErrorInfo, Status
from supervisor.core.completion import file_call, judge_fields, judge_file, not_confirmed, to_confirm
from supervisor.core.evidence import Evidence


def result(status: Status = Status.OK, content: Any = None, code: str = "") -> CallResult:
    error = ErrorInfo(ErrorClass.ARGUMENT, code, f"told: {code}") if code else None
    return CallResult("c_1", "read_file", status, content=content, error=error)


def failed(code: str) -> CallResult:
    return result(Status.ERROR, code=code)


def read(text: str, truncated: bool = False) -> CallResult:
    return result(content={"text": text, "truncated": truncated})


THERE, GONE = FileCheck("out"), FileCheck("out", exists=False)
EQUAL, MATCH = FileCheck("out", equals="a\nb\n"), FileCheck("out", matches="^b")
VERDICTS: list[tuple[FileCheck, CallResult, str | None]] = [
    (THERE, read("x", truncated=True), None),
    (THERE, failed("not_text"), None),
    (THERE, failed("is_a_directory"), None),
    (THERE, failed("not_found"), "told: not_found"),
    (THERE, failed("permission_denied"), "told: permission_denied"),
    (THERE, result(Status.KILLED), "killed"),
    (GONE, failed("not_found"), None),
    (GONE, read("x"), "it is there"),
    (GONE, failed("not_text"), "it is there"),
    (GONE, failed("sandbox_denied"), "told: sandbox_denied"),
    (GONE, result(Status.KILLED), "killed"),
    (EQUAL, read("a\nb\n"), None),
    (EQUAL, read("a\nb\n", truncated=True), "from line 3 on"),
    (EQUAL, read("a\nc\n"), "from line 2 on"),
    (EQUAL, read("a\nb"), "from line 2 on"),
    (EQUAL, read(""), "from line 1 on"),
    (EQUAL, failed("not_text"), "told: not_text"),
    (EQUAL, failed("not_found"), "told: not_found"),
    (MATCH, result(content={"matches": [{"line": 2}], "truncated": True}), None),
    (MATCH, result(content={"matches": [], "truncated": False}), "no line of it does"),
    (MATCH, result(Status.KILLED), "killed"),
    (MATCH, failed("not_found"), "told: not_found"),
]


@pytest.mark.behaviour("M041")
@pytest.mark.parametrize(("check", "answer", "said"), VERDICTS)
def test_a_file_passes_by_what_is_in_it_and_by_nothing_else(
    check: FileCheck, answer: CallResult, said: str | None
) -> None:
    verdict = judge_file(check, answer)
    if said is None:
        assert verdict is None
    else:
        assert verdict is not None
        assert said in verdict
        assert "'out'" in verdict


def test_a_pattern_goes_to_the_worker_and_a_text_is_read_no_further_than_it_must_be() -> None:
    tool, arguments = file_call(FileCheck("out", matches="(a+)+$"))
    assert (tool, json.loads(arguments)) == ("search", {"pattern": "(a+)+$", "path": "out", "max": 1})
    tool, arguments = file_call(EQUAL)
    assert (tool, json.loads(arguments)) == ("read_file", {"path": "out", "max_lines": 4})
    assert json.loads(file_call(THERE).arguments) == {"path": "out", "max_lines": 1}


def known(*names: str) -> Evidence:
    kept = Evidence()
    for name in names:
        kept.add(name)
    return kept


ONE = FieldsCheck(("order",))
FIELDS: list[tuple[FieldsCheck, dict[str, FieldValue], str | None]] = [
    (ONE, {"order": FieldValue("4711", ("c_1",))}, None),
    (ONE, {"order": FieldValue("4711", ("c_1",)), "more": FieldValue("")}, None),
    (ONE, {}, "order is missing"),
    (ONE, {"order": FieldValue(" \n", ("c_1",))}, "order is empty"),
    (ONE, {"order": FieldValue("4711")}, "order names 0 pieces of evidence, and 1 are needed"),
    (ONE, {"order": FieldValue("4711", ("c_9",))}, "order names 'c_9', which the run does not have"),
    (ONE, {"order": FieldValue("4711", ("c_1", "c_9"))}, "order names 'c_9'"),
    (FieldsCheck(("order",), evidence=2), {"order": FieldValue("4711", ("c_1", "c_1"))}, "1 pieces of evidence"),
    (FieldsCheck(("order",), evidence=2), {"order": FieldValue("4711", ("c_1", "c_2"))}, None),
    (FieldsCheck(("order",), evidence=0), {"order": FieldValue("4711")}, None),
    (
        FieldsCheck(("order", "date"), least_evidence=2),
        {"order": FieldValue("4711", ("c_1",)), "date": FieldValue("today", ("c_1",))},
        "1 different pieces of evidence are named in all, and 2 are needed",
    ),
    (
        FieldsCheck(("order", "date"), least_evidence=2),
        {"order": FieldValue("4711", ("c_1",)), "date": FieldValue("today", ("c_2",))},
        None,
    ),
]


@pytest.mark.behaviour("M120")
@pytest.mark.parametrize(("check", "fields", "said"), FIELDS)
def test_an_answer_is_complete_when_each_field_rests_on_what_the_run_has(
    check: FieldsCheck, fields: dict[str, FieldValue], said: str | None
) -> None:
    verdict = judge_fields(check, fields, known("c_1", "c_2"))
    if said is None:
        assert verdict is None
    else:
        assert verdict is not None
        assert said in verdict


def test_a_refusal_says_what_could_have_been_named_and_is_bounded() -> None:
    verdict = judge_fields(ONE, {}, known("c_1", "doc-1"))
    assert verdict is not None
    assert verdict.endswith("Evidence that may be named: 'c_1', 'doc-1'")
    many = FieldsCheck(tuple(f"field {number}" for number in range(64)))
    long = {name: FieldValue("x", tuple(f"{number}" * 500 for number in range(64))) for name in many.fields}
    verdict = judge_fields(many, long, known())
    assert verdict is not None
    assert len(verdict) < 20_000
    assert "; and 56 more. Evidence that may be named: none yet" in verdict


def test_a_person_is_shown_the_answer_with_its_fields() -> None:
    shown = json.loads(to_confirm(PersonCheck("ok?"), "42", {"order": FieldValue("4711", ("c_1",))}))
    assert shown == {"answer": "42", "fields": {"order": {"value": "4711", "evidence": ["c_1"]}}, "question": "ok?"}
    assert json.loads(to_confirm(PersonCheck(), "42", {})) == {"answer": "42"}
    assert not_confirmed("no date") == "a person does not confirm the answer: no date"
    assert not_confirmed("") == "a person does not confirm the answer"
