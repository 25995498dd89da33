"""The tools that are the loop's own: how a model asks for the end, and how it asks a person. What they look like to it,
and what its arguments mean, read as strictly as those of any tool.
"""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

import msgspec

from protocol import InvalidArguments
from protocol._checks import FieldValue
from supervisor.core.arguments import parse
from supervisor.core.model_events import ToolCall, ToolSpec
from supervisor.core.run_wishes import MOST_ANSWER, refuse_fields, too_long

Form = TypeVar("Form", bound=msgspec.Struct)
_SHOWN = 400


class Finish(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The model thinks that the task is done."""

    answer: str
    fields: dict[str, FieldValue] = {}


class Question(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Something that only a person can say."""

    question: str


HostCall: TypeAlias = Finish | Question
_EVIDENCE = {"type": "array", "items": {"type": "string"}, "description": "ids of calls that show it"}
FINISH = ToolSpec(
    "finish",
    "End the task with its answer. Alone in its turn. Checks may refuse it, and say why.",
    {
        "type": "object",
        "properties": {
            "answer": {"type": "string", "description": "the whole answer, for whoever gave the task"},
            "fields": {
                "type": "object",
                "description": "single facts of the answer, where they were asked for",
                "additionalProperties": {
                    "type": "object",
                    "properties": {"value": {"type": "string"}, "evidence": _EVIDENCE},
                    "required": ["value"],
                    "additionalProperties": False,
                },
            },
        },
        "required": ["answer"],
        "additionalProperties": False,
    },
)
ASK_USER = ToolSpec(
    "ask_user",
    "Ask a person for what is missing. Alone in its turn. The task waits for the answer.",
    {
        "type": "object",
        "properties": {"question": {"type": "string", "description": "one question that can be answered in a line"}},
        "required": ["question"],
        "additionalProperties": False,
    },
)
_FORMS: dict[str, type[HostCall]] = {FINISH.name: Finish, ASK_USER.name: Question}


class HostToolError(ValueError):
    """Why a call of a host tool means nothing, for the model."""


def is_host_call(call: ToolCall) -> bool:
    """Whether it is the loop's own, and not the daemon's."""
    return call.name in _FORMS


def read_host_call(call: ToolCall) -> HostCall:
    """What the model asks of the loop. Raises HostToolError."""
    said = read_as(_FORMS[call.name], call)
    if isinstance(said, Question) and not said.question.strip():
        raise HostToolError("ask_user takes a question; it was given an empty one")
    if isinstance(said, Finish) and (why := refuse_finish(said)) is not None:
        raise HostToolError(why)
    return said


def refuse_finish(finish: Finish) -> str | None:
    """Why the daemon would not take it, whatever its checks say; None: it would."""
    return too_long("the answer", finish.answer, MOST_ANSWER) or refuse_fields(finish.fields)


def read_as(form: type[Form], call: ToolCall) -> Form:
    """The arguments of a host tool as what they mean. Raises HostToolError, which shows what came and what may come."""
    try:
        values: dict[str, Any] = parse(call.arguments).values
        return msgspec.convert(values, form)
    except (InvalidArguments, msgspec.ValidationError) as error:
        shown = call.arguments if len(call.arguments) <= _SHOWN else call.arguments[:_SHOWN] + "…"
        needed = ", ".join(form.__struct_fields__)
        raise HostToolError(f"{call.name} takes {needed}; it was given {shown!r}: {error}") from error
