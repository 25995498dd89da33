"""A call's result → what a model reads of it: a header that nothing can cut, then what the tool returned and wrote.

Rules
1. The header is the host's: status, reason, exit, duration, delivery, attempts, the error as it was said, the notices,
   what to do next. It comes first and has a bound of its own (`HEADER_BYTES`): no length of output moves it.
2. What the tool returned and wrote has `VIEW_BYTES` together, and stands under headings. What does not fit is cut as
   every view is: beginning, end, key lines, and a marker that says what is missing and where it lies.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from protocol._outcomes import CallResult
from protocol._quantities import say_duration
from supervisor.core.output import LEAST_CAP, VIEW_BYTES, view_of

HEADER_BYTES = 4_096
_WORD_BYTES, _NAME_BYTES, _ERROR_BYTES, _NOTICE_BYTES, _ADVICE_BYTES = 64, 128, 1_024, 256, 512
_NOTICES = 6


def observation(result: CallResult) -> str:
    """At most `HEADER_BYTES` + `VIEW_BYTES` of UTF-8 and two headings."""
    parts = list(_header(result))
    room = VIEW_BYTES
    value = _value(result.content)
    if value:
        least = LEAST_CAP if result.output.view else 0
        shown = _fitted(value, max(LEAST_CAP, room - max(least, len(result.output.view.encode()))), _place(result))
        room -= len(shown.encode())
        parts.append(f"[returned]\n{shown}")
    if result.output.view:
        parts.append(f"[wrote]\n{_fitted(result.output.view, room, result.output.path)}")
    return "\n".join(parts)


def _header(result: CallResult) -> Iterator[str]:
    facts = [str(result.status)]
    facts += [str(result.reason)] if result.reason else []
    facts += [_exit(result)] if result.exit is not None else []
    facts += [f"after {say_duration(result.timing.duration_ms)}", f"delivery {result.delivery}"]
    facts += [f"attempt {result.attempts}"] if result.attempts > 1 else []
    yield f"[{_short(result.tool, _NAME_BYTES)} {result.call}: {', '.join(facts)}]"  # any name that a model made up
    if result.error is not None:
        error = result.error
        yield f"[error {error.class_}, {_short(error.code, _WORD_BYTES)}] {_short(error.message, _ERROR_BYTES)}"
    for notice in result.notices[:_NOTICES]:
        yield f"[{notice.level} {_short(notice.detector, _WORD_BYTES)}] {_short(notice.text, _NOTICE_BYTES)}"
    if result.next_action:
        yield f"[next] {_short(result.next_action, _ADVICE_BYTES)}"


def _exit(result: CallResult) -> str:
    assert result.exit is not None
    return f"exit {result.exit.signal if result.exit.code is None else result.exit.code}"


def _value(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return msgspec.json.encode(content).decode()


def _place(result: CallResult) -> str:
    return f"content of call {result.call}"


def _fitted(text: str, cap: int, path: str | None) -> str:
    raw = text.encode("utf-8", "replace")
    return view_of(raw, b"", len(raw), path, cap=max(LEAST_CAP, cap))


def _short(text: str, most: int) -> str:
    """At most ``most`` bytes, cut between code points; further lines are indented: none can look like the host's."""
    raw = "\n  ".join(text.splitlines()).encode("utf-8", "replace")
    if len(raw) <= most:
        return raw.decode()
    return raw[: most - len("…".encode())].decode("utf-8", "ignore") + "…"
