"""The machine of a loop, rule by rule: what is asked of the daemon, what is done of a turn, what a model is told.
Rules 2 and 6 are in `test_turn_models`."""

from __future__ import annotations

import msgspec
import pytest

from protocol._outcomes import ErrorClass, ErrorInfo, Reason, Status
from protocol._runs import RunReason, RunStatus
from supervisor.core import turn_words as words
from supervisor.core.briefing import briefing
from supervisor.core.context import Pins
from supervisor.core.provider_failures import FailureKind, ProviderFailure
from supervisor.core.retry import RetrySettings
from supervisor.core.turn import MOST_CALLS, State
from tests.supervisor.core.turning import ASKS, DONE, NOW, UNTIL, WAITS, Loop, call, failed, result, stop

# ---------------------------------------------------------------- rule 1


@pytest.mark.behaviour("M082")
@pytest.mark.behaviour("M144")
def test_a_model_is_asked_when_its_call_is_paid_for_and_not_before():
    loop = Loop()
    loop.on(words.Begun())
    assert loop.wants() == ["Look"]
    loop.on(words.Looked(Pins("mend it")))
    assert loop.wants() == ["Keep", "Reserve"]
    reserve = loop.wanted(words.Reserve)
    assert (reserve.begins, reserve.max_out) == (True, 4_096)
    loop.on(words.Reserved(1, UNTIL))
    decide = loop.wanted(words.Decide)
    assert decide.until_ns == UNTIL
    assert decide.request.messages[0].text == "Be careful."
    assert [tool.name for tool in decide.request.tools] == ["look", "pay", "finish", "ask_user"]


def test_what_is_set_aside_for_a_turn_is_no_less_than_what_is_sent():
    loop = Loop()
    loop.acts(call("look", path="x" * 30_000), results=[result()])
    loop.on(words.Looked(Pins("mend it")))
    assert loop.wanted(words.Reserve).max_in > 10_000


CUT = '{"path": "/etc/pass'


@pytest.mark.case("B118")
@pytest.mark.case("B125")
@pytest.mark.behaviour("M093")
@pytest.mark.parametrize("word", ["tools", "end", "length", "other"])
def test_a_turn_with_arguments_cut_off_is_thrown_away_whatever_the_finish_word_says(word):
    loop = Loop()
    loop.says(call("pay", n=1), words_cut(), text="I pay", stop=word)
    assert loop.wants() == ["SettleModel", "Backoff"]
    assert not any(isinstance(effect, words.Act) for effect in loop.all)
    assert all(message.role == "user" for message in loop.machine.transcript())


def words_cut():
    return msgspec.structs.replace(call("pay"), arguments=CUT)


@pytest.mark.behaviour("M089")
def test_a_turn_that_is_thrown_away_is_replaced_by_the_next_one_and_nothing_of_it_is_sent_back():
    loop = Loop()
    loop.says(text="half of a th", stop="length")
    loop.on(words.Woken())
    decide = loop.paid()
    assert not [message for message in decide.request.messages if message.role == "assistant"]
    loop.on(words.Decided("the whole thought", (), "end", None, NOW))
    assert [one.text for one in loop.machine.transcript() if one.role == "assistant"] == ["the whole thought"]


@pytest.mark.parametrize(
    ("text", "word", "reason"),
    [("no", "content_policy", "content_policy"), ("", "end", "transient_exhausted"), (" \n", "tools", None)],
)
def test_a_turn_that_says_nothing_or_may_not_be_said_does_not_count(text, word, reason):
    loop = Loop(retry=RetrySettings(retries=0))
    loop.says(text=text, stop=word)
    assert loop.wanted(words.GiveUp).reason == (reason or "transient_exhausted")
    assert loop.machine.round == 1


# ---------------------------------------------------------------- rules 3 and 4


@pytest.mark.behaviour("M137")
def test_finish_is_asked_for_with_its_answer_and_what_rests_on_it():
    loop = Loop()
    loop.says(call("finish", answer="it is 7", fields={"n": {"value": "7", "evidence": ["c_1"]}}))
    assert loop.wants() == ["SettleModel", "Keep", "AskFinish"]
    asked = loop.wanted(words.AskFinish)
    assert (asked.finish.answer, asked.plain) == ("it is 7", False)
    assert asked.finish.fields["n"].evidence == ("c_1",)
    loop.on(words.RunStopped(DONE))
    assert loop.machine.state is State.SETTLED
    assert loop.told() == ["[accepted]"]
    loop.transcript_is_whole()


@pytest.mark.parametrize("own", [call("finish", answer="done"), call("ask_user", question="which?")])
def test_what_must_stand_alone_is_refused_beside_others_and_they_are_made(own):
    loop = Loop()
    loop.says(call("look", n=1), own)
    act = loop.wanted(words.Act)
    assert [one.call.name for one in act.declined] == [own.name]
    assert [one.call.name for one in act.proposed] == ["look"]
    loop.on(words.Acted((result(),)))
    assert len(loop.told()) == 2
    assert "must stand alone" in loop.told()[1]


@pytest.mark.behaviour("M139")
def test_a_malformed_finish_is_refused_with_what_it_takes_and_counted_by_the_daemon():
    loop = Loop()
    loop.says(call("finish", answr="typo"))
    (declined,) = loop.wanted(words.Act).declined
    assert "finish takes answer" in declined.text
    assert "answr" in declined.text
    loop.on(words.Acted(()))
    assert "answr" in loop.told()[0]


@pytest.mark.parametrize("asked", [{"text": "x" * 64_001}, {"calls": [call("finish", answer="x" * 64_001)]}])
def test_an_answer_that_the_daemon_would_not_take_is_counted_by_it_like_any_malformed_call(asked):
    loop = Loop()
    loop.says(*asked.get("calls", []), text=asked.get("text", ""))
    (declined,) = loop.wanted(words.Act).declined
    assert (declined.call.name, declined.decision) == ("finish", "d_1")
    assert "64001 characters; allowed: at most 64000" in declined.text
    loop.on(words.Acted(()))
    assert "64001 characters" in loop.machine.transcript()[-1].text
    loop.transcript_is_whole()


def test_of_a_turn_with_too_many_calls_the_first_are_made_and_each_has_a_result():
    loop = Loop()
    loop.says(*(call("look", n=number) for number in range(MOST_CALLS + 50)))
    act = loop.wanted(words.Act)
    assert len(act.proposed) == MOST_CALLS
    (declined,) = act.declined
    assert f"at most {MOST_CALLS} calls, and this one had {MOST_CALLS + 50}" in declined.text
    loop.on(words.Acted(tuple(result() for _ in act.proposed)))
    told = loop.told()
    assert len(told) == MOST_CALLS + 50
    assert ["were not made" in text for text in told] == [False] * MOST_CALLS + [True] * 50
    loop.transcript_is_whole()
    exact = Loop()
    exact.says(*(call("look", n=number) for number in range(MOST_CALLS)))
    assert (len(exact.wanted(words.Act).proposed), exact.wanted(words.Act).declined) == (MOST_CALLS, ())


def test_two_that_must_stand_alone_are_both_refused_and_neither_is_said_to_be_done():
    loop = Loop()
    loop.says(call("ask_user", question="which?"), call("finish", answer="done"))
    assert loop.wanted(words.Act).proposed == ()
    loop.on(words.Acted(()))
    assert len(loop.told()) == 2
    assert not any("were made" in told for told in loop.told())


def test_text_alone_is_an_answer_and_takes_the_same_way():
    loop = Loop()
    loop.says(text="it is done", stop="end")
    asked = loop.wanted(words.AskFinish)
    assert (asked.finish.answer, asked.plain) == ("it is done", True)
    loop.on(words.FinishRefused("the tests are red"))
    assert loop.wants() == ["Look"]
    decide = loop.paid()
    said = [message.text for message in decide.request.messages if message.role == "user" and not message.pinned]
    assert said[-1] == "[host] The task is not finished. The check says:\nthe tests are red"


def test_a_refused_finish_is_told_to_the_model_as_its_calls_result():
    loop = Loop()
    loop.says(call("finish", answer="done"))
    loop.on(words.FinishRefused("the tests are red"))
    assert loop.told() == ["The task is not finished. The check says:\nthe tests are red"]
    loop.paid()


def test_a_persons_no_to_an_answer_in_plain_text_is_told_as_a_refusal_and_not_as_an_answer():
    loop = Loop()
    loop.says(text="it is done", stop="end")
    loop.on(words.RunStopped(WAITS))
    loop.on(words.Resumed("not yet"))
    assert loop.machine.conversation.messages[-1].text.endswith("The check says:\nnot yet")
    loop.paid()


@pytest.mark.case("B126")
def test_who_calls_a_tool_that_nobody_has_reads_also_which_are_the_loops_own():
    loop = Loop()
    unknown = result("finish ", Status.NOT_EXECUTED, reason=Reason.UNKNOWN_TOOL)
    loop.acts(call("finish ", answer="done"), results=[unknown])
    assert loop.told()[0].endswith("[beside the daemon's tools: finish, ask_user]")


def test_what_was_declined_has_its_result_before_a_persons_answer_to_the_run_that_asked_for_it():
    loop = Loop()
    loop.says(call("finish"))
    loop.on(words.RunStopped(ASKS))
    loop.on(words.Resumed("look elsewhere"))
    assert loop.told()[0].startswith("[finish: not done]")
    assert loop.machine.conversation.messages[-1].text == "A person answers: look elsewhere"
    loop.transcript_is_whole()
    loop.paid()


# ---------------------------------------------------------------- rule 5


@pytest.mark.behaviour("M085")
@pytest.mark.behaviour("M074")
def test_each_call_of_a_turn_has_a_key_of_its_own_and_says_what_decided_it():
    loop = Loop()
    keys = set()
    for round_ in (1, 2):
        loop.says(call("look", n=1), call("look", n=1), call("pay", n=1))
        proposed = loop.wanted(words.Act).proposed
        assert {one.decision for one in proposed} == {f"d_{round_}"}
        keys |= {one.key for one in proposed}
        loop.on(words.Acted((result(), result(), result("pay"))))
    assert len(keys) == 6


@pytest.mark.case("B128")
@pytest.mark.behaviour("M029")
def test_results_are_told_in_the_order_of_the_calls_each_with_its_id_and_a_reason():
    loop = Loop()
    strange = result("pay", Status.CRASHED, "", error=ErrorInfo(ErrorClass.WORKER_LOST, "", ""))
    loop.acts(call("look", "a"), call("pay", "b"), call("look", "c"), results=[result(), strange, result(name="c_3")])
    messages = [message for message in loop.machine.conversation.messages if message.role == "tool"]
    assert [message.answers for message in messages] == ["a", "b", "c"]
    assert ["pay" in message.text and "crashed" in message.text for message in messages] == [False, True, False]
    decide = loop.paid()
    assert decide.request.messages[-2].text == messages[-1].text, "the next decision reads them"


@pytest.mark.behaviour("M135")
def test_a_result_says_which_call_it_is_and_what_was_tried():
    loop = Loop()
    for number in (1, 2):
        loop.acts(call("look", n=number), results=[result(status=Status.NO_RESULT)])
    first, second = "call 2 of this run, call 2 of look", '{"n": 1} → no_result'
    assert first in loop.told()[0]
    assert second in loop.told()[0]
    assert "will say the same" in loop.told()[0]


@pytest.mark.behaviour("M086")
def test_a_call_that_waited_for_a_person_is_made_again_under_its_key_without_asking_the_model():
    loop = Loop()
    loop.says(call("look"), call("pay", n=7))
    asked = loop.wanted(words.Act).proposed
    loop.on(words.Acted((result(), result("pay", Status.WAITING_FOR_APPROVAL, "c_2"))))
    assert loop.machine.state is State.SUSPENDED
    assert loop.wanted(words.AwaitResumption).known == ("c_1", "c_2")
    loop.on(words.Resumed(""))
    assert loop.wants() == ["Keep", "Act"]
    assert loop.wanted(words.Act).proposed == asked[1:], "the same bytes, under the same key"
    loop.on(words.Acted((result("pay", name="c_2"),)))
    assert ["pay c_2: ok" in text for text in loop.told()] == [False, True]
    assert loop.wants() == ["Look"]


# ---------------------------------------------------------------- rule 7


@pytest.mark.behaviour("M123")
def test_a_question_waits_for_its_answer_which_is_its_result():
    loop = Loop()
    loop.says(call("ask_user", question="Which tenant?"))
    assert loop.wants() == ["SettleModel", "Keep", "AskPerson"]
    assert loop.wanted(words.AskPerson).question == "Which tenant?"
    loop.on(words.RunStopped(ASKS))
    assert (loop.machine.state, loop.wants()) == (State.SUSPENDED, ["AwaitResumption"])
    loop.on(words.Resumed("acme"))
    assert loop.told() == ["[a person answers] acme"]
    assert loop.wants() == ["Look"]


def test_a_question_that_cannot_be_asked_is_told_so():
    loop = Loop()
    loop.says(call("ask_user", question="Which tenant?"))
    loop.on(words.Objected("wrapping_up", "conclude"))
    assert loop.told() == ["[nobody was asked] conclude"]


def test_an_answer_to_a_run_that_got_nowhere_is_a_message():
    loop = Loop()
    loop.acts(call("look"), results=[result()])
    loop.on(words.Looked(Pins("mend it")))
    loop.on(words.RunStopped(stop(RunStatus.NEEDS_INPUT, RunReason.NO_NEW_EVIDENCE, suspended=True)))
    loop.on(words.Resumed("look in the archive"))
    assert "A person answers: look in the archive" in [message.text for message in loop.paid().request.messages]


@pytest.mark.behaviour("M094")
def test_a_run_that_ends_while_a_call_waits_for_a_person_says_that_the_call_was_not_made():
    loop = Loop()
    loop.says(call("pay", n=7))
    loop.on(words.Acted((result("pay", Status.WAITING_FOR_APPROVAL),)))
    loop.on(words.RunStopped(stop(RunStatus.CANCELLED, RunReason.CLIENT)))
    (answer,) = [message.text for message in loop.machine.transcript() if message.role == "tool"]
    assert "not executed" in answer
    assert "unknown" not in answer


@pytest.mark.case("B092")
def test_a_run_that_ends_in_the_middle_of_a_call_says_that_its_outcome_is_unknown():
    loop = Loop()
    loop.says(call("look", n=1), call("pay", n=7))
    for _ in range(2):
        loop.transcript_is_whole()
        answers = [message.text for message in loop.machine.transcript() if message.role == "tool"]
        assert ["unknown" in answer for answer in answers] == [True, True]
        loop.on(words.RunStopped(stop(RunStatus.CANCELLED, RunReason.CLIENT)))


# ---------------------------------------------------------------- rule 8


@pytest.mark.behaviour("M125")
def test_what_was_kept_before_a_call_is_enough_to_go_on_in_another_life():
    loop = Loop()
    loop.acts(call("look", n=1), results=[result(name="c_1")])
    loop.says(call("look", n=2), call("finish", answer="x"), call("pay", n=7))
    keep = loop.last.index(loop.wanted(words.Keep))
    assert keep < loop.last.index(loop.wanted(words.Act))
    again = Loop()
    again.machine.load(loop.machine.dump())
    assert again.machine.state is State.SUSPENDED
    again.on(words.Resumed(""))
    assert again.wanted(words.Act).proposed == loop.wanted(words.Act).proposed
    for one in (loop, again):
        one.on(words.Acted((result(name="c_2"), result("pay", name="c_3"))))
    assert again.machine.transcript() == loop.machine.transcript()
    assert again.machine.dump() == loop.machine.dump()
    assert "call 3 of this run, call 1 of pay" in again.told()[2]


@pytest.mark.parametrize(("asked", "key"), [("ask_user", "question"), ("finish", "answer")])
def test_what_was_kept_before_a_question_or_an_end_is_enough_too(asked, key):
    loop = Loop()
    loop.says(call(asked, **{key: "which?"}))
    again = Loop()
    again.machine.load(loop.machine.dump())
    again.on(words.Resumed("that one"))
    assert "that one" in again.told()[0]


# ---------------------------------------------------------------- rule 9


@pytest.mark.case("B049")
def test_half_a_character_becomes_a_replacement_wherever_it_comes_from():
    loop = Loop()
    loop.says(text="half \ud800 of it", stop="end")
    asked = loop.wanted(words.AskFinish)
    msgspec.json.encode(asked)
    assert asked.finish.answer == "half ? of it"
    last = Loop()
    last.paid(wraps_up=True)
    last.on(words.Decided("\udc00", (), "end", None, NOW))
    msgspec.json.encode(last.last)
    broken = Loop()
    broken.paid()
    broken.on(failed(ProviderFailure(FailureKind.OTHER, message="said \ud800")))
    msgspec.json.encode(broken.last)


@pytest.mark.behaviour("M136")
def test_the_first_words_say_when_to_stop_and_nothing_of_them_is_a_bound():
    said = briefing("Write short answers.")
    for rule in ("call `finish`", "Do not make a call again", "ask_user", "you cannot do it"):
        assert rule in said
    assert said.endswith("Write short answers.\n")
