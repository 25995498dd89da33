"""The machine of a loop under whatever may come, in whatever order: it answers everything, does nothing of a turn that
has no stop, keeps every request with its one result, and ends once."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol._outcomes import Status
from protocol._runs import RunReason, RunStatus
from supervisor.core import turn_words as words
from supervisor.core.arguments import is_cut
from supervisor.core.context import Pins
from supervisor.core.model_events import ToolCall, Usage
from supervisor.core.provider_failures import FailureKind, ProviderFailure
from supervisor.core.turn import State
from tests.supervisor.core.turning import ASKS, DONE, NOW, TOOLS, UNTIL, WAITS, Loop, assert_whole, result, stop

STOPS = [WAITS, ASKS, DONE, stop(), stop(RunStatus.CANCELLED, RunReason.CLIENT)]
ARGUMENTS = ["{}", '{"answer": "x"}', '{"question": "?"}', '{"n": 1', "nonsense", '{"a": "\ud800"}', ""]
calls = st.builds(
    ToolCall,
    st.sampled_from(["", "a", "b", "call_1", "\ud800"]),
    st.sampled_from(["look", "pay", "finish", "ask_user", "made_up", ""]),
    st.sampled_from(ARGUMENTS),
)
decided = st.builds(
    words.Decided,
    st.sampled_from(["", "I think", "\udc00"]),
    st.lists(calls, max_size=4).map(tuple),
    st.sampled_from(["end", "tools", "length", "content_policy", "other"]),
    st.sampled_from([None, Usage(3, 1)]),
    st.just(NOW),
    st.floats(0, 1),
)
failures = st.builds(ProviderFailure, st.sampled_from(FailureKind), st.sampled_from([None, 429, 400]), st.just("said"))
statuses = st.sampled_from([Status.OK, Status.ERROR, Status.KILLED, Status.NOT_EXECUTED, Status.WAITING_FOR_APPROVAL])
others = st.one_of(
    st.builds(words.Begun),
    st.builds(words.Looked, st.just(Pins("mend it", unresolved_effects=("c_9 pay: outcome unknown",)))),
    st.builds(words.Reserved, st.integers(1, 50), st.sampled_from([NOW, UNTIL]), st.booleans()),
    decided,
    st.builds(words.DecideFailed, failures, st.just(None), st.just(NOW)),
    st.builds(words.Expired),
    st.builds(words.Woken),
    st.builds(words.FinishRefused, st.just("the tests are red")),
    st.builds(words.Objected, st.sampled_from(["run_busy", "wrapping_up", "unknown_price"]), st.just("no")),
    st.builds(words.Resumed, st.sampled_from(["", "acme"])),
    st.builds(words.RunStopped, st.sampled_from(STOPS)),
)
FORWARD = {
    State.IDLE: st.builds(words.Begun),
    State.LOOKING: st.builds(words.Looked, st.just(Pins("mend it"))),
    State.RESERVING: st.builds(words.Reserved, st.integers(1, 50), st.just(UNTIL), st.just(False)),
    State.DECIDING: decided,
    State.BACKOFF: st.builds(words.Woken),
    State.STOPPING: st.builds(words.Woken),
    State.CHECKING: st.builds(words.FinishRefused, st.just("the tests are red")),
    State.ASKING: st.builds(words.RunStopped, st.just(ASKS)),
    State.SUSPENDED: st.builds(words.Resumed, st.just("acme")),
}


def acted(loop: Loop, data: st.DataObject) -> words.Acted:
    """As many results as calls were proposed last."""
    asked = next((effect for effect in reversed(loop.all) if isinstance(effect, words.Act)), None)
    proposed = () if asked is None else asked.proposed
    return words.Acted(tuple(result(one.call.name, data.draw(statuses)) for one in proposed))


def next_input(loop: Loop, data: st.DataObject) -> words.Input:
    """Mostly what gets it on, else anything."""
    if loop.machine.state is State.CALLING and data.draw(st.integers(0, 4)):
        return acted(loop, data)
    if loop.machine.state in FORWARD and data.draw(st.integers(0, 4)):
        return data.draw(FORWARD[loop.machine.state])
    return data.draw(others)


def may_act(given: words.Input) -> bool:
    """Whether something may be done after it: a whole turn, or a person's answer to one."""
    if isinstance(given, words.Decided):
        return given.stop not in ("length", "content_policy") and not any(is_cut(one.arguments) for one in given.calls)
    return isinstance(given, words.Resumed)


@pytest.mark.case("B092")
@pytest.mark.case("B050")
@pytest.mark.behaviour("M093")
@settings(deadline=None, max_examples=50)
@given(st.data())
def test_whatever_comes_nothing_is_done_of_half_a_turn_and_each_request_has_one_result(data):
    loop = Loop()
    for _ in range(data.draw(st.integers(0, 40))):
        over = loop.machine.state is State.SETTLED
        given_ = next_input(loop, data)
        effects = loop.on(given_)
        msgspec.json.encode(effects), msgspec.json.encode(loop.machine.dump())
        assert not over or effects == ()
        assert may_act(given_) or not any(isinstance(one, words.Act | words.AskPerson) for one in effects)
        loop.transcript_is_whole()
        for effect in effects:
            if isinstance(effect, words.Decide):
                assert_whole(list(effect.request.messages))


@settings(deadline=None, max_examples=25)
@given(st.data())
def test_another_life_goes_on_as_this_one_would_have(data):
    loop = Loop()
    for _ in range(data.draw(st.integers(0, 40))):
        loop.on(next_input(loop, data))
    loop.on(words.RunStopped(WAITS))
    if loop.machine.state is State.SETTLED:
        return
    again = Loop()
    again.machine.load(loop.machine.dump())
    answer = words.Resumed("acme")
    assert again.machine.on(answer) == loop.machine.on(answer)
    assert again.machine.transcript() == loop.machine.transcript()


WAYS: dict[State, list[words.Input]] = {
    State.IDLE: [],
    State.LOOKING: [words.Begun()],
    State.RESERVING: [words.Looked(Pins())],
    State.DECIDING: [words.Reserved(1, UNTIL)],
    State.BACKOFF: [words.DecideFailed(ProviderFailure(FailureKind.RESET), None, NOW)],
    State.CALLING: [words.Decided("", (ToolCall("a", "look", "{}"),), "tools", None, NOW)],
    State.CHECKING: [words.Decided("done", (), "end", None, NOW)],
    State.ASKING: [words.Decided("", (ToolCall("a", "ask_user", '{"question": "?"}'),), "tools", None, NOW)],
    State.STOPPING: [words.Objected("unknown_price", "m")],
    State.SUSPENDED: [words.RunStopped(WAITS)],
    State.SETTLED: [words.RunStopped(stop())],
}
_TO_A_MODEL = (State.LOOKING, State.RESERVING, State.DECIDING)
_FIRST: dict[State, tuple[State, ...]] = {
    State.RESERVING: _TO_A_MODEL[:1],
    State.DECIDING: _TO_A_MODEL[:2],
    State.STOPPING: _TO_A_MODEL[:2],
    **dict.fromkeys((State.BACKOFF, State.CALLING, State.CHECKING, State.ASKING), _TO_A_MODEL),
}


def at(state: State) -> Loop:
    """A loop that has come so far."""
    loop = Loop()
    for before in (*_FIRST.get(state, ()), state):
        for given_ in WAYS[before]:
            loop.on(given_)
    assert loop.machine.state is state
    return loop


EACH = [
    words.Begun(),
    words.Looked(Pins()),
    words.Reserved(2, UNTIL),
    words.Decided("x", (), "end", None, NOW),
    words.DecideFailed(ProviderFailure(FailureKind.RESET), None, NOW),
    words.Expired(),
    words.Woken(),
    words.FinishRefused("red"),
    words.Objected("unknown_price", "no"),
    words.RunStopped(stop()),
    words.RunStopped(WAITS),
    words.Resumed("x"),
]


@pytest.mark.parametrize("state", State)
def test_every_input_is_answered_in_every_state_and_one_that_means_nothing_changes_nothing(state):
    for given_ in [*EACH, words.Acted((result(),)) if state is State.CALLING else words.Acted(())]:
        loop = at(state)
        before = loop.machine.dump()
        effects = loop.on(given_)
        if loop.machine.state is state and effects == ():
            assert loop.machine.dump() == before
        if state is State.SETTLED:
            assert (loop.machine.state, effects) == (State.SETTLED, ())
        elif isinstance(given_, words.RunStopped):
            assert loop.machine.state in (State.SUSPENDED, State.SETTLED)


@pytest.mark.behaviour("M141")
def test_a_long_run_shows_its_model_a_short_conversation_with_what_must_not_be_lost():
    loop = Loop()
    pins = Pins("mend it", constraints=("spend nothing",))
    sizes = []
    for number in range(60):
        if loop.machine.state is State.LOOKING:
            loop.on(words.Looked(pins))
        decide = loop.paid()
        sizes.append(sum(len(message.text) for message in decide.request.messages))
        loop.on(words.Decided("", (ToolCall("", "look", f'{{"n": {number}}}'),), "tools", None, NOW))
        loop.on(words.Acted((result(name=f"c_{number}"),)))
    assert len(decide.request.messages) <= 20 + 4
    assert "spend nothing" in decide.request.messages[1].text
    assert max(sizes[30:]) < 2 * sizes[20]
    folded = [step for effect in loop.all if isinstance(effect, words.Keep) for step in effect.folded]
    assert folded == list(range(1, len(folded) + 1))
    assert len(folded) > 40
    assert {tool.name for tool in decide.request.tools} >= {tool.name for tool in TOOLS}
