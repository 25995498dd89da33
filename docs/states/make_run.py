"""Writes ``run.md`` out of the machine itself, as `make` does ``call.md``: rules from its docstring, every cell by
giving it the input.

``python docs/states/make_run.py`` writes the page, ``--check`` exits 1 when the page is not what the machine says.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import _page

from protocol._runs import RunReason, RunStatus
from supervisor.core import run as machine
from supervisor.core.run import RunMachine, State

PAGE = Path(__file__).with_name("run.md")
DEADLINE_NS, NOW_NS, WRAP_NS = 10_000_000_000, 2_000_000_000, 1_000_000_000


def _cancel() -> machine.StopAsked:
    return machine.StopAsked(RunStatus.CANCELLED, RunReason.CLIENT, NOW_NS, ends_calls=True)


def _spent() -> machine.StopAsked:
    return machine.StopAsked(RunStatus.BUDGET_EXHAUSTED, RunReason.STEP_BUDGET, NOW_NS)


def _stuck() -> machine.StopAsked:
    return machine.StopAsked(RunStatus.STUCK, RunReason.REPEAT_CALL, NOW_NS)


def _waited() -> machine.Waited:
    return machine.Waited(RunStatus.WAITING_FOR_APPROVAL, RunReason.APPROVAL_REQUIRED, NOW_NS)


VARIANTS: tuple[tuple[str, Callable[[], machine.Input]], ...] = (
    ("`Began`", machine.Began),
    ("`Ended`, the last in flight", lambda: machine.Ended(NOW_NS)),
    ("`StopAsked` (stuck)", _stuck),
    ("`StopAsked` (a budget)", _spent),
    ("`StopAsked` (a cancel)", _cancel),
    ("`Waited`", _waited),
    ("`Answered`", lambda: machine.Answered(NOW_NS)),
    ("`FinishAsked`", lambda: machine.FinishAsked("answer", NOW_NS)),
    ("`CheckEnded`, passed", lambda: machine.CheckEnded(None, NOW_NS)),
    ("`CheckEnded`, not passed", lambda: machine.CheckEnded("red", NOW_NS)),
    ("`Overdue`", lambda: machine.Overdue(DEADLINE_NS - WRAP_NS)),
)
_WAY: dict[str, tuple[State, tuple[Callable[[], machine.Input], ...]]] = {
    "RUNNING": (State.RUNNING, ()),
    "RUNNING, a call in flight": (State.RUNNING, (machine.Began,)),
    "CHECKING": (State.CHECKING, (lambda: machine.FinishAsked("answer", 1),)),
    "STOPPING": (State.STOPPING, (machine.Began, _stuck)),
    "WRAPPING": (State.WRAPPING, (_spent,)),
    "SUSPENDED": (State.SUSPENDED, (_waited,)),
    "SUSPENDED, to confirm an answer": (State.SUSPENDED, (lambda: machine.FinishAsked("answer", 1), _waited)),
    "SETTLED": (State.SETTLED, (_cancel,)),
}
_LEGEND = """\
A row is an input, a column where it arrives. A cell names the next state and the effects, in order; `stay` means that
the input changes nothing. The run of this table has one check and something held back to conclude; its clock stands
still while it is suspended. `STOPPING` is entered by a detector with a call in flight, `WRAPPING` by a step budget."""


def page() -> str:
    """The whole page. Raises AssertionError for a state or an input that has no place on it."""
    assert {kind for _, kind in machine._TABLE} == {type(make()) for _, make in VARIANTS}
    assert {state for state, _ in _WAY.values()} == set(State)
    table = _page.table(list(_WAY), VARIANTS, _cell)
    return _page.written("The machine of one run", __file__, machine, (machine.Input, machine.Effect), _LEGEND, table)


def _cell(place: str, given: machine.Input) -> str:
    state, way = _WAY[place]
    run = RunMachine(DEADLINE_NS, checks=True, wrap_up_ns=WRAP_NS)
    for step in way:
        run.on(step())
    assert run.state is state, f"the way to {place} ends in {run.state}"
    if isinstance(given, machine.Ended) and not run.in_flight:
        return "–"
    effects = [_words(effect) for effect in run.on(given)]
    return _page.cell(state, run.state, effects)


def _words(effect: machine.Effect) -> str:
    match effect:
        case machine.Settle() | machine.Suspend():
            return f"`{type(effect).__name__}` {effect.status} · {effect.reason}"
        case _:
            return f"`{type(effect).__name__}`"


def main(words: list[str]) -> int:
    """Write the page, or with ``--check`` compare it."""
    return _page.main(__file__, PAGE, page, words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
