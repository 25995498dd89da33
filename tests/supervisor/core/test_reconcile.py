"""What a tool that was asked has said, and what that makes of the result of the call it was asked about."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from protocol import CallResult, Delivery, Reason, Status
from protocol._outcomes import OutputInfo
from supervisor.core.reconcile import Finding, apply, finding_of


def answer(content: Any = None, printed: str = "", truncated: bool = False, status: Status = Status.OK) -> CallResult:
    output = OutputInfo(len(printed), truncated, printed)
    return CallResult("c_1.reconcile", "look", status, content=content, output=output, summary="look: ok")


def killed() -> CallResult:
    return CallResult(
        "c_1", "pay", Status.KILLED, reason=Reason.TIME_BUDGET, content=None, delivery=Delivery.UNKNOWN, retryable=False
    )


@pytest.mark.parametrize("state", ["done", "not_done", "unknown"])
def test_a_value_and_what_a_command_prints_say_the_same(state: str) -> None:
    value = finding_of("look", answer({"state": state, "result": [1]}))
    printed = finding_of("look", answer(printed=f'{{"result": [1], "state": "{state}"}}\n'))
    assert value == printed
    assert (value.state, value.result) == (state, [1])


@pytest.mark.parametrize(
    "odd",
    [
        answer(),
        answer("done"),
        answer({"state": "DONE"}),
        answer({"state": ["done"]}),
        answer({"status": "done"}),
        answer(printed="done"),
        answer(printed='["done"]'),
        answer(printed='{"state": "done"} {"state": "done"}'),
        answer(printed="[" * 5_000),
        answer(printed='{"state": "done"}', truncated=True),
        answer({"state": "done"}, status=Status.ERROR),
        answer({"state": "done"}, status=Status.KILLED),
        answer(printed='{"state": "done"}', status=Status.ERROR),
    ],
)
def test_whatever_else_is_said_is_not_known(odd: CallResult) -> None:
    finding = finding_of("look", odd)
    assert finding.state == "unknown"
    assert "look was asked" in finding.why


@pytest.mark.behaviour("M117")
@pytest.mark.parametrize(
    ("state", "delivery", "retryable"),
    [
        ("done", Delivery.SUCCEEDED, False),
        ("not_done", Delivery.FAILED_DEFINITE, True),
        ("unknown", Delivery.UNKNOWN, False),
    ],
)
def test_only_who_knows_turns_unknown_into_something_else(state: Any, delivery: Delivery, retryable: bool) -> None:
    result = killed()
    apply(Finding(state, "look says so", None), result)
    assert (result.delivery, result.retryable) == (delivery, retryable)
    assert (result.status, result.reason) == (Status.KILLED, Reason.TIME_BUDGET), "that stays true"
    assert [notice.text for notice in result.notices] == ["look says so"]


def test_what_it_would_have_answered_is_its_content_only_when_it_was_done() -> None:
    told = {}
    for state in ("done", "not_done", "unknown"):
        result = killed()
        apply(Finding(state, "", {"receipt": 7}), result)  # type: ignore[arg-type]  # the three words
        told[state] = result.content
    assert told == {"done": {"receipt": 7}, "not_done": None, "unknown": None}
    assert msgspec.msgpack.encode(killed())
