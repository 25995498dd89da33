"""The loop of an agent, round by round: ask the budget, decide, do what was decided, check. Every transition is here.

The machine is a client of the daemon like any other: it decides what is asked next; its bounds are kept elsewhere.

Rules
1. A model is asked when its call is paid for and not before. What it says counts once its stop has come and every call
   in it is whole; else the turn is thrown away, and nothing of it is done or remembered.
2. What failed in passing is asked again, as often and after such waits as the settings say, each time paid for first.
   Whatever else failed, and what failed too often, ends the run by its reason.
3. `finish` and `ask_user` stand alone in their turn. Beside other calls they are refused, and the others are made.
4. Text without a call is an answer: it takes the same way as `finish`.
5. The calls of a turn, at most `MOST_CALLS`, are made together, each under a key of its own (decision and number), and
   their results are told in the order of the calls. A call that waits for a person is made again under its key when the
   run goes on: the key answers with what became of it, and nothing runs twice.
6. A run whose budget is used up is asked for a last word, without tools; what is said then is the answer.
7. Whenever the run has stopped the machine is done, or waits with it for a person. An answer comes as the result of the
   question, or as a message.
8. Before anything is done that may suspend the run, what is needed to go on is kept.
9. The machine is total: an input that means nothing in a state changes nothing.

States: IDLE → LOOKING → RESERVING → DECIDING → CALLING | CHECKING | ASKING → LOOKING …; BACKOFF between two attempts;
STOPPING until the run has stopped; SUSPENDED; SETTLED.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum, auto
from typing import Any

import msgspec

from protocol._outcomes import CallResult, Reason, Status
from protocol._runs import ProviderReason, RunStatus, StopRecord
from supervisor.core import turn_words as words
from supervisor.core.arguments import is_cut
from supervisor.core.briefing import WRAP_UP
from supervisor.core.context import NO_PINS
from supervisor.core.conversation import Conversation, sayable
from supervisor.core.host_tools import FINISH, Finish, HostToolError, read_as, refuse_finish
from supervisor.core.model_events import Message, Request, ToolCall, Usage
from supervisor.core.observations import observation
from supervisor.core.own_tools import OwnTools, Told
from supervisor.core.provider_failures import FailureKind, ProviderFailure, costs_nothing, give_up_reason, try_again
from supervisor.core.retry import Delay
from supervisor.core.run_wishes import MOST_ANSWER
from supervisor.core.trail import Trail
from supervisor.core.turn_words import Effects, Input, Proposed, Reserved, Terms

_BYTES_PER_TOKEN = 3
"""Fewer than a token of any language has on average: what is set aside for a turn should do."""
MOST_CALLS = 256
"""Of one turn: they are judged together, and nobody else's are meanwhile."""
_TOO_MANY = "a turn has at most {} calls, and this one had {}: this call and those behind it were not made"
_NOT_ALONE = "{} must stand alone in its turn; it was not done"


class State(Enum):
    """Where the loop is."""

    __hash__ = object.__hash__

    IDLE = auto()
    LOOKING = auto()
    RESERVING = auto()
    DECIDING = auto()
    BACKOFF = auto()
    CALLING = auto()
    CHECKING = auto()
    ASKING = auto()
    STOPPING = auto()
    SUSPENDED = auto()
    SETTLED = auto()


_STAY: Effects = ()


class TurnMachine:
    """``own``: what a model is offered, and what is done here. ``stop``: the run's, once it has stopped."""

    def __init__(self, conversation: Conversation, own: OwnTools, terms: Terms) -> None:
        self.conversation, self.own, self.terms = conversation, own, terms
        self.state = State.IDLE
        self.round = 0
        self.stop: StopRecord | None = None
        self._trail = Trail()
        self._pins = NO_PINS
        self._reserved: Reserved | None = None
        self._retries = self._objections = 0
        self._finish_call: ToolCall | None = None
        self._finishing = False
        """Whether the end was asked for, by a call or by plain text, and nothing was heard of it yet."""
        self._asked: ToolCall | None = None
        self._proposed: tuple[Proposed, ...] = ()
        self._calls: tuple[ToolCall, ...] = ()
        """Of the turn that is being done, in its order."""
        self._texts: dict[str, str] = {}
        """What the model will be told of them, by id, as far as it is known."""
        self._results: dict[str, CallResult] = {}
        self._folded: tuple[int, ...] = ()

    def on(self, given: Input) -> Effects:
        """Take one input; the effects are to be carried out in order, each before the next."""
        if isinstance(given, words.RunStopped):
            return self._stopped(given)
        return _TABLE.get((self.state, type(given)), TurnMachine._stay)(self, given)

    @property
    def decision(self) -> str:
        """The name of what was decided last."""
        return "" if self._reserved is None else f"d_{self._reserved.reservation}"

    def transcript(self) -> list[Message]:
        """The conversation, whole: every request has a result."""
        return self.conversation.transcript([proposed.call.id for proposed in self._proposed])

    # ------------------------------------------------------------ before a decision

    def _look(self, *_given: Input) -> Effects:
        self.state, self._objections, self._retries = State.LOOKING, 0, 0
        return (words.Look(),)

    def _looked(self, given: words.Looked) -> Effects:
        self._pins, self.state = given.pins, State.RESERVING
        return (self._keep(), self._reserve())

    def _reserve(self) -> words.Reserve:
        said = sum(len(msgspec.json.encode(part)) for part in (self._shown(), self.own.offered()))
        return words.Reserve(said // _BYTES_PER_TOKEN + 1, self.terms.max_out, self._retries == 0)

    def _shown(self) -> list[Message]:
        shown = self.conversation.context(self._pins, self.terms.last)
        return [*shown, Message("user", self.own.progress(), pinned=True)]

    def _paid(self, given: Reserved) -> Effects:
        self._reserved, self.state = given, State.DECIDING
        if not self._retries:
            self.round += 1
        messages, tools = self._shown(), self.own.offered()
        if given.wraps_up:
            messages, tools = [*messages, Message("user", WRAP_UP)], ()
        return (words.Decide(Request(messages, tools, self.terms.max_out), given.until_ns),)

    def _objected(self, given: words.Objected) -> Effects:
        if given.code == "run_busy":
            return self._await_stop()
        self._objections += 1
        if given.code == "wrapping_up" and self._objections == 1:
            self.state = State.RESERVING
            return (self._reserve(),)
        return self._give_up("permanent", given.text)

    # ------------------------------------------------------------ a decision

    def _decided(self, given: words.Decided) -> Effects:
        assert self._reserved is not None
        settle = words.SettleModel(self._reserved.reservation, given.usage)
        failure = None if self._reserved.wraps_up else _failure_in(given)
        if failure is not None:
            return (settle, *self._failed(failure, given.now_ns, given.random_0_1))
        self._retries = 0
        text = sayable(given.text)
        if self._reserved.wraps_up:
            self.conversation.decided(text, (), self.round)
            self.state = State.CHECKING
            return (settle, words.AskFinish(_last_word(text, given.calls), plain=True))
        self._calls = self.conversation.decided(text, given.calls, self.round)
        return (settle, *self._do(text))

    def _decide_failed(self, given: words.DecideFailed) -> Effects:
        assert self._reserved is not None
        usage = given.usage or (Usage(0, 0) if costs_nothing(given.failure) else None)
        settle = words.SettleModel(self._reserved.reservation, usage)
        if self._reserved.wraps_up:
            return (settle, *self._give_up(give_up_reason(given.failure), _said(given.failure)))
        return (settle, *self._failed(given.failure, given.now_ns, given.random_0_1))

    def _expired(self, _given: words.Expired) -> Effects:
        """What comes now, a last word or nothing, is the run's to say: it is asked like for any turn."""
        assert self._reserved is not None
        self.state, self._retries = State.RESERVING, 0
        return (words.SettleModel(self._reserved.reservation, None), self._reserve())

    def _failed(self, failure: ProviderFailure, now_ns: int, random_0_1: float) -> Effects:
        assert self._reserved is not None
        until_ns = self._reserved.until_ns
        answer = try_again(failure, self._retries, random_0_1, now_ns, until_ns, self.terms.retry)
        if not isinstance(answer, Delay):
            why = "" if answer is None else f" ({answer.why})"
            return self._give_up(give_up_reason(failure), f"{_said(failure)}{why}")
        self._retries += 1
        self.state = State.BACKOFF
        delay_ms = max(0, answer.until_ns - now_ns) // 1_000_000
        return (words.Backoff(answer.until_ns, delay_ms, _said(failure)),)

    def _woken(self, _given: words.Woken) -> Effects:
        self.state = State.RESERVING
        return (self._reserve(),)

    def _give_up(self, reason: ProviderReason, detail: str) -> Effects:
        self.state = State.STOPPING
        return (words.GiveUp(reason, detail),)

    # ------------------------------------------------------------ doing it

    def _do(self, text: str) -> Effects:
        if not self._calls:
            return self._do_text(text)
        if len(self._calls) == 1 and self.own.is_own(self._calls[0]):
            return self._do_alone(self._calls[0])
        made, over = self._calls[:MOST_CALLS], self._calls[MOST_CALLS:]
        declined = [
            words.Declined(call, why, self.decision) for call in made if (why := self._barred(call)) is not None
        ]
        not_made = {one.call.id for one in declined}
        self._proposed = tuple(
            Proposed(call, f"{self.decision}.{number}", self.decision)
            for number, call in enumerate(made)
            if call.id not in not_made
        )
        return self._act([*declined, *self._beyond(over)])

    def _beyond(self, over: Sequence[ToolCall]) -> list[words.Declined]:
        """The calls that are too many. The first of them is counted, for all."""
        why = _TOO_MANY.format(MOST_CALLS, len(self._calls))
        self._texts |= {call.id: f"[{call.name}: not done] {why}" for call in over[1:]}
        return [words.Declined(call, why, self.decision) for call in over[:1]]

    def _barred(self, call: ToolCall) -> str | None:
        return _NOT_ALONE.format(call.name) if self.own.is_own(call) else self.own.barred(call)

    def _do_text(self, text: str) -> Effects:
        finish = Finish(text)
        why = self.own.not_yet() or refuse_finish(finish)
        if why is None:
            return self._ask_finish(None, finish, plain=True)
        self.conversation.said_by_user(f"[host] The task is not finished: {why}", self.round)
        return self._act([words.Declined(ToolCall("", FINISH.name, ""), why, self.decision)])

    def _do_alone(self, call: ToolCall) -> Effects:
        try:
            said = self.own.read(call)
        except HostToolError as error:
            return self._act([words.Declined(call, str(error), self.decision)])
        if isinstance(said, Finish):
            return self._ask_finish(call, said, plain=False)
        if isinstance(said, Told):
            self._texts[call.id] = said.text
            return self._round_over()
        self.state, self._asked = State.ASKING, call
        return (self._keep(), words.AskPerson(said.question))

    def _ask_finish(self, call: ToolCall | None, finish: Finish, plain: bool) -> Effects:
        self.state, self._finish_call, self._finishing = State.CHECKING, call, True
        return (self._keep(), words.AskFinish(finish, plain))

    def _act(self, declined: Sequence[words.Declined]) -> Effects:
        self.state = State.CALLING
        self._texts |= {one.call.id: f"[{one.call.name}: not done] {one.text}" for one in declined}
        return (self._keep(), words.Act(tuple(declined), self._proposed))

    def _acted(self, given: words.Acted) -> Effects:
        waiting = []
        for proposed, result in zip(self._proposed, given.results, strict=True):
            if result.status is Status.WAITING_FOR_APPROVAL:
                waiting.append(proposed)
                continue
            line = self._trail.line(proposed.call.name, proposed.call.arguments, result)
            beside = f"\n{self.own.beside()}" if result.reason is Reason.UNKNOWN_TOOL else ""
            self._texts[proposed.call.id] = f"{line}\n{observation(result)}{beside}"
            self._results[proposed.call.id] = result
            self.own.ended(result)
        self._proposed = tuple(waiting)
        if waiting:
            self.state = State.SUSPENDED
            return (words.AwaitResumption(tuple(result.call for result in given.results)),)
        return self._round_over()

    def _round_over(self) -> Effects:
        for call in self._calls:
            self.conversation.answered(call, self._texts[call.id], self.round)
        results = [self._results[call.id] for call in self._calls if call.id in self._results]
        folded = self.conversation.finished(self.round, results) if self._calls else None
        self._folded += () if folded is None else (folded,)
        self._calls, self._texts, self._results = (), {}, {}
        return self._look()

    def _refused(self, given: words.FinishRefused) -> Effects:
        call, self._finish_call, self._finishing = self._finish_call, None, False
        text = f"The task is not finished. The check says:\n{given.feedback}"
        if call is None:
            self.conversation.said_by_user(f"[host] {text}", self.round)
        else:
            self._texts[call.id] = text
        return self._round_over()

    def _not_taken(self, given: words.Objected) -> Effects:
        return self._refused(words.FinishRefused(given.text))

    def _not_asked(self, given: words.Objected) -> Effects:
        assert self._asked is not None
        self._texts[self._asked.id], self._asked = f"[nobody was asked] {given.text}", None
        return self._round_over()

    # ------------------------------------------------------------ stops

    def _await_stop(self, *_given: Input) -> Effects:
        self.state = State.STOPPING
        return (words.AwaitStop(),)

    def _stopped(self, given: words.RunStopped) -> Effects:
        if self.state is State.SETTLED:
            return _STAY
        self.stop = given.stop
        if given.stop.outcome != "suspended":
            self._end(given.stop)
            return _STAY
        self.state = State.SUSPENDED
        return (words.AwaitResumption(),)

    def _end(self, stop: StopRecord) -> None:
        if self.state is not State.CALLING:
            self._proposed = ()  # they waited for a person, and that is known of them
        self.state = State.SETTLED
        if self._finish_call is not None and stop.status is RunStatus.COMPLETED:
            self._texts[self._finish_call.id] = "[accepted]"
        for call in self._calls:
            if call.id in self._texts:
                self.conversation.answered(call, self._texts[call.id], self.round)

    def _resumed(self, given: words.Resumed) -> Effects:
        self.stop = None
        more = self.own.answered()
        if self._asked is not None:
            said = f"[a person answers] {given.answer}\n{more}".rstrip()
            self._texts[self._asked.id], self._asked = said, None
            return self._round_over()
        if self._proposed:
            return self._act([])
        if self._finishing:
            return self._refused(words.FinishRefused(given.answer or "a person did not accept it"))
        said = f"A person answers: {given.answer}" if given.answer else "A person lets the task go on."
        effects = self._round_over() if self._calls else self._look()  # what was declined has its result first
        self.conversation.said_by_user(said)
        return effects

    def _stay(self, _given: Input) -> Effects:
        return _STAY

    # ------------------------------------------------------------ another life

    def _keep(self) -> words.Keep:
        folded, self._folded = self._folded, ()
        return words.Keep(folded)

    def dump(self) -> str:
        """What is needed to go on, as text."""
        kept = {
            "conversation": self.conversation.dump(),
            "trail": self._trail.dump(),
            "own": self.own.dump(),
            "round": self.round,
            "reserved": self._reserved,
            "calls": self._calls,
            "proposed": self._proposed,
            "texts": self._texts,
            "asked": self._asked,
            "finish": self._finish_call,
            "finishing": self._finishing,
        }
        return msgspec.json.encode(kept).decode()

    def load(self, text: str) -> None:
        """What `dump` gave, of a run that is suspended: `Resumed` is the next thing to come. Raises MsgspecError."""
        kept: dict[str, Any] = msgspec.json.decode(text)
        self.conversation.load(kept["conversation"])
        self._trail.load(kept["trail"])
        self.own.load(kept["own"])
        self.round, self._texts = kept["round"], kept["texts"]
        self._reserved = msgspec.convert(kept["reserved"], Reserved | None)
        self._calls = msgspec.convert(kept["calls"], tuple[ToolCall, ...])
        self._proposed = msgspec.convert(kept["proposed"], tuple[Proposed, ...])
        self._asked = msgspec.convert(kept["asked"], ToolCall | None)
        self._finish_call = msgspec.convert(kept["finish"], ToolCall | None)
        self._finishing = kept["finishing"]
        self.state = State.SUSPENDED


def _last_word(text: str, calls: Sequence[ToolCall]) -> Finish:
    """What was said. A model may end by a call also where it is offered none: its answer counts where there is no text.
    Part of what is too long is more than nothing."""
    said = text
    if not text.strip() and (ends := [call for call in calls if call.name == FINISH.name]):
        with suppress(HostToolError):
            said = sayable(read_as(Finish, ends[0]).answer)
    return Finish(said[:MOST_ANSWER])


def _said(failure: ProviderFailure) -> str:
    return sayable(f"{failure.kind}: {failure.message}")


def _failure_in(given: words.Decided) -> ProviderFailure | None:
    """Why a turn is thrown away although it came to its stop (rule 1); None: it counts."""
    if given.stop == "content_policy":
        return ProviderFailure(FailureKind.CONTENT_POLICY, message="the provider's content policy ended the turn")
    cut = next((call for call in given.calls if is_cut(call.arguments)), None)
    if cut is not None:
        return ProviderFailure(FailureKind.CUT_STREAM, message=f"the arguments of {cut.name[:80]!r} are cut off")
    if given.stop == "length":
        return ProviderFailure(FailureKind.CUT_STREAM, message="the turn was cut at the most tokens that it may have")
    if not given.calls and not given.text.strip():
        return ProviderFailure(FailureKind.EMPTY_STREAM, message="the turn says nothing")
    return None


_M = TurnMachine
_TABLE: dict[tuple[State, type], Callable[[TurnMachine, Any], Effects]] = {
    (State.IDLE, words.Begun): _M._look,
    (State.LOOKING, words.Looked): _M._looked,
    (State.RESERVING, Reserved): _M._paid,
    (State.RESERVING, words.Objected): _M._objected,
    (State.DECIDING, words.Decided): _M._decided,
    (State.DECIDING, words.DecideFailed): _M._decide_failed,
    (State.DECIDING, words.Expired): _M._expired,
    (State.BACKOFF, words.Woken): _M._woken,
    (State.BACKOFF, words.Objected): _M._objected,
    (State.CALLING, words.Acted): _M._acted,
    (State.CHECKING, words.FinishRefused): _M._refused,
    (State.CHECKING, words.Objected): _M._not_taken,
    (State.ASKING, words.Objected): _M._not_asked,
    (State.STOPPING, words.Objected): _M._await_stop,
    (State.STOPPING, words.Woken): _M._woken,
    (State.SUSPENDED, words.Resumed): _M._resumed,
}
