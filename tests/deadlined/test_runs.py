"""The words of a run in Python, against a scripted daemon."""

import pytest

from deadlined import Client, RequestRefused, RunStopped
from protocol import _client_messages as cm
from protocol._events import Event
from protocol._outcomes import CallResult, ErrorClass, ErrorInfo, Reason, Status
from protocol._runs import RunReason, RunStatus
from tests.deadlined.conftest import run_view, stop_record

SUSPENDED = stop_record(RunStatus.WAITING_FOR_APPROVAL, RunReason.APPROVAL_REQUIRED, resumable=True)


def heard(fake_daemon, kind):
    return [message for message in fake_daemon.heard if isinstance(message, kind)]


@pytest.fixture
def d(fake_daemon):
    with Client(fake_daemon.path) as client:
        yield client


def test_a_run_steps_asks_calls_finds_and_finishes(d, fake_daemon, fake_run):
    with d.run(goal="mend it", profile="edit", deadline_ms=480_000, limits={"steps": 25}, checks=["true"]) as run:
        assert run.step() == run_view()
        with run.model("m", max_in=8000, max_out=1000) as m:
            m.usage(tokens_in=700, tokens_out=90)
        assert m.remaining_ms == 60_000
        assert run.call("search", {"pattern": "TODO"}).status == "ok"
        assert run.submit("search").wait().status == "ok"
        assert (run.evidence("new"), run.evidence("old")) == (True, False)
        assert run.stop is None
        assert run.finish("done").answer == "done"
        assert run.stop.status == "completed"
    [opened] = heard(fake_daemon, cm.OpenRun)
    assert (opened.goal, opened.limits, opened.checks, opened.on_disconnect) == (
        "mend it",
        {"steps": 25},
        ["true"],
        "cancel",
    )
    assert [call.run for call in heard(fake_daemon, cm.Submit)] == ["r_1", "r_1"]
    [settled] = heard(fake_daemon, cm.SettleModel)
    assert (settled.reservation, settled.tokens_in, settled.tokens_out) == (7, 700, 90)
    assert not heard(fake_daemon, cm.CancelRun)


def test_a_run_that_may_not_go_on_raises_its_record_and_never_for_a_call(d, fake_daemon, fake_run):
    refused = CallResult("c_9", "t", Status.NOT_EXECUTED, reason=Reason.RUN_SETTLED)
    fake_daemon.on[cm.Submit] = lambda m: [cm.Settled(m.id, refused)]
    with d.run() as run:
        fake_run.stop = stop_record()
        with pytest.raises(RunStopped) as stepped:
            run.step()
        with pytest.raises(RunStopped), run.model("m"):
            pytest.fail("the model was asked without a reservation")
        with pytest.raises(RunStopped):
            run.evidence("new")
        assert run.call("t") == refused
        assert run.finish() == run.wait() == stepped.value.stop == run.stop == fake_run.stop
    assert not heard(fake_daemon, cm.CancelRun)


def test_a_refused_finish_is_a_value_and_the_run_goes_on(d, fake_run):
    fake_run.refused = "pytest -q: 1 failed"
    with d.run() as run:
        answer = run.finish("done")
        assert (answer.feedback, answer.refusals) == ("pytest -q: 1 failed", 1)
        assert run.stop is None
        run.step()


@pytest.mark.parametrize("on_disconnect", ["cancel", "keep"])
def test_a_block_that_is_left_without_finish_cancels_what_is_not_to_be_kept(d, fake_daemon, fake_run, on_disconnect):
    with d.run(on_disconnect=on_disconnect) as run:
        pass
    assert len(heard(fake_daemon, cm.CancelRun)) == (on_disconnect == "cancel")
    assert (run.stop is not None) is (on_disconnect == "cancel")


@pytest.mark.parametrize("on_disconnect", ["cancel", "keep"])
def test_an_exception_cancels_the_run_and_goes_its_way(d, fake_daemon, fake_run, on_disconnect):
    with pytest.raises(KeyboardInterrupt), d.run(on_disconnect=on_disconnect):
        raise KeyboardInterrupt
    assert heard(fake_daemon, cm.CancelRun)


@pytest.mark.parametrize("error", [None, RuntimeError])
def test_a_suspended_run_is_left_to_who_has_to_decide(d, fake_daemon, fake_run, error):
    try:
        with d.run():
            fake_run.stop = SUSPENDED
            if error:
                raise error
    except RuntimeError:
        pass
    assert not heard(fake_daemon, cm.CancelRun)


def test_a_run_that_went_on_after_a_suspension_is_cancelled_all_the_same(d, fake_daemon, fake_run):
    with d.run() as run:
        fake_run.stop = SUSPENDED
        with pytest.raises(RunStopped):
            run.step()
        fake_run.stop = None
    assert heard(fake_daemon, cm.CancelRun)


def test_a_lost_daemon_does_not_hide_what_the_block_raised(d, fake_daemon, fake_run):
    fake_daemon.on[cm.ShowRun] = lambda m: None
    with pytest.raises(ZeroDivisionError), d.run():
        raise ZeroDivisionError


def test_a_block_that_opens_nothing_leaves_nothing(d, fake_daemon):
    error = ErrorInfo(ErrorClass.ARGUMENT, "invalid_arguments", "no profile is called x")
    fake_daemon.on[cm.OpenRun] = lambda m: [cm.Failed(m.id, error)]
    block = d.run(profile="x")
    assert not heard(fake_daemon, cm.OpenRun)
    with pytest.raises(RequestRefused), block:
        pytest.fail("there is no run")


def _fail(*, after):
    after()
    raise ZeroDivisionError


def test_a_model_call_without_a_report_stays_spent_and_is_settled_whatever_is_raised(d, fake_daemon, fake_run):
    with d.run() as run:
        with run.model("m", max_in=10, max_out=10):
            pass
        with pytest.raises(ZeroDivisionError), run.model("m") as m:
            _fail(after=lambda: m.usage(tokens_in=3))
        with pytest.raises(ZeroDivisionError), run.model("m"):
            _fail(after=lambda: setattr(fake_run, "stop", stop_record()))
        assert run.stop == stop_record()
    reported = [(m.tokens_in, m.tokens_out) for m in heard(fake_daemon, cm.SettleModel)]
    assert reported == [(None, None), (3, None), (None, None)]


def test_a_run_that_was_stopped_while_the_model_thought_says_so_at_the_blocks_end(d, fake_run):
    with d.run() as run, pytest.raises(RunStopped), run.model("m"):
        fake_run.stop = stop_record()


def test_a_run_is_opened_to_be_kept_and_found_again_by_its_id(d, fake_daemon, fake_run):
    run = d.open_run(goal="long")
    assert heard(fake_daemon, cm.OpenRun)[0].on_disconnect == "keep"
    found = d.attach_run(run.id)
    assert found.view().goal == "mend it"
    assert found.cancel().status == "cancelled"
    assert found.stop.reason == "client"
    assert run.view().stop == found.stop == run.stop


def _event(seq, kind="step_begun"):
    return Event(seq, 0, kind, None, "r_1", 0, {}, "")


def test_the_events_of_a_run_are_followed_until_it_has_settled(d, fake_daemon, fake_run):
    pages = {0: [_event(1), _event(2)], 2: [], 3: [_event(4, "run_settled")]}
    fake_daemon.on[cm.ReadEvents] = lambda m: [cm.Events(m.id, pages[m.after], {0: 2, 2: 3, 3: 4}[m.after])]
    run = d.attach_run("r_1")
    assert [event.seq for event in run.events(follow=True)] == [1, 2, 4]
    assert [event.seq for event in run.events()] == [1, 2]
    asked = heard(fake_daemon, cm.ReadEvents)
    assert {message.run for message in asked} == {"r_1"}
    assert [message.wait_ms > 0 for message in asked] == [True, True, True, False, False]


def test_following_a_run_that_has_ended_lists_what_there_is_and_ends(d, fake_daemon, fake_run):
    fake_run.stop = stop_record(RunStatus.COMPLETED)
    fake_daemon.on[cm.ReadEvents] = lambda m: [cm.Events(m.id, [], m.after)]
    assert list(d.attach_run("r_1").events(after=9, follow=True)) == []
    assert [message.wait_ms for message in heard(fake_daemon, cm.ReadEvents)] == [0]


def test_following_a_run_that_nobody_knows_is_refused(d, fake_daemon):
    unknown = ErrorInfo(ErrorClass.ARGUMENT, "unknown_run", "no run 'r_1' is known here (any more)")
    fake_daemon.on[cm.ShowRun] = lambda m: [cm.Failed(m.id, unknown)]
    with pytest.raises(RequestRefused, match="no run 'r_1'"):
        next(d.attach_run("r_1").events(follow=True))
    assert not heard(fake_daemon, cm.ReadEvents)


def test_whoever_steers_says_what_its_model_does_and_what_it_needs_to_go_on(d, fake_daemon, fake_run):
    def going(message):
        return [cm.RunState(message.id, run_view())]

    fake_daemon.on |= {cm.RetryModel: going, cm.KeepNotes: going}
    fake_daemon.on[cm.ReadNotes] = lambda m: [cm.RunNotes(m.id, m.run, "at 3")]
    run = d.attach_run("r_1")
    assert run.retry_model(delay_ms=250, detail="429") == run_view()
    run.keep_notes("at 3")
    assert run.notes() == "at 3"
    [retry] = heard(fake_daemon, cm.RetryModel)
    assert (retry.delay_ms, retry.detail, retry.cause) == (250, "429", "transient_provider")
    assert heard(fake_daemon, cm.KeepNotes)[0].notes == "at 3"


def test_a_question_suspends_and_a_model_that_fails_ends_the_run(d, fake_daemon, fake_run):
    asks = stop_record(RunStatus.NEEDS_INPUT, RunReason.MISSING_PARAMETER)
    fails = stop_record(RunStatus.PROVIDER_FAILED, RunReason.AUTH)
    fake_daemon.on[cm.AskPerson] = lambda m: [cm.RunSettled(m.id, asks)]
    fake_daemon.on[cm.StopRun] = lambda m: [cm.RunSettled(m.id, fails)]
    run = d.attach_run("r_1")
    assert run.ask_person("which order?") == run.stop == asks
    assert run.stop_for("auth", "the key is refused") == run.stop == fails
    assert heard(fake_daemon, cm.AskPerson)[0].question == "which order?"
    assert [(m.reason, m.detail) for m in heard(fake_daemon, cm.StopRun)] == [("auth", "the key is refused")]
