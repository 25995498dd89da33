"""What is in quarantine and until when, as sentences and rows: the words of `deadlined status`, of refusals and of
notices. Pure; decides nothing."""

from __future__ import annotations

from protocol._client_messages import QuarantineRow
from protocol._deadlines import remaining_ms
from protocol._quantities import say_duration
from supervisor.core.quarantine import Measure, QuarantineSettings, Ward

SHOWN_HEX = 16
"""Of a key's digest, for people."""
_DONE = {
    Measure.WARN: "nothing is done about it yet",
    Measure.SERIAL: "its calls run one at a time",
    Measure.BREAKER: "its calls are refused",
    Measure.POISON: "it is refused as poison_call",
    Measure.LEAKS: "its calls are refused",
}


def sentence(ward: Ward, settings: QuarantineSettings, now_ns: int) -> str:
    """Who, why, what is done about it, and for how long."""
    return f"{_why(ward, settings)}; {_DONE[ward.measure]} {how_long(ward.until_ns, now_ns)}"


def _why(ward: Ward, settings: QuarantineSettings) -> str:
    window = say_duration(settings.window_ms)
    match ward.measure:
        case Measure.POISON:
            key = (ward.key or "")[:SHOWN_HEX]
            return f"tool {ward.tool} with arguments {key}: its worker was lost {ward.count} times within {window}"
        case Measure.LEAKS:
            return f"tool {ward.tool}: {ward.count} of its workers were killed and are not dead"
        case _:
            calls = "1 call of it" if ward.count == 1 else f"{ward.count} different calls of it"
            return f"tool {ward.tool}: {calls} hung or lost the worker within {window}"


def how_long(until_ns: int | None, now_ns: int) -> str:
    """``for another 43 s``."""
    if until_ns is None:
        return "until one of them is gone"
    return f"for another {say_duration(remaining_ms(until_ns, now_ns))}"


def row(ward: Ward, settings: QuarantineSettings, now_ns: int) -> QuarantineRow:
    """The same for programs."""
    return QuarantineRow(
        "call" if ward.key is not None else "tool",
        str(ward.measure),
        sentence(ward, settings, now_ns),
        None if ward.until_ns is None else remaining_ms(ward.until_ns, now_ns),
        tool=ward.tool,
        key=None if ward.key is None else ward.key[:SHOWN_HEX],
    )
