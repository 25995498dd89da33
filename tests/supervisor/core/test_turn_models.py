"""A loop whose model fails, or has a last word left: rules 2 and 6 of its machine."""

from __future__ import annotations

import msgspec
import pytest

from protocol._outcomes import Status
from protocol._runs import RunReason
from supervisor.core import turn_words as words
from supervisor.core.briefing import WRAP_UP
from supervisor.core.context import Pins
from supervisor.core.host_tools import Finish
from supervisor.core.model_events import Usage
from supervisor.core.provider_failures import FailureKind, ProviderFailure
from supervisor.core.retry import DEMO
from supervisor.core.turn import State
from tests.supervisor.core.turning import LIMITED, NOW, UNTIL, Loop, call, failed, result, stop

# ---------------------------------------------------------------- rule 2


@pytest.mark.behaviour("M043")
@pytest.mark.behaviour("M165")
@pytest.mark.case("B124")
def test_what_failed_in_passing_is_asked_again_each_time_paid_for_and_twice_at_most():
    loop = Loop()
    loop.paid()
    for attempt in (1, 2):
        loop.on(failed())
        assert loop.wants() == ["SettleModel", "Backoff"]
        assert loop.wanted(words.SettleModel).reservation == attempt
        loop.on(words.Woken())
        assert loop.wants() == ["Reserve"]
        assert loop.wanted(words.Reserve).begins is False, "it is no round of its own"
        loop.paid()
    loop.on(failed())
    assert loop.wants() == ["SettleModel", "GiveUp"]
    give_up = loop.wanted(words.GiveUp)
    assert (give_up.reason, "attempts_spent" in give_up.detail) == ("transient_exhausted", True)
    assert loop.machine.round == 1


@pytest.mark.behaviour("M167")
def test_two_refusals_for_the_rate_and_the_third_attempt_counts():
    loop = Loop(retry=DEMO)
    loop.paid()
    waits = []
    for _ in range(2):
        loop.on(failed())
        waits.append(loop.wanted(words.Backoff).delay_ms)
        loop.on(words.Woken())
        loop.paid()
    assert waits == [500, 1_000]
    loop.on(words.Decided("done", (), "end", None, NOW))
    assert loop.wanted(words.AskFinish).finish.answer == "done"


def test_a_turn_that_counts_gives_all_attempts_back():
    loop = Loop()
    loop.paid()
    loop.on(failed())
    loop.on(words.Woken())
    loop.acts(call("look"), results=[result()])
    loop.paid()
    for _ in range(2):
        loop.on(failed())
        assert loop.wants() == ["SettleModel", "Backoff"]
        loop.on(words.Woken())
        loop.paid()


@pytest.mark.behaviour("M112")
@pytest.mark.behaviour("M083")
@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (ProviderFailure(FailureKind.HTTP_STATUS, 401), "auth"),
        (ProviderFailure(FailureKind.HTTP_STATUS, 400), "permanent"),
        (ProviderFailure(FailureKind.CONTENT_POLICY), "content_policy"),
        (ProviderFailure(FailureKind.QUOTA_SPENT, 429), "permanent"),
        (ProviderFailure(FailureKind.OTHER, message="KeyError: 'choices' 503"), "permanent"),
    ],
)
def test_what_does_not_pass_is_not_asked_again(failure, reason):
    loop = Loop()
    loop.paid()
    loop.on(failed(failure))
    assert loop.wanted(words.GiveUp).reason == reason


@pytest.mark.case("B107")
@pytest.mark.case("B124")
@pytest.mark.behaviour("M088")
def test_no_attempt_begins_that_cannot_end_before_the_deadline():
    loop = Loop()
    loop.paid()
    loop.on(failed(now_ns=UNTIL - 100_000_000))
    assert loop.wants() == ["SettleModel", "GiveUp"]
    assert "no_time_left" in loop.wanted(words.GiveUp).detail
    patient = Loop()
    patient.paid()
    patient.on(failed(ProviderFailure(FailureKind.HTTP_STATUS, 429, "", not_before_ns=UNTIL + 1)))
    assert "asked_to_wait_too_long" in patient.wanted(words.GiveUp).detail


@pytest.mark.case("B124")
def test_who_is_asked_to_wait_waits_at_least_so_long():
    loop = Loop()
    loop.paid()
    later = msgspec.structs.replace(LIMITED, not_before_ns=NOW + 20_000_000_000)
    loop.on(words.DecideFailed(later, None, NOW, random_0_1=0))
    assert loop.wanted(words.Backoff).until_ns == NOW + 20_000_000_000


@pytest.mark.case("B127")
def test_attempts_of_many_loops_that_failed_at_once_are_spread():
    later = msgspec.structs.replace(LIMITED, not_before_ns=NOW + 1_000_000_000)
    for failure, first_ms in ((LIMITED, 125), (later, 1_000)):
        waits = []
        for number in range(100):
            loop = Loop()
            loop.paid()
            loop.on(words.DecideFailed(failure, None, NOW, number / 100))
            waits.append((loop.wanted(words.Backoff).until_ns - NOW) / 1_000_000 - first_ms)
        assert [sum(at <= wait < at + 25 for wait in waits) for at in range(0, 250, 25)] == [10] * 10


@pytest.mark.behaviour("M168")
def test_a_turn_is_settled_by_what_it_used_and_one_that_never_began_costs_nothing():
    for given, usage in (
        (words.Decided("x", (), "end", Usage(10, 2), NOW), Usage(10, 2)),
        (words.Decided("x", (), "end", None, NOW), None),
        (failed(), Usage(0, 0)),
        (failed(ProviderFailure(FailureKind.CUT_STREAM)), None),
        (failed(ProviderFailure(FailureKind.CUT_STREAM), Usage(7, 1)), Usage(7, 1)),
        (words.Expired(), None),
    ):
        loop = Loop()
        loop.paid()
        loop.on(given)
        assert loop.wanted(words.SettleModel).usage == usage


# ---------------------------------------------------------------- rule 6


@pytest.mark.behaviour("M012")
@pytest.mark.behaviour("M133")
def test_a_budget_that_is_used_up_leaves_a_last_word_without_tools():
    loop = Loop()
    decide = loop.paid(wraps_up=True)
    assert decide.request.tools == ()
    assert decide.request.messages[-1].text == WRAP_UP
    loop.on(words.Decided("this is known", (call("pay"),), "tools", None, NOW))
    assert loop.wants() == ["SettleModel", "AskFinish"], "a call in it is not made"
    assert loop.wanted(words.AskFinish).finish.answer == "this is known"
    loop.transcript_is_whole()


@pytest.mark.parametrize(
    ("text", "arguments", "answer"),
    [
        (" ", '{"answer": "7, by the log"}', "7, by the log"),
        ("in words", '{"answer": "7"}', "in words"),
        ("", '{"answer": "7', ""),
        ("", '{"answer": "\\ud800"}', None),
        ("y" * 70_000, "{}", "y" * 64_000),
    ],
)
def test_a_last_word_may_come_as_the_call_that_a_model_is_used_to_end_by(text, arguments, answer):
    loop = Loop()
    loop.paid(wraps_up=True)
    ends = msgspec.structs.replace(call("finish"), arguments=arguments)
    loop.on(words.Decided(text, (call("pay"), ends), "tools", None, NOW))
    assert loop.wants() == ["SettleModel", "AskFinish"]
    said = loop.wanted(words.AskFinish)
    msgspec.json.encode(said)
    assert answer is None or said.finish == Finish(answer)
    loop.transcript_is_whole()


def test_time_that_is_up_while_the_model_thinks_leaves_what_comes_to_the_run():
    loop = Loop()
    loop.paid()
    loop.on(words.Expired())
    assert loop.wants() == ["SettleModel", "Reserve"]
    loop.on(words.RunStopped(stop(reason=RunReason.TIME_BUDGET)))
    assert loop.machine.state is State.SETTLED
    assert loop.last == ()


@pytest.mark.behaviour("M106")
def test_a_last_word_that_fails_is_not_tried_again_and_a_budget_is_no_models_business():
    loop = Loop()
    loop.paid(wraps_up=True)
    loop.on(failed())
    assert loop.wants() == ["SettleModel", "GiveUp"]
    other = Loop()
    other.acts(call("look"), results=[result(status=Status.NOT_EXECUTED)])
    other.on(words.Looked(Pins("mend it")))
    other.on(words.RunStopped(stop()))
    assert other.last == (), "nothing of it goes to a model"


def test_a_round_that_is_refused_for_the_wrap_up_is_asked_for_once_more_and_not_for_ever():
    loop = Loop()
    loop.on(words.Begun())
    loop.on(words.Looked(Pins("mend it")))
    for wanted in (["Reserve"], ["GiveUp"]):
        loop.on(words.Objected("wrapping_up", "conclude"))
        assert loop.wants() == wanted


def test_a_run_that_is_busy_ending_its_calls_is_waited_for():
    loop = Loop()
    loop.on(words.Begun())
    loop.on(words.Looked(Pins("mend it")))
    for _ in range(3):
        loop.on(words.Objected("run_busy", "it is stopping"))
        assert loop.wants() == ["AwaitStop"]
        loop.on(words.Woken())
        assert loop.wants() == ["Reserve"]
    loop.on(words.Objected("wrapping_up", "conclude"))
    assert loop.wants() == ["Reserve"], "and its last word is asked for all the same"
