"""Secrets are taken out of texts, of what is in lists and dicts, of JSON, and of results."""

from __future__ import annotations

import json

import pytest

from protocol import CallResult, Status
from protocol._outcomes import ErrorClass, ErrorInfo, Notice, OutputInfo
from supervisor.core.redaction import Redaction

VALUE = "s3cr3t-value"


def test_a_value_becomes_the_name_of_its_variable_wherever_it_stands() -> None:
    redaction = Redaction({"TOKEN": VALUE})
    assert redaction.text(f"a {VALUE} b{VALUE}") == "a [TOKEN] b[TOKEN]"
    assert redaction.value({VALUE: [VALUE, {"x": (VALUE, 7, None)}]}) == {
        "[TOKEN]": ["[TOKEN]", {"x": ["[TOKEN]", 7, None]}]
    }
    assert redaction.text("nothing of it") == "nothing of it"


def test_one_that_contains_another_is_taken_out_whole() -> None:
    assert Redaction({"SHORT": "abcdef", "LONG": "xabcdefx"}).text("xabcdefx abcdef") == "[LONG] [SHORT]"


@pytest.mark.parametrize("value", ["", "1", "12345"])
def test_a_short_one_is_left_in_words_that_have_nothing_to_do_with_it(value: str) -> None:
    redaction = Redaction({"PIN": value})
    assert not redaction
    assert redaction.text("port 12345, 1 try") == "port 12345, 1 try"


@pytest.mark.parametrize("value", ['quo"ted\\value', "line\nbreak", "schlüssel", VALUE])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_json_stays_json_without_it(value: str, ascii_only: bool) -> None:
    told = Redaction({"TOKEN": value}).json(json.dumps({"text": f"a {value}!"}, ensure_ascii=ascii_only))
    assert json.loads(told) == {"text": "a [TOKEN]!"}


def test_what_is_learnt_later_counts_too() -> None:
    redaction = Redaction()
    assert redaction.text(VALUE) == VALUE
    redaction.learn({"TOKEN": VALUE})
    redaction.learn({})
    assert redaction.text(VALUE) == "[TOKEN]"


@pytest.mark.case("B130")
def test_nothing_that_a_tool_can_put_into_a_result_keeps_it() -> None:
    result = CallResult(
        "c_1",
        "t",
        Status.ERROR,
        content={"said": VALUE},
        items=[VALUE],
        error=ErrorInfo(ErrorClass.TOOL, f"code {VALUE}", VALUE),
        next_action=VALUE,
        summary=VALUE,
        output=OutputInfo(5, False, f"view {VALUE}"),
        notices=[Notice("n", "info", VALUE)],
    )
    Redaction({"TOKEN": VALUE}).result(result)
    assert VALUE not in str(result)
    assert result.content == {"said": "[TOKEN]"}
