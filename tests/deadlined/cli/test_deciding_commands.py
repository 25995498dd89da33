"""What a person decides: ``approvals``, ``approve``, ``reject``, ``effects``; and ``metrics``."""

import json
import time

import pytest

from protocol import _client_messages as cm
from protocol._events import Event
from protocol._outcomes import CallResult, ErrorClass, ErrorInfo, Reason, Status
from protocol._runs import ApprovalView, OpenEffect, RunReason, RunStatus
from tests.deadlined.conftest import run_view, stop_record

NOW_MS = int(time.time() * 1_000)
WAITS = ApprovalView("a_1", 0, "r_1", "c_1", "shell", '{"argv":\n["ls\x1b[2J"]}', "write", "pending", NOW_MS, 2**50)
DONE = ApprovalView("a_0", 0, None, "c_0", "mail", "{}", "rule 3", "consumed", 1, 2, executed="c_9")


def heard(fake_daemon, kind):
    return [message for message in fake_daemon.heard if isinstance(message, kind)]


@pytest.fixture
def decides(fake_daemon):
    """A daemon that takes every decision; ``decides.call`` is what an approved call becomes."""

    class Decides:
        call = "c_2"

    fake_daemon.on[cm.Decide] = lambda m: [cm.Decided(m.id, WAITS, Decides.call)]
    return Decides


def test_approvals_show_what_waits_with_the_arguments_that_will_run(fake_daemon, command):
    fake_daemon.on[cm.ListApprovals] = lambda m: [cm.Approvals(m.id, [DONE, WAITS] if m.all else [WAITS])]
    out = command("approvals", "--run", "r_1")[1]
    assert out.splitlines()[1].startswith("a_1")
    assert '{"argv": ["ls[2J"]}' in out
    assert "\x1b" not in out
    assert heard(fake_daemon, cm.ListApprovals)[0].run == "r_1"
    oldest = command("approvals", "--all")[1].splitlines()[1]
    assert oldest.split()[:4] == ["a_0", "consumed", "-", "mail"]
    told = json.loads(command("approvals", "--json")[1])["approvals"]
    assert [one["arguments"] for one in told] == [WAITS.arguments]


@pytest.mark.parametrize(
    ("status", "reason", "exits"),
    [(Status.OK, None, 0), (Status.KILLED, Reason.TIME_BUDGET, 124), (Status.ERROR, None, 1)],
)
def test_approve_waits_for_the_call_and_exits_as_it_did(fake_daemon, command, decides, status, reason, exits):
    fake_daemon.on[cm.Wait] = lambda m: (
        [cm.Pending(m.id, m.call, 500)]
        if m.nowait
        else [cm.Settled(m.id, CallResult(m.call, "t", status, reason=reason))]
    )
    code, out, _ = command(
        "approve", "a_1", "--arguments", '{"argv": ["pwd"]}', "--scope", "tool", "--note", "mine", "--json"
    )
    assert (code, json.loads(out)["call"]) == (exits, "c_2")
    [said] = heard(fake_daemon, cm.Decide)
    assert (said.decision, said.arguments, said.scope, said.note) == ("approve", '{"argv": ["pwd"]}', "tool", "mine")


def test_approve_without_waiting_prints_the_id_of_the_call(fake_daemon, command, decides):
    assert command("approve", "a_1", "--no-wait") == (0, "c_2\n", "")
    told = json.loads(command("approve", "a_1", "--no-wait", "--json")[1])
    assert (told["call"], told["approval"]["approval"]) == ("c_2", "a_1")
    assert not heard(fake_daemon, cm.Wait)
    assert heard(fake_daemon, cm.Decide)[0].arguments is None


def log(*events):
    """Events of a run: kind, and what it says."""
    return [Event(seq, 0, kind, None, "r_1", 0, data, "") for seq, (kind, data) in enumerate(events, 1)]


REFUSED = ("finish_refused", {"refusals": 2, "text": "1 failed"})
SUSPENDED = ("run_suspended", {})
SETTLED = ("run_settled", {})
WAITING = stop_record(RunStatus.WAITING_FOR_APPROVAL, RunReason.APPROVAL_REQUIRED)


@pytest.mark.parametrize(
    ("after", "stands", "exits", "said"),
    [
        ([SETTLED], None, 3, "budget_exhausted (step_budget)"),
        ([REFUSED], None, 75, "1 failed"),
        ([SUSPENDED], WAITING, 4, "waiting_for_approval"),
        ([SUSPENDED, REFUSED], None, 75, "1 failed"),
    ],
)
def test_approve_of_an_answer_waits_for_what_comes_of_its_run(
    fake_daemon, command, decides, after, stands, exits, said
):
    decides.call = None
    used = [("approval_consumed", {"approval": name}) for name in ("a_0", "a_1")]
    before = ("finish_refused", {"refusals": 1, "text": "an earlier one"})
    events = log(before, used[0], SUSPENDED, before, used[1], ("call_ended", {}), *after)
    fake_daemon.on[cm.ShowRun] = lambda m: [cm.RunState(m.id, run_view(stands))]
    fake_daemon.on[cm.ReadEvents] = lambda m: [cm.Events(m.id, events[m.after :], len(events))]
    fake_daemon.on[cm.WaitRun] = lambda m: [cm.RunSettled(m.id, stop_record())]
    code, out, _ = command("approve", "a_1")
    assert (code, said in out) == (exits, True)
    assert command("approve", "a_1", "--no-wait") == (0, "a_1: pending\n", "")


def test_reject_tells_why_and_may_end_the_run(fake_daemon, command, decides):
    assert command("reject", "a_1", "--reason", "use the test database") == (0, "a_1: pending\n", "")
    assert command("reject", "a_1", "--stop", "--json")[0] == 0
    said = [(m.decision, m.note, m.then) for m in heard(fake_daemon, cm.Decide)]
    assert said == [("reject", "use the test database", "feedback"), ("reject", "", "stop")]


def test_a_decision_that_cannot_be_is_exit_3_in_one_line(fake_daemon, command):
    refused = ErrorInfo(ErrorClass.ARGUMENT, "approval_expired", "it stood until 12:00")
    fake_daemon.on[cm.Decide] = lambda m: [cm.Failed(m.id, refused)]
    for words in (["approve", "a_1"], ["reject", "a_1"]):
        assert command(*words) == (3, "", "deadlined: it stood until 12:00 [approval_expired]\n")


def test_effects_are_listed_until_somebody_has_looked(fake_daemon, command):
    effect = OpenEffect("c_7", "mail", None, 0, "KEY", NOW_MS - 90_000)
    fake_daemon.on[cm.ListEffects] = lambda m: [cm.Effects(m.id, [effect])]
    fake_daemon.on[cm.CloseEffect] = lambda m: [cm.EffectClosed(m.id, effect)]
    line = command("effects", "--run", "r_1")[1].splitlines()[1].split()
    assert (line[:3], line[-2:]) == (["c_7", "mail", "-"], ["ago", "KEY"])
    assert heard(fake_daemon, cm.ListEffects)[0].run == "r_1"
    assert json.loads(command("effects", "--json")[1])["effects"][0]["key"] == "KEY"
    fake_daemon.on[cm.ListEffects] = lambda m: [cm.Effects(m.id, [effect], more=7)]
    assert command("effects")[2].startswith("and 7 more")
    assert json.loads(command("effects", "--json")[1])["more"] == 7
    assert command("effects", "close", "c_7", "--note", "sent") == (0, "c_7: closed\n", "")
    assert heard(fake_daemon, cm.CloseEffect)[0].note == "sent"
    assert len(heard(fake_daemon, cm.ListEffects)) == 4


def test_metrics_are_the_daemons_text_or_every_sample_as_an_object(fake_daemon, command):
    text = '# HELP deadlined_x_total X.\n# TYPE deadlined_x_total counter\ndeadlined_x_total{tool="a\\"b"} 3.0\n'
    fake_daemon.on[cm.AskMetrics] = lambda m: [cm.Metrics(m.id, text)]
    assert command("metrics") == (0, text, "")
    [sample] = json.loads(command("metrics", "--json")[1])["samples"]
    assert sample == {"name": "deadlined_x_total", "labels": {"tool": 'a"b'}, "value": 3.0}
