"""What calls do to workers, counted against the calls and the tools: turns settlements into inputs of the machine of
quarantine, its effects into events, what is in force into refusals, locks and notices. No policy."""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import trio

from protocol._events import EventKind
from protocol._outcomes import Delivery, Notice, Reason, Status
from supervisor.clock import loop_time, now_ns
from supervisor.core.intake import Judged, Refusal
from supervisor.core.quarantine import (
    Confirmed,
    Effects,
    Entered,
    Finished,
    Hung,
    Leaked,
    Lost,
    Measure,
    Quarantine,
    QuarantineSettings,
    Ward,
)
from supervisor.core.wards import SHOWN_HEX, sentence

if TYPE_CHECKING:
    from supervisor.core.call import Settle

_LOSSES = frozenset((Reason.WORKER_LOST, Reason.PROTOCOL_ERROR))
_HANGS = frozenset((Reason.TIME_BUDGET, Reason.IDLE, Reason.MEMORY_LIMIT))
_BY_ITSELF = frozenset((Status.OK, Status.NO_RESULT, Status.ERROR))


class Note(Protocol):
    """Where events go: `Journal.note`."""

    def __call__(
        self, kind: EventKind, call: str | None = None, uid: int | None = None, run: str | None = None, **data: Any
    ) -> None:
        """One event."""


class Trouble:
    """One per daemon."""

    def __init__(self, settings: QuarantineSettings, note: Note) -> None:
        self._machine, self._note = Quarantine(settings), note
        self.settings = settings
        self._nap: trio.CancelScope | None = None

    # ------------------------------------------------------------ before a call

    def check(self, judged: Judged) -> None:
        """Raises Refusal (``poison_call``) for a call whose key, or whose tool, is in quarantine."""
        if not self._machine.knows(judged.tool):
            return
        now = now_ns()
        ward = self._machine.refusal(judged.tool, key_of(judged), now)
        if ward is not None:
            raise Refusal(Reason.POISON_CALL, sentence(ward, self.settings, now))

    def lock_of(self, judged: Judged) -> str | None:
        """A lock of the tool's own, while its calls run one at a time."""
        if not self._machine.knows(judged.tool):
            return None
        level = self._machine.level(judged.tool, now_ns())
        return f"\0tool {judged.tool}" if level is not None and level.measure is Measure.SERIAL else None

    # ------------------------------------------------------------ after a call

    def settled(self, judged: Judged, settle: Settle) -> Notice | None:
        """A call is over; what its result is to say of its tool."""
        if judged.after_kill:  # its end is nobody's fault but the hook's
            return None
        if settle.status in _BY_ITSELF:
            if self._machine.knows(judged.tool):
                self._tell(self._machine.on(Finished(judged.tool, key_of(judged), now_ns())))
            return None
        made = _input(settle)
        if made is None:
            return None
        now = now_ns()
        self._tell(self._machine.on(made(judged.tool, key_of(judged), now, judged.contract.failure_is_feedback)))
        ward = self._machine.refusal(judged.tool, key_of(judged), now) or self._machine.level(judged.tool, now)
        return None if ward is None else Notice("quarantine", "warn", sentence(ward, self.settings, now))

    def leaked(self, tool: str) -> None:
        """A worker at a call of this tool was killed and is not dead."""
        self._tell(self._machine.on(Leaked(tool, now_ns())))

    def confirmed(self, tool: str) -> None:
        """One that had leaked is dead now."""
        self._tell(self._machine.on(Confirmed(tool, now_ns())))

    # ------------------------------------------------------------ at any time

    def wards(self) -> list[Ward]:
        """The quarantines in force."""
        return [ward for ward in self._machine.wards(now_ns()) if ward.measure is not Measure.WARN]

    async def run(self) -> None:
        """Lift what ends by itself when its time comes, until cancelled: the events are told in time."""
        while True:
            with trio.CancelScope() as self._nap:
                self._keep_time()
                await trio.sleep_forever()
            self._tell(self._machine.on_time(now_ns()))

    def _keep_time(self) -> None:
        if self._nap is not None:
            at_ns = self._machine.next_timer_ns()
            self._nap.deadline = math.inf if at_ns is None else loop_time(at_ns)

    def _tell(self, effects: Effects) -> None:
        for effect in effects:
            kind = EventKind.QUARANTINED if isinstance(effect, Entered) else EventKind.QUARANTINE_LIFTED
            ward, now = effect.ward, now_ns()
            data: dict[str, Any] = {"measure": str(ward.measure), "tool": ward.tool, "count": ward.count}
            if ward.key is not None:
                data["key"] = ward.key[:SHOWN_HEX]
            if isinstance(effect, Entered):
                data["why"] = sentence(ward, self.settings, now)
            self._note(kind, **data)
        if effects:
            self._keep_time()


def _input(settle: Settle) -> type[Lost | Hung] | None:
    """What a settlement says of the call, if anything: it must have begun, and nobody outside have ended it."""
    if settle.delivery is not Delivery.UNKNOWN or settle.death is None:
        return None
    if settle.reason in _LOSSES:
        return Lost
    return Hung if settle.reason in _HANGS else None


def key_of(judged: Judged) -> str:
    """A digest of a tool with its arguments, the order of their names and their spacing aside."""
    values = msgspec.json.decode(judged.arguments)
    said = judged.tool.encode() + b"\0" + msgspec.json.encode(values, order="deterministic")
    return hashlib.sha256(said).hexdigest()
