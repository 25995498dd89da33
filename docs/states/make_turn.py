"""Writes ``turn.md`` out of the machine itself, as `make_run` does ``run.md``: rules from its docstring, every cell by
giving it the input.

``python docs/states/make_turn.py`` writes the page, ``--check`` exits 1 when the page is not what the machine says.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import _page

from protocol._outcomes import CallResult, Status
from protocol._runs import RunDeadline, RunReason, RunStatus, StopRecord
from supervisor.core import turn as machine
from supervisor.core import turn_words as words
from supervisor.core.context import Pins
from supervisor.core.conversation import Conversation
from supervisor.core.model_events import StopReason, ToolCall, ToolSpec
from supervisor.core.own_tools import OwnTools
from supervisor.core.provider_failures import FailureKind, ProviderFailure
from supervisor.core.turn import State, TurnMachine

PAGE = Path(__file__).with_name("turn.md")
NOW_NS, UNTIL_NS = 2_000_000_000, 60_000_000_000
LOOK = ToolCall("a", "look", "{}")
ASK = ToolCall("a", "ask_user", '{"question": "which?"}')
FINISH = ToolCall("a", "finish", '{"answer": "done"}')
Make: TypeAlias = Callable[[], words.Input]


def _says(*calls: ToolCall, text: str = "", stop: StopReason = "tools") -> words.Decided:
    return words.Decided(text, calls, stop, None, NOW_NS)


def _fails(kind: FailureKind) -> words.DecideFailed:
    return words.DecideFailed(ProviderFailure(kind), None, NOW_NS)


def _stopped(suspended: bool) -> words.RunStopped:
    status = RunStatus.NEEDS_INPUT if suspended else RunStatus.BUDGET_EXHAUSTED
    reason = RunReason.MISSING_PARAMETER if suspended else RunReason.STEP_BUDGET
    outcome = "suspended" if suspended else "stopped"
    deadline = RunDeadline(60_000, 0, 60_000)
    return words.RunStopped(StopRecord("r", outcome, status, reason, None, 1, "", "", "", suspended, deadline, {}))


def _acted(status: Status) -> words.Acted:
    return words.Acted((CallResult("c_1", "look", status),))


VARIANTS: tuple[tuple[str, Make], ...] = (
    ("`Begun`", words.Begun),
    ("`Looked`", lambda: words.Looked(Pins("goal"))),
    ("`Reserved`", lambda: words.Reserved(1, UNTIL_NS)),
    ("`Reserved`, for a last word", lambda: words.Reserved(1, UNTIL_NS, wraps_up=True)),
    ("`Decided`, calls", lambda: _says(LOOK)),
    ("`Decided`, `finish`", lambda: _says(FINISH)),
    ("`Decided`, `ask_user`", lambda: _says(ASK)),
    ("`Decided`, text", lambda: _says(text="done", stop="end")),
    ("`Decided`, cut", lambda: _says(text="half", stop="length")),
    ("`DecideFailed`, in passing", lambda: _fails(FailureKind.RESET)),
    ("`DecideFailed`, for good", lambda: _fails(FailureKind.OTHER)),
    ("`Expired`", words.Expired),
    ("`Woken`", words.Woken),
    ("`Acted`", lambda: _acted(Status.OK)),
    ("`Acted`, one waits", lambda: _acted(Status.WAITING_FOR_APPROVAL)),
    ("`FinishRefused`", lambda: words.FinishRefused("red")),
    ("`Objected` (run_busy)", lambda: words.Objected("run_busy", "")),
    ("`Objected` (wrapping_up)", lambda: words.Objected("wrapping_up", "")),
    ("`Objected` (another)", lambda: words.Objected("unknown_price", "")),
    ("`RunStopped`, for good", lambda: _stopped(suspended=False)),
    ("`RunStopped`, suspended", lambda: _stopped(suspended=True)),
    ("`Resumed`", lambda: words.Resumed("answer")),
)
_TO_A_MODEL: tuple[Make, ...] = (words.Begun, lambda: words.Looked(Pins("goal")), lambda: words.Reserved(1, UNTIL_NS))
_WAY: dict[State, tuple[Make, ...]] = {
    State.IDLE: (),
    State.LOOKING: _TO_A_MODEL[:1],
    State.RESERVING: _TO_A_MODEL[:2],
    State.DECIDING: _TO_A_MODEL,
    State.BACKOFF: (*_TO_A_MODEL, lambda: _fails(FailureKind.RESET)),
    State.CALLING: (*_TO_A_MODEL, lambda: _says(LOOK)),
    State.CHECKING: (*_TO_A_MODEL, lambda: _says(FINISH)),
    State.ASKING: (*_TO_A_MODEL, lambda: _says(ASK)),
    State.STOPPING: (*_TO_A_MODEL, lambda: _fails(FailureKind.OTHER)),
    State.SUSPENDED: (*_TO_A_MODEL, lambda: _says(ASK), lambda: _stopped(suspended=True)),
    State.SETTLED: (lambda: _stopped(suspended=False),),
}
_LEGEND = """\
A row is an input, a column where it arrives. A cell names the next state and the effects, in order; `stay` means that
the input changes nothing. In this table the model has one call, an end or a question at a time; `SUSPENDED` is entered
by a question, `STOPPING` by a model that failed."""


def page() -> str:
    """The whole page. Raises AssertionError for a state or an input that has no place on it."""
    assert {kind for _, kind in machine._TABLE} | {words.RunStopped} == {type(make()) for _, make in VARIANTS}
    assert _WAY.keys() == set(State)
    table = _page.table([state.name for state in _WAY], VARIANTS, _cell)
    return _page.written("The machine of a loop", __file__, machine, (words.Input, words.Effect), _LEGEND, table)


def _cell(place: str, given: words.Input) -> str:
    state = State[place]
    conversation = Conversation("system")
    loop = TurnMachine(conversation, OwnTools("goal", [ToolSpec("look", "", {})]), words.Terms())
    for make in _WAY[state]:
        loop.on(make())
    assert loop.state is state, f"the way to {state.name} ends in {loop.state.name}"
    effects = [f"`{type(effect).__name__}`" for effect in loop.on(given)]
    return _page.cell(state, loop.state, effects)


def main(arguments: list[str]) -> int:
    """Write the page, or with ``--check`` compare it."""
    return _page.main(__file__, PAGE, page, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
