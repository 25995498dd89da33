"""What a ledger and a conversation come to, in figures. Reads what it is given; no clock, no process."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Figures:
    """One cell. Seconds are counted from the first execution's begin."""

    told_s: float
    """When the model or the caller first heard how it went."""
    told_whom: str
    told_said: str
    over_s: float
    """When the run was over for its caller."""
    stopped_s: float | None
    """The last charge of all; None: there was none."""
    executions: int
    charges: int
    late: int
    """Charges of executions whose end had been told before."""
    left_when_told: list[str]
    left_when_over: list[str]
    ended: str
    """What the caller got in the end."""

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def figures(ledger: Iterable[str], told: list[dict[str, Any]]) -> Figures:
    """``told``: as `script.Told`, oldest first; the last: what the caller got. Raises ValueError when nothing began."""
    charged_ns = _charges(ledger)
    began_ns = min((at for times in charged_ns.values() for at in times), default=None)
    if began_ns is None or not told:
        raise ValueError("no execution has begun, or nobody was told")
    charges = [times[1:] for times in charged_ns.values()]

    def seconds(at_ns: int) -> float:
        return (at_ns - began_ns) / 1e9

    return Figures(
        told_s=seconds(told[0]["at_ns"]),
        told_whom=told[0]["whom"],
        told_said=told[0]["said"],
        over_s=seconds(told[-1]["at_ns"]),
        stopped_s=max((seconds(at) for times in charges for at in times), default=None),
        executions=len(charges),
        charges=sum(map(len, charges)),
        late=sum(_late(times, told[min(number, len(told) - 1)]["at_ns"]) for number, times in enumerate(charges)),
        left_when_told=told[0]["left"],
        left_when_over=told[-1]["left"],
        ended=told[-1]["said"],
    )


def _charges(ledger: Iterable[str]) -> dict[str, list[int]]:
    """Begin and charges of each execution, in the order in which they began."""
    found: dict[str, list[int]] = {}
    for line in ledger:
        entry = json.loads(line)
        found.setdefault(entry["who"], []).append(entry["at_ns"])
    return found


def _late(times: Iterable[int], told_ns: int) -> int:
    return sum(at > told_ns for at in times)
