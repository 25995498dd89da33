"""Writes ``call.md`` out of the machine itself: its rules from its docstring, every cell by giving it the input.

``python docs/states/make.py`` writes the page, ``--check`` exits 1 when the page is not what the machine says. Nothing
about a transition is written down here; what is written here are the words for the inputs that decide a cell.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import _page

from protocol._contracts import Contract
from protocol._outcomes import Delivery, Reason, Status
from protocol._worker_messages import Ended
from supervisor.core import call as machine
from supervisor.core.call import CallMachine, State

PAGE = Path(__file__).with_name("call.md")
DEADLINE_NS, GRACE_MS = 10_000_000_000, 1_000
NOW_NS = 2_000_000_000
_CANCEL = machine.EndAsked(Status.CANCELLED, Reason.CLIENT, NOW_NS)
_ANSWER = Ended(1, "ok", content=1, reusable=True)
_PASSES = Ended(1, "raised", error_class="transient_tool", reusable=True)
_CONTRACT = Contract(idempotent=True)

VARIANTS: tuple[tuple[str, Callable[[], machine.Input]], ...] = (
    ("`Placed` before the deadline", lambda: machine.Placed(NOW_NS)),
    ("`Placed` at the deadline", lambda: machine.Placed(DEADLINE_NS)),
    ("`Expired`", lambda: machine.Expired(DEADLINE_NS)),
    ("`Accepted`", lambda: machine.Accepted(NOW_NS)),
    ("`Unsent`", lambda: machine.Unsent(NOW_NS)),
    ("`Answered` in time", lambda: machine.Answered(_ANSWER, NOW_NS)),
    ("`Answered` in time, transient", lambda: machine.Answered(_PASSES, NOW_NS)),
    ("`Answered` at the deadline", lambda: machine.Answered(_ANSWER, DEADLINE_NS)),
    ("`Answered` after the killer struck", lambda: machine.Answered(_ANSWER, NOW_NS, killed_ns=NOW_NS - 1)),
    ("`EndAsked` (a cancel)", lambda: _CANCEL),
    ("`Died` by the killer", lambda: machine.Died(DEADLINE_NS + 2, signalled_ns=DEADLINE_NS + 1)),
    ("`Died` by itself", lambda: machine.Died(NOW_NS)),
    ("`Died`, its group out of memory", lambda: machine.Died(NOW_NS, out_of_memory=True)),
    ("`ConfirmSpent`", lambda: machine.ConfirmSpent(DEADLINE_NS + 2, signalled_ns=DEADLINE_NS + 1)),
    ("`RetryRefused`", lambda: machine.RetryRefused(NOW_NS)),
    ("`RetryDue` before the deadline", lambda: machine.RetryDue(NOW_NS)),
    ("`RetryDue` at the deadline", lambda: machine.RetryDue(DEADLINE_NS)),
)
_WAY: dict[State, tuple[machine.Input, ...]] = {
    State.WAITING: (),
    State.SENT: (machine.Placed(1),),
    State.RUNNING: (machine.Placed(1), machine.Accepted(2)),
    State.DYING: (machine.Placed(1), machine.Accepted(2), _CANCEL),
    State.BACKOFF: (machine.Placed(1), machine.Accepted(2), machine.Answered(_PASSES, 3)),
    State.SETTLED: (machine.Expired(DEADLINE_NS),),
}
_ANSWERS = """\
## How an answer is called

What a worker says of a call's end (`Ended.how`), and what the caller reads for it. An `exit` with code 0 is `ok`; a
`raised` of class `policy` is `not_executed`, `sandbox_denied`.

| how | status | reason | delivery |
|---|---|---|---|
{answers}

"""
_LEGEND = """\
A row is an input, a column the state in which it arrives. A cell names the next state and the effects, in order;
`stay` means that the input changes nothing and has no effect. The call of this table has a grace (`term_grace_ms`);
without one the `Kill` after a cancel is due at once. `DYING` is shown as it is entered by a cancel. Its tool is
`idempotent` and wants transient errors tried again; `BACKOFF` is shown as it is entered by one, `WAITING` before the
first attempt."""


def page() -> str:
    """The whole page. Raises KeyError for a state, AssertionError for an input that the words above do not know."""
    missing = {kind for _, kind in machine._TABLE} - {type(make()) for _, make in VARIANTS}
    assert not missing, f"no words for {missing}"
    unions = (machine.Input, machine.Effect)
    answers = _ANSWERS.format(answers="\n".join(_answer(how, *said) for how, said in machine._BY_ANSWER.items()))
    table = _page.table([state.name for state in State], VARIANTS, _cell)
    return _page.written("The machine of one call", __file__, machine, unions, _LEGEND, table, answers)


def _answer(how: str, status: Status, reason: Reason | None, delivery: Delivery) -> str:
    return f"| `{how}` | {status} | {reason or '–'} | {delivery} |"


def _cell(place: str, given: machine.Input) -> str:
    state = State[place]
    call = CallMachine(DEADLINE_NS, GRACE_MS, contract=_CONTRACT)
    for step in _WAY[state]:
        call.on(step)
    assert call.state is state, f"the way to {state} ends in {call.state}"
    effects = [_words(effect) for effect in call.on(given)]
    return _page.cell(state, call.state, effects)


def _words(effect: machine.Effect) -> str:
    match effect:
        case machine.Settle():
            said = [str(effect.status), str(effect.reason or "–"), str(effect.delivery)]
            return f"`Settle` {' · '.join(said)}" + (" · late result" if effect.late_result else "")
        case machine.Kill():
            return f"`Kill` at {_instant(effect.at_ns)}" + (", SIGTERM first" if effect.term_ns else "")
        case machine.Release() | machine.Dispatch() | machine.PlaceAgain() | machine.Begin():
            return f"`{type(effect).__name__}`"
        case machine.Retry():
            return f"`Retry` {effect.cause}"


def _instant(at_ns: int) -> str:
    if at_ns == DEADLINE_NS:
        return "the deadline"
    return "now" if at_ns == NOW_NS else "now + grace"


def main(words: list[str]) -> int:
    """Write the page, or with ``--check`` compare it."""
    return _page.main(__file__, PAGE, page, words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
