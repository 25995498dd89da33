"""What a tool that knows says of a call whose outcome nobody saw, and what that makes of the call's result. Pure.

Rules
1. The one who is asked answers ``{"state": …, "result": …}``: as its value, or (a command) as what it prints.
2. ``done``: the effect is there. The call has succeeded, however it ended; ``result``, where there is one, is its
   content.
3. ``not_done``: the effect is not there and will not come. The call has definitely failed, and may be sent again.
4. ``unknown``, and whatever else is said, or a tool that fails to answer: it stays open, and is told as that.
5. How the call ended (killed, crashed, cancelled) stays as it is: that is true whatever became of its effect.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgspec

from protocol._outcomes import WENT_WELL, CallResult, Delivery, Notice

State = Literal["done", "not_done", "unknown"]
_STATES: dict[object, State] = {"done": "done", "not_done": "not_done", "unknown": "unknown"}
NOTICE = "reconciled"


class Finding(NamedTuple):
    """What was found out. ``why``: in words, for people; ``result``: what the call would have answered."""

    state: State
    why: str
    result: Any = None


def finding_of(tool: str, answer: CallResult) -> Finding:
    """What the tool that was asked has said."""
    if answer.status not in WENT_WELL:
        return Finding("unknown", f"{tool} was asked and gave no answer ({answer.summary})")
    said = answer.content if isinstance(answer.content, dict) else _printed(answer)
    if said is None or (state := _STATES.get(_hashable(said.get("state")))) is None:
        return Finding("unknown", f'{tool} was asked and gave no {{"state": "done" | "not_done" | "unknown"}}')
    words = {"done": "that it was done", "not_done": "that it was not done", "unknown": "that it does not know either"}
    return Finding(state, f"{tool} says {words[state]}", said.get("result"))


def apply(finding: Finding, result: CallResult) -> None:
    """Say it in the result of the call that was asked about, before that is told (rules 2 to 5)."""
    match finding.state:
        case "done":
            result.delivery, result.retryable = Delivery.SUCCEEDED, False
            result.next_action = f"{finding.why}: do not repeat it."
            if finding.result is not None:
                result.content = finding.result
        case "not_done":
            result.delivery, result.retryable = Delivery.FAILED_DEFINITE, True
            result.next_action = f"{finding.why}: it may be sent again."
    level = "warn" if finding.state == "unknown" else "info"
    result.notices.append(Notice(NOTICE, level, finding.why))


def _printed(answer: CallResult) -> dict[str, Any] | None:
    """What a command has printed, when that is one JSON object and the whole of it is at hand."""
    if answer.output.truncated:
        return None
    try:
        said = msgspec.json.decode(answer.output.view)
    except (msgspec.DecodeError, RecursionError):
        return None
    return said if isinstance(said, dict) else None


def _hashable(value: object) -> object:
    return value if isinstance(value, str) else None
