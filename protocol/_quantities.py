"""Durations and sizes as people type them (``250ms``, ``5s``, ``64KiB``), read strictly and said back briefly.

Standard library only and no regular expressions: ``deadlined exec`` imports this on its way to a 20 ms start.
"""

from __future__ import annotations

from protocol._errors import QuantityError

_MS_PER_UNIT = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
_BYTES_PER_UNIT = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_DIGITS = 15
_QUOTED = 40
DURATION_FORM = "a positive number with a unit: 250ms, 5s, 2m, 1h"
SIZE_FORM = "a positive whole number with a unit: 512B, 64KiB, 8MiB, 1GiB"


def parse_duration_ms(text: str) -> int:
    """Milliseconds of ``250ms | 5s | 1.5s | 2m | 1h``; raises QuantityError for all else (0, signs, nan, no unit)."""
    number, per_unit = _split(text, _MS_PER_UNIT)
    whole, point, fraction = number.partition(".")
    if not _is_digits(whole) or (point and not _is_digits(fraction)) or len(number) > _DIGITS:
        raise QuantityError(f"{_quoted(text)} is not a duration; allowed is {DURATION_FORM}")
    value = int(whole) * per_unit + (int(fraction) * per_unit // 10 ** len(fraction) if point else 0)
    if value < 1:
        raise QuantityError(f"{_quoted(text)} is too short; allowed is {DURATION_FORM}, at least 1ms")
    return value


def parse_size_bytes(text: str) -> int:
    """Bytes of ``512B | 64KiB | 8MiB | 1GiB``; raises QuantityError for all else."""
    number, per_unit = _split(text, _BYTES_PER_UNIT)
    if not _is_digits(number) or len(number) > _DIGITS or int(number) < 1:
        raise QuantityError(f"{_quoted(text)} is not a size; allowed is {SIZE_FORM}")
    return int(number) * per_unit


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _split(text: str, units: dict[str, int]) -> tuple[str, int]:
    """The number and what its unit stands for; without a known unit an empty number, which nothing accepts."""
    unit = text.lstrip("0123456789.")
    return (text[: len(text) - len(unit)], units[unit]) if unit in units else ("", 0)


def _quoted(text: str) -> str:
    return repr(text) if len(text) <= _QUOTED else f"{text[:_QUOTED]!r}…"


def say_duration(ms: float) -> str:
    """A duration for people: ``0.4 ms``, ``350 ms``, ``2.0 s``, ``1 m 30 s``, ``1 h 05 m``."""
    if ms < 9.95 and ms != int(ms):
        return f"{ms:.1f} ms"
    if ms < 999.5:
        return f"{ms:.0f} ms"
    if ms < 59_950:
        return f"{ms / 1_000:.1f} s"
    minutes, seconds = divmod(round(ms / 1_000), 60)
    if minutes < 60:
        return f"{minutes} m {seconds:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} m"


def say_size(count: int) -> str:
    """A size for people: ``512 B``, ``64.0 KiB``, ``1.5 GiB``."""
    if count < 1024:
        return f"{count} B"
    value = count / 1024
    for unit in ("KiB", "MiB"):
        if value < 1023.95:  # what would be written as 1024.0 belongs to the next unit
            return f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
