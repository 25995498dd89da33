"""Calls between two attempts: whether there is another one, and the wait before it. Owns the sleeping ones.

`core/call` says that an attempt is over and another one wanted, `core/retry` how long to wait; here are the budget, the
random number, the quarantine and the timer. A sleeping call holds no worker and none of its output. It keeps what
admission gave it, its turn in the run before all: decision 0052.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from protocol._deadlines import NEVER_NS, elapsed_ms
from protocol._events import EventKind
from protocol._outcomes import Notice
from protocol._quantities import say_duration
from supervisor.clock import now_ns
from supervisor.core import call as machine
from supervisor.core.intake import Refusal
from supervisor.core.retry import GiveUp, Why, backoff_of
from supervisor.live_call import LiveCall
from supervisor.trouble import Note, Trouble

if TYPE_CHECKING:
    from supervisor.endings import Endings
    from supervisor.settlement import Settlement

Charge = Mapping[str, int]
_NOTHING: Charge = {}
_GIVEN_UP = {
    Why.ATTEMPTS_SPENT: "as often as its contract allows",
    Why.NO_TIME_LEFT: "there is no time left for that before its deadline",
    Why.ASKED_TO_WAIT_TOO_LONG: "it would have to wait for longer than its deadline allows",
}
_SHOWN = 200
_NO_BUDGET = "its run has no retry left"


def _free(_call: LiveCall) -> Charge | None:
    return _NOTHING


class Retries:
    """``feed(call, input)`` gives the call's machine an input, ``wake(at_ns)`` sees to it that `on_time` comes then.

    ``charge(call)`` is asked before each further attempt: what it costs the call's run, which has been reserved by then
    and is in the event; None: the run cannot pay it. ``draw()``: even between 0 and 1.
    """

    def __init__(
        self,
        settlement: Settlement,
        endings: Endings,
        trouble: Trouble,
        note: Note,
        feed: Callable[[LiveCall, machine.Input], None],
        wake: Callable[[int], None],
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._settlement, self._endings, self._trouble, self._note = settlement, endings, trouble, note
        self._feed, self._wake, self._draw = feed, wake, draw
        self._sleeping: dict[str, tuple[int, LiveCall]] = {}
        self.charge: Callable[[LiveCall], Charge | None] = _free

    def consider(self, call: LiveCall, retry: machine.Retry) -> None:
        """An attempt is over: the call sleeps until the next, or settles as it had ended."""
        now, made = now_ns(), len(call.machine.retried) - 1
        answer = backoff_of(call.judged.contract).next(made, self._draw(), now, call.judged.deadline_ns)
        if isinstance(answer, GiveUp):
            self._give_up(call, _GIVEN_UP[answer.why])
        elif (charge := self.charge(call)) is None:
            self._give_up(call, _NO_BUDGET)
        else:
            self._sleep(call, retry, answer.until_ns, elapsed_ms(now, answer.until_ns), charge)

    def _sleep(self, call: LiveCall, retry: machine.Retry, until_ns: int, wait_ms: int, charge: Charge) -> None:
        data: dict[str, Any] = {"tool": call.judged.tool, "class": retry.cause, "delay_ms": wait_ms}
        data["attempt"] = call.machine.attempts + 1
        if charge:
            data["charge"] = dict(charge)
        self._note(EventKind.RETRY_SCHEDULED, call.id, call.uid, call.judged.run, **data)
        self._say(call, f"{_why(retry)}; tried again after {say_duration(wait_ms)}")
        worker = call.worker
        assert worker is not None
        self._settlement.attempt_over(call, retry.ended, worker)
        self._endings.drop_outputs(call, worker)
        if retry.ended.death is not None:  # a living one is let go of when the machine releases it
            worker.call = call.worker = None
        self._sleeping[call.id] = until_ns, call
        self._wake(until_ns)

    def _give_up(self, call: LiveCall, why: str) -> None:
        self._say(call, f"not tried again: {why}")
        self._feed(call, machine.RetryRefused(now_ns()))

    def _say(self, call: LiveCall, text: str) -> None:
        call.notices.append(Notice("retry", "info", text, call.machine.attempts))

    def released(self, call: LiveCall) -> None:
        """Its worker serves others: a sleeping call has nothing to do with it any more."""
        if call.id in self._sleeping:
            call.worker = None

    def forget(self, call: LiveCall) -> None:
        """It has settled, maybe asleep."""
        self._sleeping.pop(call.id, None)

    def on_time(self, now: int) -> None:
        """Wake those whose wait is over."""
        for _, call in [entry for entry in self._sleeping.values() if entry[0] <= now]:
            del self._sleeping[call.id]
            self._begin(call, now)

    def _begin(self, call: LiveCall, now: int) -> None:
        try:
            self._trouble.check(call.judged)
        except Refusal as refusal:  # its tool, or the call itself, was put in quarantine meanwhile
            self._give_up(call, str(refusal))
        else:
            self._feed(call, machine.RetryDue(now))

    def next_timer_ns(self) -> int:
        """When the first of them wakes; NEVER_NS when none sleeps."""
        return min((until_ns for until_ns, _ in self._sleeping.values()), default=NEVER_NS)


def _why(retry: machine.Retry) -> str:
    ended = retry.ended.ended
    said = ended.message if ended is not None and retry.cause == "transient_tool" else None
    return f"{retry.cause}: {' '.join(said.split())[:_SHOWN]}" if said else str(retry.cause)
