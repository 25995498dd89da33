"""A finished step → one line of the host's making, and where the raw outputs lie. `context.folded` puts it in place.

The line is made of typed facts: no word of a model and no word of an output is in it, so nothing can be said in it that
did not happen. What nobody knows the outcome of is said to be unknown: folding hides no effect.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from protocol._outcomes import CallResult, Delivery
from protocol._quantities import say_duration, say_size

_CALLS_NAMED = 4
_WORD, _PATH = 64, 400


class RawOutput(msgspec.Struct, frozen=True):
    """Where what a call wrote lies, whole."""

    call: str
    path: str
    bytes: int
    sha256: str | None = None


class Fold(msgspec.Struct, frozen=True):
    """``line``: one line. ``raw``: every output that it stands for."""

    step: int
    line: str
    raw: tuple[RawOutput, ...] = ()


def fold(step: int, results: Sequence[CallResult]) -> Fold:
    """What is left in the context of a step whose calls ended with ``results``, in their order."""
    raw = tuple(
        RawOutput(result.call, result.output.path, result.output.bytes, result.output.sha256)
        for result in results
        if result.output.path is not None
    )
    said = [f"[step {step}, folded: {_outcome(results)}"]
    if results:
        said.append(f"took {say_duration(sum(result.timing.duration_ms for result in results))} in all")
    if raw:
        said.append(f"raw output: {_where(raw)}")
    return Fold(step, "; ".join(said) + "]", raw)


def _outcome(results: Sequence[CallResult]) -> str:
    if not results:
        return "no call was made"
    named = [_call(result) for result in results[:_CALLS_NAMED]]
    rest = Counter(_status(result) for result in results[_CALLS_NAMED:])
    if rest:
        counts = ", ".join(f"{count} {status}" for status, count in sorted(rest.items()))
        named.append(f"{sum(rest.values())} more ({counts})")
    return ", ".join(named)


def _call(result: CallResult) -> str:
    return f"{_word(result.tool)} {_status(result)}"


def _status(result: CallResult) -> str:
    why = _why(result)
    said = f"{result.status} ({why})" if why else str(result.status)
    return f"{said} OUTCOME UNKNOWN" if result.delivery is Delivery.UNKNOWN else said


def _why(result: CallResult) -> str:
    if result.reason is not None:
        return str(result.reason)
    if result.exit is not None and result.exit.code:
        return f"exit {result.exit.code}"
    return "" if result.error is None else _word(result.error.code)


def _where(raw: Sequence[RawOutput]) -> str:
    first = raw[0]
    said = f"{_word(first.path, _PATH)} ({say_size(first.bytes)}{f', sha256 {first.sha256}' if first.sha256 else ''})"
    return said if len(raw) == 1 else f"{said} and {len(raw) - 1} more"


def _word(text: str, most: int = _WORD) -> str:
    """A name that came from outside, as it may stand in a line."""
    return "".join(one if one.isprintable() else "?" for one in text)[-most:]
