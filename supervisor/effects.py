"""Open effects: calls that may have changed something, whose outcome nobody saw. Held in memory, as the journal has
them; a call's row is one by itself when it settles so (`journal/effect_rows`), here they are found, listed and closed.

Owns which effects are open, who may see and close them, and that what is open is bounded: beyond `recovery.MOST_OPEN`
the oldest is closed by the daemon, with an event that says so. Leaves asking a tool what became of one to
`reconciling`, and what an open one means for a run to those who judge its calls.
"""

from __future__ import annotations

import os
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Protocol

import msgspec

from protocol import _client_messages as cm
from protocol._outcomes import CallResult, Delivery, ErrorClass, ErrorInfo
from protocol._runs import OpenEffect
from supervisor.clock import wall_ms
from supervisor.journal import effect_rows
from supervisor.journal.effect_rows import EffectRow
from supervisor.journal.journal import Journal
from supervisor.journal.recovery import MOST_OPEN
from supervisor.journal.results import KeptCall
from supervisor.live_call import LiveCall

Find = Callable[[str, int], LiveCall | KeptCall | None]
_ARGUMENTS_SHOWN = 200
_LIST_BYTES = 512 << 10
"""Below the usual frame limit, whatever is in the notes and arguments."""
_NOTE_BYTES = 2_000
_CLOSED_KEPT = 1_000


class Asker(Protocol):
    """Whoever asks, at a door."""

    uid: int

    def say(self, message: cm.FromDaemon) -> None:
        """Send an answer, now and without waiting."""


class Effects:
    """One per daemon. ``len()``: how many are open."""

    def __init__(self, journal: Journal, most: int = MOST_OPEN) -> None:
        self._journal, self._most = journal, most
        self._open: dict[str, EffectRow] = {}
        """Oldest first."""
        self._of_run: defaultdict[str, dict[str, EffectRow]] = defaultdict(dict)
        self._closing: set[str] = set()
        self._closed: OrderedDict[str, OpenEffect] = OrderedDict()
        self.heard_of: Callable[[EffectRow], None] = lambda _effect: None
        """Who is told of one that is open no longer."""

    def __len__(self) -> int:
        return len(self._open)

    # ------------------------------------------------------------ what is open

    def recall(self, found: list[EffectRow]) -> None:
        """Those of earlier lives."""
        for effect in found:
            self._add(effect)

    def settled(self, call: LiveCall, result: CallResult) -> None:
        """A call is about to be told: its effect is open from now on, if nobody knows what became of it."""
        if result.delivery is not Delivery.UNKNOWN or not call.has_effect:
            return
        judged, place = call.judged, call.claim.place if call.claim else None
        self._add(
            EffectRow(
                call.id,
                judged.tool,
                judged.run,
                call.uid,
                call.key,
                call.submitted_ms,
                judged.arguments,
                place,
                call.call_fp,
            )
        )
        if len(self._open) > self._most:
            self._give_up_oldest()

    def open_of_run(self, run: str) -> list[OpenEffect]:
        """Those of one run, oldest first."""
        return [_shown(effect) for effect in self._of_run.get(run, {}).values()]

    def unresolved(self, run: str, call_fp: str) -> EffectRow | None:
        """An open effect of the same call in the same run: doing it again might do it twice."""
        return next((effect for effect in self._of_run.get(run, {}).values() if effect.call_fp == call_fp), None)

    def all_open(self) -> list[EffectRow]:
        """Every one, oldest first."""
        return list(self._open.values())

    def is_open(self, call: str) -> bool:
        """Whether nobody knows yet what became of it."""
        return call in self._open

    def over(self, effect: EffectRow, note: str) -> None:
        """It is known, and the journal has been told."""
        self._drop(effect.call)
        told = msgspec.structs.replace(_shown(effect), closed=note, closed_ms=wall_ms())
        self._closed[effect.call] = told
        if len(self._closed) > _CLOSED_KEPT:
            self._closed.popitem(last=False)
        self.heard_of(effect)

    def _add(self, effect: EffectRow) -> None:
        if effect.arguments is not None and len(effect.arguments) > _ARGUMENTS_SHOWN:
            effect = effect._replace(arguments=effect.arguments[:_ARGUMENTS_SHOWN] + "…")  # the journal has the rest
        self._open[effect.call] = effect
        if effect.run is not None:
            self._of_run[effect.run][effect.call] = effect

    def _drop(self, call: str) -> None:
        effect = self._open.pop(call, None)
        if effect is None or effect.run is None:
            return
        of_run = self._of_run[effect.run]
        del of_run[call]
        if not of_run:
            del self._of_run[effect.run]

    def _give_up_oldest(self) -> None:
        oldest = next(iter(self._open.values()))
        note = f"not known, and given up: more than {self._most} effects were open"
        self._journal.append(effect_rows.closed(oldest, note, None, wall_ms()))
        self.over(oldest, note)

    # ------------------------------------------------------------ what clients ask

    def take(self, asker: Asker, ask: cm.ListEffects | cm.CloseEffect, find: Find) -> None:
        """Answer one question. ``find(call, uid)``: a call that is kept."""
        if isinstance(ask, cm.ListEffects):
            self._tell(asker, ask)
        else:
            self._close(asker, ask, find(ask.call, asker.uid))

    def _tell(self, asker: Asker, ask: cm.ListEffects) -> None:
        """Those that the asker may see, oldest first, as many as a frame has room for."""
        seen = [effect for effect in self._open.values() if _may_see(asker, effect) and ask.run in (None, effect.run)]
        told, room = [], _LIST_BYTES
        for effect in seen:
            room -= 400 + len(effect.key) + 4 * len(effect.arguments or "")
            if room < 0:
                break
            told.append(_shown(effect))
        asker.say(cm.Effects(ask.id, told, len(seen) - len(told)))

    def _close(self, asker: Asker, ask: cm.CloseEffect, found: LiveCall | KeptCall | None) -> None:
        """Somebody knows what became of one: answered when the disk has it. ``found``: the call, if it is kept."""
        effect = self._open.get(ask.call)
        if effect is None or not _may_see(asker, effect) or ask.call in self._closing:
            asker.say(self._why_not(asker, ask, found))
            return
        note = ask.note.strip()
        if not note or len(note.encode()) > _NOTE_BYTES:
            text = f"a note says what became of the call, in at most {_NOTE_BYTES} bytes"
            asker.say(_failed(ask.id, "invalid_arguments", text))
            return

        def then(durable: bool) -> None:
            self._closing.discard(ask.call)
            if durable:
                self.over(effect, note)
                asker.say(cm.EffectClosed(ask.id, self._closed[ask.call]))
            else:
                text = self._journal.trouble or "the journal took nothing"
                asker.say(_failed(ask.id, "store_unavailable", text, ErrorClass.OVERLOADED))

        self._closing.add(ask.call)
        self._journal.append(effect_rows.closed(effect, note, asker.uid, wall_ms()), then, keep=False)

    def _why_not(self, asker: Asker, ask: cm.CloseEffect, found: LiveCall | KeptCall | None) -> cm.Failed:
        closed = self._closed.get(ask.call)
        if closed is not None and asker.uid in (closed.uid, 0, os.geteuid()):
            return _failed(ask.id, "not_open", f"{ask.call} was closed already: {closed.closed}")
        if ask.call in self._closing:
            return _failed(ask.id, "not_open", f"{ask.call} is being closed by somebody else")
        if found is None:
            return _failed(ask.id, "unknown_call", f"no call {ask.call[:80]!r} is known here (any more)")
        result = found.result
        what = "it has not ended" if result is None else f"{result.status}, delivery {result.delivery}"
        return _failed(ask.id, "not_open", f"{ask.call} is no open effect: {what}")


def _may_see(asker: Asker, effect: EffectRow) -> bool:
    return asker.uid in (effect.uid, 0, os.geteuid())


def _shown(effect: EffectRow) -> OpenEffect:
    return OpenEffect(effect.call, effect.tool, effect.run, effect.uid, effect.key, effect.since_ms, effect.arguments)


def _failed(request: int, code: str, text: str, class_: ErrorClass = ErrorClass.ARGUMENT) -> cm.Failed:
    return cm.Failed(request, ErrorInfo(class_, code, text))
