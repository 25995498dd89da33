"""What whoever steers a run may say of it, over the product's own desk, with a disk and workers of the test's: each
message is charged before it is answered, is in the log, and is not taken when it cannot be meant."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from protocol import _client_messages as cm
from protocol._contracts import Approval, Contract, Refresh
from protocol._outcomes import CallResult
from protocol._runs import RunView
from supervisor import accounts, rounds, run_recovery, waiting_time
from supervisor.clock import wall_ms
from supervisor.core.detector_sets import SETS
from supervisor.core.detectors import Detectors
from supervisor.core.run_wishes import MOST_NOTES, MOST_TEXT
from supervisor.run_desk import _WAITS
from supervisor.runs import Runs
from tests.supervisor import simulated
from tests.supervisor.simulated import Daemon, World


class Life:
    """A run of a simulated daemon, and whoever steers it."""

    def __init__(self, **more: Any) -> None:
        self.world = World()
        self.daemon = Daemon(self.world)
        self.run = self.opened(**more)

    def opened(self, **more: Any) -> str:
        heard = self.daemon.ask(cm.OpenRun, on_disconnect="keep", **more)
        self.daemon.sync()
        assert isinstance(heard[0], cm.RunOpened), heard
        return heard[0].run.run

    def say(self, kind: Any, **more: Any) -> Any:
        """The answer to a message about the run, once the disk has what it wants."""
        heard = self.daemon.ask(kind, run=self.run, **more)
        self.daemon.sync()
        return heard[0]

    def reserve(self) -> Any:
        return self.say(cm.ReserveModel, model="m", max_in=10, max_out=5)

    def call(self, tool: str, number: int, **more: Any) -> CallResult:
        """To its end, or until it waits."""
        heard = self.daemon.submit(tool, number, run=self.run, **more)
        self.daemon.settle_down()
        assert isinstance(heard[-1], cm.Settled), heard
        return heard[-1].result

    def view(self) -> RunView:
        return self.say(cm.ShowRun).run

    def events(self, kind: str) -> list[dict[str, Any]]:
        self.daemon.sync()
        return [event.data for event in self.daemon.store.events(0, 10_000, run=self.run) if event.kind == kind]

    def kinds(self) -> list[str]:
        self.daemon.sync()
        return [event.kind for event in self.daemon.store.events(0, 10_000, run=self.run)]

    def used(self, name: str) -> int:
        return self.view().budgets[name].used

    def another(self) -> None:
        """The daemon dies, and another one begins with what the disk has."""
        self.daemon.crash()
        self.daemon = Daemon(self.world)

    def end(self) -> None:
        self.daemon.crash()
        self.world.close()


@pytest.fixture
def life() -> Iterator[Life]:
    one = Life()
    yield one
    one.end()


def code(answer: Any) -> str:
    assert isinstance(answer, cm.Failed), answer
    return answer.error.code


def test_a_call_is_in_the_log_before_what_is_done_for_it_and_a_run_ends_behind_the_call_that_ends_it() -> None:
    life = Life(limits={"steps": 2})
    for number, tool in enumerate(("look", "pay", "look")):
        life.call(tool, number)
    changing = ["call_validated", "call_claimed", "call_sent", "call_accepted", "call_ended"]
    ended = ["budget_refused", "call_refused", "run_settled"]
    assert life.kinds() == ["run_admitted", "call_validated", "call_ended", *changing, *ended]
    (end,) = life.events("run_settled")
    assert (end["phase"], end["reason"]) == ("decide", "step_budget")
    life.end()


def asked_about(life: Life) -> list[Any]:
    """What a call hears that a person is about to be asked about; the disk has not got the question yet."""
    return life.daemon.submit("send", 1, run=life.run)


def test_a_run_is_not_done_while_a_person_is_about_to_be_asked_about_a_call(life: Life) -> None:
    heard = asked_about(life)
    assert isinstance(life.say(cm.FinishRun, answer="done"), cm.FinishRefused)
    life.daemon.settle_down()
    assert heard[-1].result.status == "waiting_for_approval"
    assert life.view().status == "waiting_for_approval"
    assert life.kinds()[-4:] == ["approval_asked", "finish_refused", "call_ended", "run_suspended"]


def test_a_call_about_which_a_person_is_about_to_be_asked_ends_with_its_run(life: Life) -> None:
    heard = asked_about(life)
    stop = life.say(cm.CancelRun).stop
    life.daemon.settle_down()
    result = heard[-1].result
    assert (result.status, result.reason, result.delivery) == ("cancelled", "client", "not_delivered")
    assert (stop.status, life.kinds()[-1]) == ("cancelled", "run_settled")
    assert life.daemon.ask(cm.ListApprovals)[0].approvals == []


def test_the_round_of_a_call_that_ends_before_anybody_was_asked_is_over(life: Life) -> None:
    for _ in range(3):
        heard = asked_about(life)
        (call,) = life.daemon.calls.live.values()
        life.daemon.ask(cm.Cancel, call=call.id)
        life.daemon.settle_down()
        assert heard[-1].result.status == "cancelled"
    assert life.used("steps") == 3


def test_nobody_is_asked_about_a_call_whose_run_has_come_to_its_end_meanwhile() -> None:
    life = Life(limits={"tool_calls": 1})
    heard = asked_about(life)
    life.daemon.submit("look", 1, run=life.run)
    assert life.daemon.submit("look", 2, run=life.run)[-1].result.reason == "budget"
    life.daemon.settle_down()
    assert (heard[-1].result.status, heard[-1].result.reason) == ("not_executed", "budget")
    assert life.say(cm.WaitRun).stop.reason == "tool_call_budget"
    assert life.kinds()[-3:] == ["call_ended", "approval_decided", "run_settled"]
    life.end()


def test_a_run_that_has_its_input_waits_on_for_the_person_who_is_asked_about_a_call(life: Life) -> None:
    asked_about(life)
    life.daemon.ask(cm.AskPerson, life.run, "Which tenant?")
    life.daemon.settle_down()
    assert life.view().status == "needs_input"
    life.say(cm.ResumeRun, answer="acme")
    assert life.view().status == "waiting_for_approval"
    (approval,) = life.view().approvals
    life.daemon.ask(cm.Decide, approval, "approve")
    life.daemon.settle_down()
    assert life.view().status == "running"
    assert life.used("tool_calls[send]") == 1


@pytest.mark.behaviour("M069")
def test_another_attempt_at_a_model_is_charged_before_its_wait_and_is_in_the_log(life: Life) -> None:
    reserved = life.reserve()
    life.say(cm.SettleModel, reservation=reserved.reservation, tokens_in=0, tokens_out=0)
    assert isinstance(life.say(cm.RetryModel, delay_ms=250, detail="429"), cm.RunState)
    assert life.used("retries") == 1
    (event,) = life.events("retry_scheduled")
    assert (event["class"], event["delay_ms"], event["text"]) == ("transient_provider", 250, "429")
    assert life.view().phase == "backoff"
    life.reserve()
    assert life.view().phase == "decide"
    assert life.view().step == 1, "it is the same round"


@pytest.mark.behaviour("M165")
def test_one_retry_more_than_the_limit_ends_the_run() -> None:
    life = Life(limits={"retries": 1})
    life.reserve()
    assert isinstance(life.say(cm.RetryModel), cm.RunState)
    stop = life.say(cm.RetryModel).stop
    assert (stop.status, stop.reason) == ("budget_exhausted", "retry_budget")
    life.end()


def test_a_call_of_the_loops_own_that_means_nothing_counts_like_any_other(life: Life) -> None:
    for number in range(6):
        life.say(cm.StepRun)
        answer = life.say(cm.RefuseCall, tool="finish", text=f"no answer {number}", decision=f"d_{number}")
        assert isinstance(answer, cm.RunState)
    assert life.used("tool_calls") == 0
    assert [event["decision"] for event in life.events("call_refused")] == [f"d_{number}" for number in range(6)]
    fired = [event for event in life.events("detector_fired") if event["detector"] == "invalid_arguments"]
    assert [(event["level"], event["count"]) for event in fired] == [("stop", 5)]


def test_only_where_another_may_end_is_a_call_too_many_at_once_told_to_wait_for_it(life: Life) -> None:
    life.run = life.opened(limits={"branches": 1})
    life.daemon.submit("look", 1, run=life.run)
    busy = life.daemon.submit("look", 2, run=life.run)[-1].result
    life.run = life.opened(limits={"branches": 0})
    never = life.call("look", 1)
    assert {(one.status, one.reason) for one in (busy, never)} == {("not_executed", "budget")}
    assert (busy.retryable, never.retryable) == (True, False)
    assert never.next_action
    assert "no more tools" in never.next_action
    life.daemon.settle_down()


def test_a_call_that_fits_shows_its_fingerprint_also_where_it_is_refused(life: Life) -> None:
    life.run = life.opened(limits={"tool_calls": 1})
    done = life.call("pay", 1, key="k")
    assert done.fingerprint
    assert life.call("pay", 2, key="k").reason == "key_conflict"
    refused = life.call("pay", 1)
    assert (refused.reason, refused.fingerprint) == ("budget", done.fingerprint)
    assert life.call("nothing", 1).fingerprint == ""


def test_a_run_that_waits_for_word_of_an_effect_says_so_and_goes_on_with_it(life: Life) -> None:
    life.daemon.submit("pay", 1, run=life.run)
    life.daemon.sync()
    (worker,) = life.daemon.busy()
    life.daemon.work(worker, "accept")
    life.daemon.lose(worker, killed=False)
    life.daemon.settle_down()
    assert life.call("pay", 1).reason == "reconcile_required"
    refused = life.say(cm.ResumeRun, answer="acme")
    assert (code(refused), "deadlined effects close" in refused.error.message) == ("not_waiting", True)
    assert "approvals" not in refused.error.message
    (effect,) = life.daemon.ask(cm.ListEffects)[0].effects
    life.daemon.ask(cm.CloseEffect, effect.call, "it was booked")
    life.daemon.settle_down()
    assert life.view().status == "running"


@pytest.mark.behaviour("M123")
def test_a_question_suspends_the_run_and_its_answer_lets_it_go_on(life: Life) -> None:
    life.say(cm.StepRun)
    stop = life.say(cm.AskPerson, question="Which tenant?").stop
    assert (stop.outcome, stop.status, stop.reason, stop.detail) == (
        "suspended",
        "needs_input",
        "missing_parameter",
        "Which tenant?",
    )
    waiting = life.daemon.ask(cm.WaitRun, life.run, settled=True)
    assert waiting == [], "it has not settled"
    assert isinstance(life.say(cm.ResumeRun, answer="acme"), cm.RunState)
    assert life.events("run_resumed")[-1]["answer"] == "acme"
    life.say(cm.CancelRun)
    assert waiting[0].stop.status == "cancelled"


@pytest.mark.behaviour("M083")
@pytest.mark.parametrize("reason", ["transient_exhausted", "permanent", "auth", "content_policy", "stream_incomplete"])
def test_a_run_whose_model_fails_says_so(life: Life, reason: str) -> None:
    stop = life.say(cm.StopRun, reason=reason, detail="the provider said no").stop
    assert (stop.status, stop.reason, stop.detail) == ("provider_failed", reason, "the provider said no")
    again = life.say(cm.StopRun, reason="auth")
    assert again.stop.reason == reason, "the first word stays"


def test_a_model_that_fails_at_its_last_word_hides_no_budget() -> None:
    life = Life(limits={"steps": 1}, wrapup=True)
    life.reserve()
    life.call("look", 1)
    assert code(life.say(cm.StepRun)) == "wrapping_up"
    assert life.reserve().wraps_up
    stop = life.say(cm.StopRun, reason="permanent").stop
    assert (stop.status, stop.reason) == ("budget_exhausted", "step_budget")
    life.end()


@pytest.mark.behaviour("M125")
@pytest.mark.behaviour("M086")
def test_what_was_kept_is_there_in_another_life_with_the_suspension(life: Life) -> None:
    reserved = life.reserve()
    life.say(cm.SettleModel, reservation=reserved.reservation)
    life.say(cm.KeepNotes, notes='{"n": 1}', folded=[3, 4])
    assert [event["step"] for event in life.events("folded")] == [3, 4]
    asked = life.call("send", 1, key="d_1.0", decision="d_1")
    assert asked.status == "waiting_for_approval"
    life.another()
    assert life.say(cm.ReadNotes).notes == '{"n": 1}'
    life.daemon.ask(cm.Decide, asked.approval, "approve")
    life.daemon.settle_down()
    assert life.call("send", 1, key="d_1.0", decision="d_1").status == "ok"
    assert life.world.done[1] == 1, "asked for twice, done once"


@pytest.mark.behaviour("M074")
def test_decisions_of_another_life_have_other_numbers(life: Life) -> None:
    first = life.reserve()
    life.say(cm.SettleModel, reservation=first.reservation)
    life.say(cm.AskPerson, question="Which?")
    life.another()
    life.say(cm.ResumeRun, answer="this")
    second = life.reserve()
    assert second.reservation > first.reservation, "a key that is made of it would answer with what was done before"


def test_a_run_that_its_daemon_did_not_outlive_says_what_it_was_given_and_has_used() -> None:
    life = Life(limits={"steps": 3, "tool_calls[pay]": 1})
    life.call("pay", 1)
    life.view()
    life.another()
    stop = life.say(cm.WaitRun).stop
    assert stop.reason == "recovered_after_crash"
    stood = {name: (one.limit, one.used, one.left) for name, one in stop.budgets.items()}
    assert stood == {"steps": (3, 1, 2), "tool_calls": (None, 1, None), "tool_calls[pay]": (1, 1, 0)}
    life.end()


def test_what_was_kept_is_forgotten_when_the_run_has_settled(life: Life) -> None:
    life.say(cm.KeepNotes, notes="a secret")
    life.say(cm.CancelRun)
    assert life.say(cm.ReadNotes).notes == ""


def test_notes_of_all_runs_have_a_bound_and_what_is_out_of_date_is_not_kept(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "ALL_NOTES", 100_000)
    first, life.run = life.run, life.opened()
    for size in (60_000, 90_000):
        assert isinstance(life.say(cm.KeepNotes, notes="x" * size), cm.RunState), "its own are replaced"
    life.run = first
    assert isinstance(life.say(cm.KeepNotes, notes="few"), cm.RunState)
    assert code(life.say(cm.KeepNotes, notes="x" * 60_000)) == "overloaded"
    assert life.say(cm.ReadNotes).notes == ""


@pytest.mark.behaviour("M085")
def test_a_call_says_what_decided_it_in_its_result_and_in_the_log(life: Life) -> None:
    life.say(cm.StepRun)
    assert life.call("look", 1, decision="d_7").decision == "d_7"
    assert [event["decision"] for event in life.events("call_validated")] == ["d_7"]


def test_what_cannot_be_meant_is_refused_and_changes_nothing(life: Life) -> None:
    long = "x" * (MOST_TEXT + 1)
    for kind, more in (
        (cm.RetryModel, {"detail": long}),
        (cm.RefuseCall, {"tool": "finish", "text": long}),
        (cm.AskPerson, {"question": long}),
        (cm.StopRun, {"reason": "auth", "detail": long}),
        (cm.KeepNotes, {"notes": "x" * (MOST_NOTES + 1)}),
    ):
        assert code(life.say(kind, **more)) == "invalid_arguments"
    view = life.view()
    assert (view.status, view.step) == ("running", 0)
    assert [name for name, one in view.budgets.items() if one.used] == []


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        (cm.RetryModel, {}),
        (cm.RefuseCall, {"tool": "finish", "text": "no"}),
        (cm.AskPerson, {"question": "?"}),
        (cm.StopRun, {"reason": "auth"}),
        (cm.KeepNotes, {"notes": "x"}),
        (cm.StepRun, {}),
        (cm.ReserveModel, {"model": "m", "max_in": 1, "max_out": 1}),
    ],
)
def test_a_run_that_has_settled_answers_by_its_stop(life: Life, kind: Any, more: dict[str, Any]) -> None:
    life.say(cm.CancelRun)
    assert life.say(kind, **more).stop.status == "cancelled"


def test_a_last_word_takes_no_question_and_no_malformed_call() -> None:
    life = Life(limits={"steps": 1}, wrapup=True)
    life.call("look", 1)
    assert code(life.say(cm.StepRun)) == "wrapping_up"
    for kind, more in ((cm.AskPerson, {"question": "?"}), (cm.RefuseCall, {"tool": "finish", "text": "no"})):
        assert code(life.say(kind, **more)) == "wrapping_up"
    assert life.reserve().wraps_up
    stop = life.say(cm.FinishRun, answer="what is known", plain=True).stop
    assert (stop.status, stop.reason, stop.answer) == ("budget_exhausted", "step_budget", "what is known")
    life.end()


def test_as_many_wait_for_one_run_as_it_can_tell(life: Life) -> None:
    for _ in range(_WAITS):
        life.daemon.ask(cm.WaitRun, life.run)
    assert code(life.say(cm.WaitRun)) == "overloaded"


@pytest.mark.behaviour("M137")
def test_an_answer_that_nobody_asked_for_is_told_apart(life: Life) -> None:
    other = life.opened()
    assert life.say(cm.FinishRun, answer="7").stop.reason == "finish_accepted"
    life.run = other
    stop = life.say(cm.FinishRun, answer="7", plain=True).stop
    assert (stop.status, stop.reason, stop.answer) == ("completed", "final_text", "7")
    assert life.events("run_settled")[-1]["reason"] == "final_text"


def test_one_call_too_many_at_once_is_refused_and_may_come_again() -> None:
    life = Life(limits={"branches": 1})
    first = life.daemon.submit("look", 1, run=life.run)
    (refused,) = [one.result for one in life.daemon.submit("look", 2, run=life.run) if isinstance(one, cm.Settled)]
    assert (refused.status, refused.reason, refused.retryable) == ("not_executed", "budget", True)
    assert "when one of them has ended" in refused.next_action
    life.daemon.settle_down()
    assert first[-1].result.status == "ok"
    assert life.call("look", 2).status == "ok"
    life.end()


def test_a_poll_that_comes_too_early_may_come_again_and_a_call_that_is_blocked_may_not(life: Life) -> None:
    run = life.daemon.runs.going(life.run)
    assert run is not None
    run.detectors = Detectors(SETS["strict"])
    life.world.contracts["poll"] = Contract(True, approval=Approval.NEVER, refresh=Refresh(min_interval_ms=60_000))
    life.daemon.serve()
    life.say(cm.StepRun)
    ends = [life.call(tool, 1) for tool in ("poll", "poll", "look", "look", "look", "look")]
    assert [(end.status, end.retryable) for end in ends if end.status != "ok"] == [
        ("too_early", True),
        ("duplicate_call", False),
    ]


def test_what_a_run_has_used_can_be_seen_while_its_end_is_on_its_way_to_the_disk(life: Life) -> None:
    life.call("look", 1)
    life.daemon.ask(cm.CancelRun, run=life.run)
    (answer,) = life.daemon.ask(cm.ShowRun, run=life.run)
    assert answer.run.budgets["tool_calls"].used == 1
    assert life.used("tool_calls") == 1


def test_a_fence_that_was_taken_off_is_told_in_the_result_with_and_without_a_run(life: Life) -> None:
    for run in (life.run, None):
        heard = life.daemon.ask(cm.Submit, "look", '```json\n{"n": 1}\n```', run=run)
        life.daemon.settle_down()
        result = heard[-1].result
        assert (result.status, [notice.detector for notice in result.notices]) == ("ok", ["fence_stripped"])


@pytest.mark.behaviour("M149")
def test_a_session_has_used_what_it_has_though_so_many_others_came_that_only_the_disk_knows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (accounts, run_recovery):
        monkeypatch.setattr(module, "MOST_SESSIONS", 1)
    life = Life(session="s")
    for number in range(4):
        if number == 2:
            life.another()
            life.run = life.opened(session="s")
        session = life.daemon.ledger.view(accounts.session_of(life.daemon.person.uid, "s"))
        assert session["tool_calls"].used == number
        for other in ("s", "t", "u"):
            life.run = life.run if other == "s" else life.opened(session=other)
            life.call("look", number)
            life.say(cm.FinishRun, answer="done")
        life.run = life.opened(session="s")
    life.end()


def test_what_a_session_has_used_is_not_forgotten_while_a_run_of_it_waits() -> None:
    life = Life(session="s")
    life.call("look", 1)
    life.say(cm.AskPerson, question="Which one?")
    life.daemon.runs.prune(1 << 60)
    life.another()
    session = life.daemon.ledger.view(accounts.session_of(life.daemon.person.uid, "s"))
    assert session["tool_calls"].used == 1
    life.end()


def recall_into_a_clock_that_goes_on(runs: Runs, recovered: run_recovery.RecoveredRuns) -> None:
    runs.pauses = False
    run_recovery.recall_runs(runs, recovered)


@pytest.mark.parametrize(("boot", "counted"), [("another", True), (None, False)])
def test_a_clock_that_goes_on_while_a_run_waits_goes_on_without_a_daemon(
    boot: str | None, counted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the clock of the boot; where there was another one, by the wall's."""
    life = Life()
    life.daemon.runs.pauses = False
    life.run = life.opened(deadline_ms=300_000)
    life.say(cm.AskPerson, question="Which one?")
    if boot is not None:
        monkeypatch.setattr(waiting_time, "boot_id", lambda: boot)
    monkeypatch.setattr(waiting_time, "wall_ms", lambda: wall_ms() + 60_000)
    monkeypatch.setattr(simulated, "recall_runs", recall_into_a_clock_that_goes_on)
    life.another()
    assert life.view().status == "needs_input"
    for _ in range(2):
        deadline = life.view().deadline
        assert (deadline.elapsed_ms >= 60_000, deadline.remaining_ms <= 240_000) == (counted, counted)
        life.say(cm.ResumeRun, answer="this one")
    life.end()


def test_the_time_of_a_run_that_waits_can_be_seen_to_go_on_where_its_clock_does(life: Life) -> None:
    life.daemon.runs.pauses = False
    life.run = life.opened(deadline_ms=300_000)
    life.say(cm.AskPerson, question="Which one?")
    before = life.view().deadline
    while (now := life.view().deadline).elapsed_ms <= before.elapsed_ms:
        time.sleep(0.001)
    assert now.remaining_ms < before.remaining_ms
    life.say(cm.ResumeRun, answer="this one")
    assert life.view().deadline.elapsed_ms >= now.elapsed_ms
