"""What a caller passes, turned into a Submit: arguments into JSON text, strictly, and paths made the daemon's.

Raises InvalidArguments (a ValueError) for what could not be said on the wire at all, and TypeError for an option that
there is not; what can be said and is wrong all the same (a deadline of 0, a field the tool does not have) is the
daemon's to judge, and comes back as a result.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, TypedDict

from protocol._client_messages import Submit
from protocol._contracts import ContainmentLevel, IsolationLevel
from protocol._errors import InvalidArguments

Arguments = Mapping[str, Any] | str


class SubmitOptions(TypedDict, total=False):
    """What may be asked of one call. Absent: what the tool's contract says."""

    deadline_ms: int | None
    cwd: str | os.PathLike[str] | None
    run: str | None
    key: str | None
    split_streams: bool
    max_output_bytes: int | None
    min_containment: ContainmentLevel | None
    min_isolation: IsolationLevel | None


_OPTIONS = frozenset(SubmitOptions.__annotations__)


def submit_message(tool: str, arguments: Arguments | None, options: SubmitOptions) -> Submit:
    """The message without its number. Raises InvalidArguments for arguments that no JSON text can carry."""
    refuse_unknown(options, _OPTIONS)
    cwd = options.get("cwd")
    return Submit(
        id=0,
        tool=tool,
        arguments=arguments_text(arguments),
        deadline_ms=options.get("deadline_ms"),
        cwd=None if cwd is None else os.path.abspath(os.fspath(cwd)),
        run=options.get("run"),
        key=options.get("key"),
        split_streams=options.get("split_streams", False),
        max_output_bytes=options.get("max_output_bytes"),
        min_containment=options.get("min_containment"),
        min_isolation=options.get("min_isolation"),
    )


def refuse_unknown(options: Mapping[str, object], known: frozenset[str]) -> None:
    """Raises TypeError for an option that there is not, as Python does: ``deadline=2000`` would be no deadline."""
    if not known.issuperset(options):
        unknown = ", ".join(repr(name) for name in options if name not in known)
        raise TypeError(f"no option {unknown}; there are {', '.join(sorted(known))}")


def arguments_text(arguments: Arguments | None) -> str:
    """JSON text of ``arguments``; a str is taken as JSON text and left as it is.

    Strict where ``json`` is lenient: NaN, infinities, keys that are no strings, lone surrogates are refused,
    because what the tool would see is not what the caller wrote.
    """
    if arguments is None:
        return "{}"
    text = arguments if isinstance(arguments, str) else _encoded(dict(arguments))
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArguments(f"arguments contain text that is not Unicode (a lone surrogate): {error}") from error
    return text


def _encoded(arguments: dict[str, Any]) -> str:
    try:
        text = json.dumps(arguments, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArguments(f"arguments cannot be written as JSON: {error}") from error
    _refuse_foreign_keys(arguments)
    return text


def _refuse_foreign_keys(value: object) -> None:
    """``json`` turns the keys 1, True and None into strings. Called once the value is known to be finite."""
    boxes: list[object] = [value]
    while boxes:
        box = boxes.pop()
        if isinstance(box, dict):
            for key, item in box.items():
                if not isinstance(key, str):
                    raise InvalidArguments(f"arguments cannot be written as JSON: the key {key!r} is no string")
                boxes.append(item)
        elif isinstance(box, (list, tuple)):
            boxes.extend(box)
