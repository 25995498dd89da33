"""The edge where text meets a provider: what is sent is always valid, and what is heard can always be kept. Pure.

One strange turn must not spoil those after it: a provider refuses the whole conversation for one lone surrogate, one
name it does not allow, one broken argument text in the history.

Rules
1. Two halves of a surrogate pair that stand side by side become their character; a half alone becomes U+FFFD.
2. In arguments that are heard a half alone becomes its JSON escape: who parses them refuses it, with the reason.
   Nothing that would be executed is repaired here.
3. Names in the history get the form that providers take: what does not fit becomes ``_``, at most 64 characters.
4. Arguments in the history that are no JSON object are sent as ``{"malformed": TEXT}``. The result that goes with the
   call says what was wrong with them.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

import msgspec

from supervisor.core.model_events import Message, Request, ToolCall

_HALF = re.compile("[\ud800-\udfff]")
_OTHER = re.compile(r"[^A-Za-z0-9_-]")
MOST_NAME = 64
NAMELESS = "unnamed"


def text(said: str) -> str:
    """Rule 1."""
    if _HALF.search(said) is None:
        return said
    return said.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def arguments(said: str) -> str:
    """Rule 2."""
    if _HALF.search(said) is None:
        return said
    paired = said.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    return _HALF.sub(lambda half: f"\\u{ord(half[0]):04x}", paired)


def body(value: Any) -> bytes:
    """A request as it is sent: JSON in UTF-8, by rule 1."""
    return text(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode()


def sendable(request: Request) -> Request:
    """The same request with a history that a provider takes (rules 3 and 4)."""
    return msgspec.structs.replace(request, messages=tuple(_message(message) for message in request.messages))


def as_object(said: str) -> dict[str, Any] | None:
    """The object that an argument text is; None: it is none, or none that every JSON parser takes."""
    try:
        value = json.loads(said, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _message(message: Message) -> Message:
    if not message.calls:
        return message
    return msgspec.structs.replace(message, calls=tuple(_call(call) for call in message.calls))


def _call(call: ToolCall) -> ToolCall:
    name = _OTHER.sub("_", call.name)[:MOST_NAME] or NAMELESS
    return ToolCall(call.id, name, _history_text(call.arguments))


def _history_text(said: str) -> str:
    value = as_object(said)
    if value is None:
        return json.dumps({"malformed": text(said)}, ensure_ascii=False)
    plain = json.dumps(value, ensure_ascii=False)
    return said if _HALF.search(plain) is None else text(plain)


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON value")
