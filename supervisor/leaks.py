"""Kills that the kernel has not confirmed: who is left, which slot that costs, since when, and when it was over after
all. Owns the list of them and their events. That a death does not come is told by the second line, that it came by the
pool; the slot is the worker's until then, and nobody else's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import trio

from protocol._client_messages import QuarantineRow
from protocol._deadlines import elapsed_ms
from protocol._events import EventKind
from protocol._outcomes import Survivor
from protocol._quantities import say_duration
from supervisor.clock import now_ns
from supervisor.containment.survivors import list_survivors

if TYPE_CHECKING:
    from supervisor.containment.workers import Worker
    from supervisor.live_call import LiveCall
    from supervisor.trouble import Note, Trouble

_LOOK_S = 0.2
"""Patience for the command lines of processes that hang in the kernel."""


class Leak(msgspec.Struct):
    """One worker that was killed and is not dead. ``since_ns``: when its kill was due."""

    worker: int
    slot: int
    since_ns: int
    call: str | None
    tool: str | None
    uid: int | None
    run: str | None
    survivors: list[Survivor]
    told: bool = False
    refused: str | None = None
    """Why the kernel took no signal for it, if it did not."""


class Leaks:
    """All of them. ``total``: since the start, those that were confirmed later included."""

    def __init__(self, trouble: Trouble, note: Note) -> None:
        self._trouble, self._note = trouble, note
        self._open: dict[int, Leak] = {}
        self.total = 0

    def enter(self, worker: Worker) -> None:
        """The confirm budget of a worker is spent. At once, because the next thing that is heard may be its end."""
        self.total += 1
        call: LiveCall | None = worker.call
        leak = Leak(worker.number, worker.slot, worker.due_ns or now_ns(), None, None, None, None, [])
        if call is not None:
            leak.call, leak.tool, leak.uid, leak.run = call.id, call.judged.tool, call.uid, call.judged.run
            self._trouble.leaked(call.judged.tool)
        self._open[worker.number] = leak

    async def look(self, worker: Worker) -> list[Survivor]:
        """Who is left of a worker that was entered. Takes at most 0.2 s."""
        leak = self._open.get(worker.number)
        if leak is None:
            return []
        with trio.move_on_after(_LOOK_S):
            await trio.to_thread.run_sync(list_survivors, worker.pid, leak.survivors, abandon_on_cancel=True)
        leak.refused = worker.kill_refused
        survivors = list(leak.survivors)  # the abandoned thread may still be at it
        if worker.number not in self._open:  # it died while we looked
            return survivors
        leak.told = True
        self._say(EventKind.KILL_UNCONFIRMED, leak, survivors=msgspec.to_builtins(survivors), refused=leak.refused)
        return survivors

    def gone(self, worker: Worker) -> None:
        """The kernel has confirmed a worker's end. Of most nobody had ever doubted it."""
        leak = self._open.pop(worker.number, None)
        if leak is None:
            return
        if leak.tool is not None:
            self._trouble.confirmed(leak.tool)
        if leak.told:
            self._say(EventKind.KILL_CONFIRMED, leak, after_ms=elapsed_ms(leak.since_ns, now_ns()))

    def rows(self) -> list[QuarantineRow]:
        """The slots that are lost at the moment."""
        now = now_ns()
        return [
            QuarantineRow(
                "slot", "unconfirmed", _sentence(leak, now), None, tool=leak.tool, call=leak.call, slot=leak.slot
            )
            for leak in self._open.values()
        ]

    def _say(self, kind: EventKind, leak: Leak, **more: object) -> None:
        self._note(kind, leak.call, leak.uid, leak.run, tool=leak.tool, worker=leak.worker, slot=leak.slot, **more)


def _sentence(leak: Leak, now: int) -> str:
    served = f", at call {leak.call} of {leak.tool}" if leak.call else ""
    who = ", ".join(_who(survivor) for survivor in leak.survivors) or "nobody that can be seen"
    since = say_duration(elapsed_ms(leak.since_ns, now))
    what = "was killed" if leak.refused is None else f"could not be signalled ({leak.refused})"
    return (
        f"slot {leak.slot}: worker {leak.worker}{served}, {what} {since} ago and is not dead ({who});"
        " in quarantine until it is"
    )


def _who(survivor: Survivor) -> str:
    where = f" in {survivor.waits_in}" if survivor.waits_in else ""
    return f"pid {survivor.pid} of uid {survivor.uid}, {survivor.command}, state {survivor.state}{where}"
