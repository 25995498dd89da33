"""The levels: what can be said of a kill by what holds the workers, and which isolation that allows. Pure.

Two axes. Isolation is what a tool is kept from; containment is how surely its processes end. Isolation ``none`` and
``limits`` use no namespaces, so their kill is a guard's; the others need namespaces, and fall back to ``limits`` where
the host gives none. What holds a zygote's workers is found out by trying (`containment/zygote.py`) and proven by a kill
(`containment/probe.py`).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from protocol._contracts import ISOLATION_ORDER, ContainmentLevel, IsolationLevel

HeldBy = Literal["namespaces", "guards"]
_WITHOUT_NAMESPACE: tuple[IsolationLevel, ...] = ("none", "limits")


class Ground(msgspec.Struct, frozen=True):
    """What workers of one flavour stand on: the level of their kill, and the isolation that is reached."""

    containment: ContainmentLevel
    isolation: IsolationLevel


def holder_of(wanted: IsolationLevel) -> HeldBy:
    """What is to hold workers of an isolation; namespaces may be refused, and then guards do."""
    return "guards" if wanted in _WITHOUT_NAMESPACE else "namespaces"


def ground_of(held_by: HeldBy, wanted: IsolationLevel, reaps_orphans: bool, kills_groups: bool) -> Ground:
    """``reaps_orphans``: guards are subreapers. ``kills_groups``: a worker's control group can be killed at once."""
    if held_by == "namespaces":
        return Ground("pidns+cgroup" if kills_groups else "pidns", "contain")
    isolation: IsolationLevel = "none" if wanted == "none" else "limits"
    if not reaps_orphans:  # a control group would help with the kill, and nobody could say that all are gone
        return Ground("group", isolation)
    return Ground("cgroup" if kills_groups else "subreaper", isolation)


def mechanism_of(containment: ContainmentLevel) -> list[str]:
    """Words for a receipt: what ended the call."""
    return ["subreaper", "cgroup"] if containment == "cgroup" else containment.split("+")


def isolation_wanted(
    tool: IsolationLevel | None, least: IsolationLevel | None, default: IsolationLevel
) -> IsolationLevel:
    """Of a tool that says so itself, or (``default``) leaves it to the daemon; never below what it demands."""
    wanted = tool or default
    return wanted if least is None else max(wanted, least, key=ISOLATION_ORDER.index)
