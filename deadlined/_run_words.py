"""What a client says and hears of a run, without I/O: the message that opens one, what an answer means, whether a block
that is left ends its run, and what a model's usage comes to.

The words of the Python interface are ``runs``' and ``async_runs``'; what may be answered to what is the link's.

Rules
1. A run that does not run any more answers whatever would go on with it by its stop record: RunStopped.
2. Leaving a ``with d.run(...)`` block cancels a run that still runs, unless it is to be kept and nothing was raised.
   One that has stopped, or is suspended (a person has to decide), stays as it is.
3. A model call is settled by what was reported last of each count; a count that was never reported stays spent.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TypedDict, TypeVar

from deadlined._arguments import refuse_unknown
from deadlined._conversation import Exchange
from deadlined._errors import RunStopped
from protocol import _client_messages as cm
from protocol._checks import Check, FieldValue
from protocol._runs import AgentOptions, OnDisconnect, RunStatus, RunView, StopRecord

Going = TypeVar("Going", cm.RunState, cm.ModelReserved, cm.EvidenceTaken)
Item = TypeVar("Item")


class RunOptions(TypedDict, total=False):
    """What may be asked of a run. Absent: what its profile says. ``limits``: dimension → number (None: no limit of its
    own). ``checks``: what must hold before ``finish`` is accepted, in this order; a text is a command that must exit 0.
    ``wrapup``: a model call is held back for a last word."""

    goal: str
    profile: str | None
    deadline_ms: int | None
    limits: Mapping[str, int | None]
    checks: Sequence[Check]
    session: str | None
    parent: str | None
    workspace: str | os.PathLike[str] | None
    on_disconnect: OnDisconnect
    wrapup: bool


_OPTIONS = frozenset(RunOptions.__annotations__)


def open_message(options: RunOptions, on_disconnect: OnDisconnect, agent: AgentOptions | None = None) -> cm.OpenRun:
    """The message without its number. What is wrong with a limit or the deadline is the daemon's to judge. Raises
    TypeError for an option that there is not, and for one text where a list is wanted."""
    refuse_unknown(options, _OPTIONS)
    workspace = options.get("workspace")
    return cm.OpenRun(
        id=0,
        goal=options.get("goal", ""),
        profile=options.get("profile"),
        deadline_ms=options.get("deadline_ms"),
        limits=dict(options.get("limits", {})),
        session=options.get("session"),
        parent=options.get("parent"),
        workspace=None if workspace is None else os.path.abspath(os.fspath(workspace)),
        checks=listed("checks", options.get("checks", [])),
        on_disconnect=options.get("on_disconnect", on_disconnect),
        wrapup=options.get("wrapup", False),
        agent=agent,
    )


def listed(name: str, items: Sequence[Item]) -> list[Item]:
    """A list of them. Raises TypeError for a text, which would become a list of its letters."""
    if isinstance(items, str):
        raise TypeError(f"{name} is a list; for one: {name}=[{items!r}]")
    return list(items)


def going_on(exchange: Exchange, kind: type[Going]) -> Going:
    """The answer of a run that goes on. Raises RunStopped (rule 1), and what ended the exchange."""
    if isinstance(exchange.answer, cm.RunSettled):
        raise RunStopped(exchange.answer.stop)
    return exchange.outcome(kind)


def finish_message(run: str, answer: str, fields: Mapping[str, FieldValue | str] | None) -> cm.FinishRun:
    """The message without its number. A field that is a text rests on nothing."""
    values = {
        name: field if isinstance(field, FieldValue) else FieldValue(field) for name, field in (fields or {}).items()
    }
    return cm.FinishRun(id=0, run=run, answer=answer, fields=values)


def finished(exchange: Exchange) -> StopRecord | cm.FinishRefused:
    """What came of a request to finish: the record, or what the checks said."""
    if isinstance(exchange.answer, cm.FinishRefused):
        return exchange.answer
    return exchange.outcome(cm.RunSettled).stop


def has_ended(stop: StopRecord | None) -> bool:
    """Whether nothing can change any more: a suspended run may go on."""
    return stop is not None and stop.outcome != "suspended"


def must_cancel(view: RunView, keep: bool, failed: bool) -> bool:
    """Whether the run of a block that is left has to be cancelled (rule 2)."""
    return view.status is RunStatus.RUNNING and (failed or not keep)


class ModelUsage:
    """What a model is reported to have used (rule 3)."""

    __slots__ = ("_cached_in", "_tokens_in", "_tokens_out")

    def __init__(self) -> None:
        self._tokens_in: int | None = None
        self._tokens_out: int | None = None
        self._cached_in = 0

    def report(self, tokens_in: int | None, tokens_out: int | None, cached_in: int | None) -> None:
        """Totals of this model call so far, as far as they are known."""
        self._tokens_in = self._tokens_in if tokens_in is None else tokens_in
        self._tokens_out = self._tokens_out if tokens_out is None else tokens_out
        self._cached_in = self._cached_in if cached_in is None else cached_in

    def settle_message(self, reserved: cm.ModelReserved) -> cm.SettleModel:
        """The message without its number."""
        return cm.SettleModel(
            id=0,
            run=reserved.run,
            reservation=reserved.reservation,
            tokens_in=self._tokens_in,
            tokens_out=self._tokens_out,
            cached_in=self._cached_in,
        )
