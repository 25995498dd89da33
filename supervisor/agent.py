"""An agent: carries out what the machine of its loop says, by asking the daemon and a model. A shell, with no policy.

It steers a run like any client, through a `Line`; the run's bounds are the daemon's. Whatever it waits for ends when
the run does.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from contextlib import aclosing
from typing import Any, Protocol, TypeAlias, assert_never

import msgspec
import trio

from protocol import _client_messages as cm
from protocol._events import EventKind
from protocol._outcomes import CallResult, ErrorInfo, Status
from protocol._runs import ApprovalView, OpenEffect, StopRecord
from supervisor.clock import loop_time, now_ns
from supervisor.core import turn_words as words
from supervisor.core.context import Pins
from supervisor.core.model_events import Gateway, ModelError, Request, Stop, Text, ToolCall, Usage
from supervisor.core.provider_failures import FailureKind, ProviderFailure
from supervisor.core.run_wishes import MOST_AMOUNT, MOST_NOTES, MOST_TEXT
from supervisor.core.turn import State, TurnMachine

_EVENTS, _WAIT_MS = 200, 20_000
_SHOWN, _PINNED = 400, 20
_MOMENT_NS, _LATER_NS = 50_000_000, 1_000_000
"""The daemon counts in nanoseconds what it says in milliseconds: a turn that is cut a little later finds it decided."""
Answer: TypeAlias = cm.Answer | cm.Failed
"""Those that the link allows for a request."""


class Line(Protocol):
    """A way to the daemon. What is sent is taken there in the order of the sending."""

    def send(self, request: cm.Request) -> Any:
        """Ask, under a number of the line's own; what names the request."""

    async def answer(self, asked: Any) -> Answer:
        """The last answer to what was sent. Cancelled, nobody hears it."""


class Agent:
    """One run's loop. ``pinned``: its goal, and what else is known from the start. ``tell``: hears every step, effects
    before they are carried out and inputs before they are taken. ``draw``: even between 0 and 1."""

    def __init__(
        self,
        line: Line,
        gateway: Gateway,
        run: str,
        machine: TurnMachine,
        pinned: Pins,
        tell: Callable[[words.Effect | words.Input], None] = lambda _: None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._line, self._gateway, self.run, self._machine = line, gateway, run, machine
        self._pinned, self._tell, self._draw = pinned, tell, draw
        self._stop: StopRecord | None = None
        self._stopped = trio.Event()
        self._seq = 0
        """Events of the run up to this number were read."""
        self._heard: set[str] = set()
        """Calls that have been answered: what the log says of them is nothing new."""

    async def steer(self) -> StopRecord:
        """Go on until the run has settled. Cancelled, it asks nothing more: what becomes of the run is its opener's.

        Raises LostRunError, and what the line raises.
        """
        try:
            await self._steer()
        except BaseExceptionGroup as errors:
            raise _first(errors) from None
        stop = self._machine.stop
        assert stop is not None
        return stop

    async def _steer(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._hear_stop)
            waits = self._machine.state is State.SUSPENDED
            effects: deque[words.Effect] = deque()
            effects += (words.AwaitResumption(),) if waits else self._take(words.Begun())
            while self._machine.state is not State.SETTLED:
                given = await self._carry(effects.popleft())
                if given is not None:
                    effects = deque(self._take(given))
            nursery.cancel_scope.cancel()

    async def _ask(self, request: cm.Request) -> Answer:
        return await self._line.answer(self._line.send(request))

    def _take(self, given: words.Input) -> words.Effects:
        self._tell(given)
        return self._machine.on(given)

    async def _hear_stop(self) -> None:
        """When the run has stopped for good, whatever is waited for is not worth it any more."""
        self._stop = await self._end()
        self._stopped.set()

    async def _end(self) -> StopRecord:
        answer = await self._ask(cm.WaitRun(0, self.run, settled=True))
        if not isinstance(answer, cm.RunSettled):
            raise LostRunError(answer)
        return answer.stop

    # ------------------------------------------------------------ effects

    async def _carry(self, effect: words.Effect) -> words.Input | None:
        """What came of it; None: nothing that the machine wants to hear."""
        self._tell(effect)
        match effect:
            case words.Look():
                return words.Looked(await self._pins())
            case words.Reserve():
                return await self._reserve(effect)
            case words.Decide():
                return await self._decide(effect)
            case words.SettleModel():
                return await self._settle(effect)
            case words.Backoff():
                return await self._back_off(effect)
            case words.Keep():
                return await self._keep(effect)
            case words.Act():
                return await self._act(effect)
            case words.AwaitStop():
                return await self._sleep_until(now_ns() + _MOMENT_NS)
            case words.AwaitResumption():
                return await self._await_resumption(effect.known)
            case words.AskFinish() | words.AskPerson() | words.GiveUp():
                return _heard(await self._ask(self._last_word(effect)))
            case _:
                assert_never(effect)

    def _last_word(self, effect: words.AskFinish | words.AskPerson | words.GiveUp) -> cm.Request:
        match effect:
            case words.AskFinish():
                return cm.FinishRun(0, self.run, effect.finish.answer, effect.plain, effect.finish.fields)
            case words.AskPerson():
                return cm.AskPerson(0, self.run, effect.question[:MOST_TEXT])
            case words.GiveUp():
                return cm.StopRun(0, self.run, effect.reason, effect.detail[:_SHOWN])

    async def _pins(self) -> Pins:
        """From the daemon, each time: nothing that was said can have changed it."""
        approvals = await self._ask(cm.ListApprovals(0, self.run, all=True))
        effects = await self._ask(cm.ListEffects(0, self.run))
        asked = approvals.approvals if isinstance(approvals, cm.Approvals) else []
        unclear = effects.effects if isinstance(effects, cm.Effects) else []
        return msgspec.structs.replace(
            self._pinned,
            approvals=tuple(f"{_said(one)}: {one.state} ({one.scope}) {one.note}".rstrip() for one in asked[-_PINNED:]),
            unresolved_effects=tuple(f"{one.call} {_said(one)}: outcome unknown" for one in unclear[-_PINNED:]),
        )

    async def _reserve(self, effect: words.Reserve) -> words.Input | None:
        if effect.begins:
            begun = await self._ask(cm.StepRun(0, self.run))
            if not isinstance(begun, cm.RunState) and not _wraps_up(begun):
                return _heard(begun)
        ask = cm.ReserveModel(0, self.run, self._gateway.model, effect.max_in, effect.max_out)
        answer = await self._ask(ask)
        if isinstance(answer, cm.ModelReserved):
            until_ns = now_ns() + answer.remaining_ms * 1_000_000
            return words.Reserved(answer.reservation, until_ns, answer.wraps_up)
        return _heard(answer)

    async def _settle(self, effect: words.SettleModel) -> words.Input | None:
        answer = await self._ask(cm.SettleModel(0, self.run, effect.reservation, *_tokens(effect.usage)))
        return words.RunStopped(answer.stop) if isinstance(answer, cm.RunSettled) else None

    async def _back_off(self, effect: words.Backoff) -> words.Input | None:
        ask = cm.RetryModel(0, self.run, delay_ms=effect.delay_ms, detail=effect.detail[:_SHOWN])
        answer = await self._ask(ask)
        if not isinstance(answer, cm.RunState):
            return _heard(answer)
        return await self._sleep_until(effect.until_ns)

    async def _sleep_until(self, until_ns: int) -> words.Input:
        with trio.move_on_at(loop_time(until_ns)):
            await self._stopped.wait()
        return words.Woken() if self._stop is None else words.RunStopped(self._stop)

    async def _keep(self, effect: words.Keep) -> words.Input | None:
        notes = self._machine.dump()
        kept = notes if len(notes) <= MOST_NOTES else ""  # it goes on, but in no other life
        answer = await self._ask(cm.KeepNotes(0, self.run, kept, list(effect.folded)))
        return words.RunStopped(answer.stop) if isinstance(answer, cm.RunSettled) else None

    # ------------------------------------------------------------ the model

    async def _decide(self, effect: words.Decide) -> words.Input | None:
        """The model's turn, as long as there is time for it and the run goes on."""
        decided: list[words.Input] = []
        async with trio.open_nursery() as nursery:
            nursery.cancel_scope.deadline = loop_time(effect.until_ns + _LATER_NS)
            nursery.start_soon(self._cut_when_stopped, nursery.cancel_scope)
            decided.append(await self._turn(effect.request))
            nursery.cancel_scope.cancel()
        if decided:
            return decided[0]
        return words.Expired() if self._stop is None else words.RunStopped(self._stop)

    async def _cut_when_stopped(self, scope: trio.CancelScope) -> None:
        await self._stopped.wait()
        scope.cancel()

    async def _turn(self, request: Request) -> words.Input:
        draft = _Draft()
        try:
            async with aclosing(self._gateway.stream(request)) as events:
                async for event in events:
                    if isinstance(event, Stop):
                        return words.Decided(
                            "".join(draft.text), tuple(draft.calls), event.reason, draft.usage, now_ns(), self._draw()
                        )
                    draft.add(event)
        except ModelError as error:
            return words.DecideFailed(error.failure, draft.usage, now_ns(), self._draw())
        except Exception as error:  # noqa: BLE001  # whatever decides is somebody else's code: the run says what it was
            failure = ProviderFailure(FailureKind.OTHER, message=f"{type(error).__name__}: {error}")
            return words.DecideFailed(failure, draft.usage, now_ns(), self._draw())
        kind = FailureKind.EMPTY_STREAM if draft.empty else FailureKind.CUT_STREAM
        failure = ProviderFailure(kind, message="the model's turn ended without its stop")
        return words.DecideFailed(failure, draft.usage, now_ns(), self._draw())

    # ------------------------------------------------------------ calls

    async def _act(self, effect: words.Act) -> words.Input:
        for one in effect.declined:
            ask = cm.RefuseCall(0, self.run, one.call.name, one.text[:MOST_TEXT], decision=one.decision)
            answer = await self._ask(ask)
            if isinstance(answer, cm.RunSettled):
                return words.RunStopped(answer.stop)
        sent = [self._line.send(self._submit(proposed)) for proposed in effect.proposed]
        answers = [await self._line.answer(asked) for asked in sent]
        results = tuple(map(_result, effect.proposed, answers))
        self._heard.update(result.call for result in results)
        return words.Acted(results)

    def _submit(self, proposed: words.Proposed) -> cm.Submit:
        call = proposed.call
        return cm.Submit(0, call.name, call.arguments, run=self.run, key=proposed.key, decision=proposed.decision)

    # ------------------------------------------------------------ people

    async def _await_resumption(self, known: tuple[str, ...]) -> words.Input:
        """Read on in the run's events until it goes on, or has ended. It may have gone on before it was suspended: one
        of the calls that wait was decided while another ran. What the log has of calls before is no such sign: that it
        is suspended may not have come there yet."""
        answer, moved, suspended = "", False, False
        while True:
            wait_ms = 0 if moved and not suspended else _WAIT_MS  # else it goes on unless there is more to read
            ask = cm.ReadEvents(0, self._seq, _EVENTS, run=self.run, wait_ms=wait_ms)
            found = await self._ask(ask)
            if not isinstance(found, cm.Events):
                raise LostRunError(found)
            for event in found.events:
                match event.kind:
                    case EventKind.RUN_SETTLED:
                        return words.RunStopped(await self._end())
                    case EventKind.RUN_SUSPENDED:
                        moved, suspended = False, True
                    case EventKind.RUN_RESUMED:
                        moved, suspended = event.data.get("phase") != "complete", False
                        answer = str(event.data.get("answer", ""))
                    case EventKind.FINISH_REFUSED:  # by a person, or by a check behind a person's yes
                        moved, answer = True, str(event.data.get("text", ""))
                    case EventKind.CALL_VALIDATED | EventKind.CALL_ENDED:
                        moved = moved or (event.call not in known and event.call not in self._heard)
            self._seq = found.last
            if moved and not suspended and len(found.events) < _EVENTS:
                return words.Resumed(answer)
            if not found.events:  # something of another run: a busy log is not read at each of its events
                await self._sleep_until(now_ns() + _MOMENT_NS)


class LostRunError(Exception):
    """The daemon does not know the run any more, or does not answer as it should."""

    def __init__(self, answer: Answer) -> None:
        said = answer.error.message if isinstance(answer, cm.Failed) else repr(answer)[:_SHOWN]
        super().__init__(f"the run cannot be steered any more: {said}")


class _Draft:
    """What a model has said of a turn so far. It is thrown away whole when the turn has no stop."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.calls: list[ToolCall] = []
        self.usage: Usage | None = None

    @property
    def empty(self) -> bool:
        return not (self.text or self.calls)

    def add(self, event: Text | ToolCall | Usage) -> None:
        match event:
            case Text():
                self.text.append(event.text)
            case ToolCall():
                self.calls.append(event)
            case Usage():
                self.usage = event
            case _:
                assert_never(event)


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    error = errors.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


def _heard(answer: Answer) -> words.Input | None:
    """What an answer that is no plain yes means to the machine."""
    match answer:
        case cm.RunSettled():
            return words.RunStopped(answer.stop)
        case cm.FinishRefused():
            return words.FinishRefused(answer.feedback)
        case cm.Failed():
            return words.Objected(answer.error.code, answer.error.message)
        case _:
            return None


def _tokens(used: Usage | None) -> tuple[int | None, int | None, int]:
    """What was used, in amounts that can be: a model is not asked how its budget is counted."""
    if used is None:
        return None, None, 0
    tokens_in, tokens_out, cached_in = (
        max(0, min(amount, MOST_AMOUNT)) for amount in (used.tokens_in, used.tokens_out, used.cached_in)
    )
    return tokens_in, tokens_out, cached_in


def _wraps_up(answer: Answer) -> bool:
    """Nothing new begins any more, and there is still a last word."""
    return isinstance(answer, cm.Failed) and answer.error.code == "wrapping_up"


def _said(one: ApprovalView | OpenEffect) -> str:
    return f"{one.tool} {(one.arguments or '')[:_SHOWN]}"


def _result(proposed: words.Proposed, answer: Answer) -> CallResult:
    if isinstance(answer, cm.Settled):
        return answer.result
    call = proposed.call  # the daemon did not take it at all
    error: ErrorInfo | None = answer.error if isinstance(answer, cm.Failed) else None
    return CallResult("", call.name, Status.NOT_EXECUTED, error=error, summary="not executed")
