"""The calls of the `chaos` suite: good, slow and hostile ones, how each is asked for, and how each may end.

A kind's ``ends`` are what may be told of it while nobody kills its worker; `BY_KILLS` is what may be told besides when
somebody does.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from protocol._outcomes import CallResult, Delivery, Reason, Status
from tests.trust import pipes
from tests.trust.daemons import REPOSITORY
from tests.trust.ledger import Asked, contradiction
from tests.trust.victims import killed_tool

TABLES = {"tool.misdeed": {"kind": "python", "module": "tests.trust.misdeeds", "path": str(REPOSITORY)}}
Way = Literal["wait", "cancel", "leave", "detach", "twice"]
End = tuple[Status, Reason | None]
AMPLE_MS = 20_000

OK: End = (Status.OK, None)
FAILED: End = (Status.ERROR, None)
LOST: End = (Status.CRASHED, Reason.WORKER_LOST)
GARBLED: End = (Status.CRASHED, Reason.PROTOCOL_ERROR)
OVERDUE: End = (Status.KILLED, Reason.TIME_BUDGET)
NEVER_BEGAN: End = (Status.NOT_EXECUTED, Reason.TIME_BUDGET)
CANCELLED: End = (Status.CANCELLED, Reason.CLIENT)
LEFT: End = (Status.CANCELLED, Reason.DISCONNECT)
BY_KILLS = frozenset({LOST, GARBLED, FAILED, (Status.NOT_EXECUTED, Reason.SPAWN_FAILED)})
OF_A_RUN = frozenset(
    {(Status.NOT_EXECUTED, reason) for reason in (Reason.BUDGET, Reason.RUN_SETTLED)}
    | {(Status.WAITING_FOR_APPROVAL, Reason.RECONCILE_REQUIRED), (Status.NOT_EXECUTED, Reason.SAME_ERROR)}
)


@dataclass(frozen=True)
class Kind:
    """``share``: how many of a thousand. ``what``: a misdeed, or (``is_script``) what a command does after its deed;
    ``deadline_ms``: of those that do not end by themselves, else 0."""

    share: int
    what: str
    ends: frozenset[End]
    way: Way = "wait"
    is_script: bool = False
    deadline_ms: int = 0
    fault: bool = True

    @property
    def name(self) -> str:
        """For figures and failures."""
        return f"{self.what!r}, {self.way}"


def _good(share: int, what: str, way: Way = "wait", *more: End, **others: Any) -> Kind:
    return Kind(share, what, frozenset({OK, *more}), way, fault=way in ("cancel", "leave"), **others)


def _bad(share: int, what: str, *ends: End, **others: Any) -> Kind:
    return Kind(share, what, frozenset(ends), **others)


def _endless(share: int, what: str, **others: Any) -> Kind:
    return Kind(share, what, frozenset({OVERDUE, NEVER_BEGAN}), deadline_ms=150, **others)


KINDS = (
    _good(190, "nothing"),
    _good(60, "nothing", "detach"),
    _good(40, "nothing", "twice"),
    _good(90, "leaves dirt"),
    _good(40, "leaves threads"),
    _good(80, "sleep 0.02", is_script=True),
    _good(30, "sleep 0.02", "detach", is_script=True),
    _good(20, "sleep 0.02", "twice", is_script=True),
    _good(30, "nothing", "cancel", CANCELLED),
    _good(30, "nothing", "leave", LEFT),
    _good(20, "sleep 0.02", "cancel", CANCELLED, is_script=True),
    _good(20, "sleep 0.02", "leave", LEFT, is_script=True),
    _bad(40, "raises", FAILED),
    _bad(40, "is transient", FAILED),
    _bad(20, "times out by itself", FAILED),
    _bad(10, "wants to exit", FAILED),
    _bad(10, "unsayable", FAILED),
    _bad(40, "exit 3", FAILED, is_script=True),
    _bad(10, "kill -9 $$", FAILED, is_script=True),
    _bad(10, "exits", LOST),
    _bad(5, "segfaults", LOST),
    _bad(5, "aborts", LOST),
    _bad(5, "closes all", LOST, GARBLED),
    _bad(10, "says garbage", GARBLED, LOST),
    _bad(5, "says half and exits", LOST, GARBLED),
    _bad(10, "forks and exits", LOST),
    _bad(15, "forks", OK),
    _bad(10, "leaves its session", OK),
    _bad(10, "daemonises", OK),
    _bad(15, "sleep 60 & setsid sleep 60 & :", OK, is_script=True),
    _bad(10, "(trap '' TERM; setsid sleep 60) & exit 3", FAILED, is_script=True),
    _endless(5, "spins"),
    _endless(10, "ignores SIGTERM"),
    _endless(5, "floods"),
    _endless(10, "forks and hangs"),
    _endless(5, "says half"),
    _endless(15, "sleep 60 & setsid sleep 60 & wait", is_script=True),
    _endless(10, "kill -STOP $$", is_script=True),
    Kind(10, "forks and hangs", frozenset({CANCELLED}), "cancel"),
    Kind(10, "ignores SIGTERM", frozenset({LEFT}), "leave"),
    Kind(10, "sleep 60 & setsid sleep 60 & wait", frozenset({LEFT}), "leave", is_script=True),
    Kind(10, "sleep 60 & setsid sleep 60 & wait", frozenset({CANCELLED}), "cancel", is_script=True),
)


@dataclass
class Tried(Asked):
    """One of them. ``asked``, ``heard``: monotonic seconds."""

    kind: Kind = KINDS[0]
    pipe: Path = Path()
    asked: float = 0.0
    heard: float = 0.0


class Place(NamedTuple):
    """Where calls leave their traces: the file of effects, and the directory of their pipes."""

    effects: Path
    pipes: Path


def tried(kind: Kind, name: str, place: Place, rng: random.Random, run: str | None = None) -> Tried:
    """A call of that kind."""
    pipe = pipes.make(place.pipes / name)
    if kind.is_script:
        deed = f'exec 9<>{pipe}; echo "{name} $DEADLINED_IDEMPOTENCY_KEY" >> {place.effects}; echo {name}; '
        tool, arguments = "script", {"text": deed + kind.what}
    else:
        tool, arguments = "trust_misdeed", {"file": str(place.effects), "name": name, "pipe": str(pipe)}
        arguments |= {"what": kind.what, "lines": rng.randrange(1, 60)}
    return Tried(
        name,
        tool,
        arguments,
        detach=kind.way == "detach",
        run=run,
        deadline_ms=kind.deadline_ms or AMPLE_MS,
        kind=kind,
        pipe=pipe,
    )


def as_meant(one: Tried, result: CallResult) -> bool:
    """Whether it ended as its kind does."""
    return (result.status, result.reason) in one.kind.ends


def wrong_end(one: Tried, result: CallResult, done: int) -> str:
    """Whether its end, or what is said of its delivery, cannot be. ``done``: how often it was done."""
    end = (result.status, result.reason)
    allowed = one.kind.ends | BY_KILLS | (OF_A_RUN if one.run else frozenset())
    if end not in allowed:
        return f"it ended {end}: {result.summary}"
    if result.delivery is Delivery.FAILED_DEFINITE and (FAILED in one.kind.ends or killed_tool(result)):
        whole = FAILED in one.kind.ends and not killed_tool(result)
        return f"failed for sure, and done {done} times" if done > 1 or (whole and not done) else ""
    return contradiction(result, done)


def may_live(result: CallResult) -> bool:
    """Whether something of a call may be alive when this is told of it: its kill is not confirmed, and says so."""
    return result.kill is not None and not result.kill.confirmed
