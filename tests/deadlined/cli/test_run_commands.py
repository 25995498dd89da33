"""``deadlined run …`` and its neighbours against a scripted run: what is printed, and how it exits."""

import json

import pytest

from protocol import _client_messages as cm
from protocol._budgets import DimensionView
from protocol._checks import FieldsCheck, FieldValue, FileCheck, PersonCheck
from protocol._events import Event
from protocol._outcomes import ErrorClass, ErrorInfo
from protocol._runs import RUN_EXIT, Artefact, FiredDetector, OpenEffect, RunDeadline, RunReason, RunRow, RunStatus
from tests.deadlined.conftest import run_view, stop_record


def heard(fake_daemon, kind):
    return [message for message in fake_daemon.heard if isinstance(message, kind)]


def test_open_prints_the_id_alone_and_keeps_the_run(fake_daemon, fake_run, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    limits = ["--limit", "steps=3", "--limit", "tool_calls[search]=2", "--limit", "output_bytes=8MiB"]
    more = ["--session", "s", "--parent", "r_0", "--workspace", ".", "--check", "true", "--check", "make test"]
    words = ["--goal", "mend it", "--profile", "edit", "--deadline", "8m", *limits, "--limit", "wall_ms=5m", *more]
    assert command("run", "open", *words) == (0, "r_1\n", "")
    [opened] = heard(fake_daemon, cm.OpenRun)
    assert opened == cm.OpenRun(
        id=opened.id,
        goal="mend it",
        profile="edit",
        deadline_ms=480_000,
        limits={"steps": 3, "tool_calls[search]": 2, "output_bytes": 8 << 20, "wall_ms": 300_000},
        session="s",
        parent="r_0",
        workspace=str(tmp_path),
        checks=["true", "make test"],
        on_disconnect="keep",
    )
    assert not heard(fake_daemon, cm.CancelRun)
    assert json.loads(command("run", "open", "--json")[1])["budgets"]["steps"]["limit"] == 25


def test_open_asks_for_files_fields_and_at_last_a_person(fake_daemon, fake_run, command):
    words = [
        "--confirm",
        "--check-fields",
        "total, date",
        "--check-file",
        "out",
        "--check-file",
        "out=^a=b",
        "--check",
        "true",
    ]
    assert command("run", "open", *words)[0] == 0
    assert command("run", "open", "--confirm", "Is it right?")[0] == 0
    first, second = heard(fake_daemon, cm.OpenRun)
    file = FileCheck("out", matches="^a=b")
    assert first.checks == ["true", FileCheck("out"), file, FieldsCheck(("total", "date")), PersonCheck("")]
    assert second.checks == [PersonCheck("Is it right?")]


def test_finish_takes_the_fields_of_its_answer(fake_daemon, fake_run, command, tmp_path):
    (tmp_path / "fields").write_text('{"total": {"value": "42", "evidence": ["c_1"]}}')
    command("run", "finish", "r_1", "--answer", "42", "--fields", f"@{tmp_path}/fields")
    [finish] = heard(fake_daemon, cm.FinishRun)
    assert (finish.answer, finish.fields) == ("42", {"total": FieldValue("42", ("c_1",))})
    done, out, err = command("run", "finish", "r_1", "--fields", '{"total": 42}')
    assert (done, out) == (2, "")
    assert "--fields does not fit: Expected `object`, got `int` - at `$[...]`" in err


@pytest.mark.parametrize(
    ("code", "error_class", "exits"),
    [
        ("looser_limit", ErrorClass.ARGUMENT, 2),
        ("unknown_run", ErrorClass.ARGUMENT, 3),
        ("profile_not_allowed", ErrorClass.POLICY, 3),
    ],
)
def test_what_cannot_be_opened_says_in_one_line_what_can(fake_daemon, command, code, error_class, exits):
    fake_daemon.on[cm.OpenRun] = lambda m: [cm.Failed(m.id, ErrorInfo(error_class, code, "steps: at most 25"))]
    done, out, err = command("run", "open", "--limit", "steps=26")
    assert (done, out, err.count("\n")) == (exits, "", 1)
    assert "steps: at most 25" in err


def test_step_says_where_the_run_is(fake_run, command):
    assert command("run", "step", "r_1") == (0, "step 3 of 25, decide · 6 m 30 s left\n", "")
    assert json.loads(command("run", "step", "r_1", "--json")[1])["step"] == 3


def test_charge_reserves_and_settles_in_one(fake_daemon, fake_run, command):
    assert command("run", "charge", "r_1", "--model", "m", "--in", "700", "--out", "90") == (0, "tokens_in 700\n", "")
    command("run", "charge", "r_1", "--max-in", "8000", "--max-out", "1000", "--in", "700", "--cached-in", "300")
    command("run", "charge", "r_1", "--max-in", "8000")
    reserved = [(m.model, m.max_in, m.max_out) for m in heard(fake_daemon, cm.ReserveModel)]
    assert reserved == [("m", 700, 90), ("", 8000, 1000), ("", 8000, 0)]
    settled = [(m.tokens_in, m.tokens_out, m.cached_in) for m in heard(fake_daemon, cm.SettleModel)]
    assert settled == [(700, 90, 0), (700, None, 300), (None, None, 0)]


def test_what_was_used_is_shown_with_its_limit_and_the_share_of_it(fake_daemon, fake_run, command):
    view = run_view()
    view.budgets = {"tokens_total": DimensionView(15_000, 13_500, 0, 1_500), "model_calls": DimensionView(0, 0, 0, 0)}
    fake_daemon.on[cm.ShowRun] = lambda m: [cm.RunState(m.id, view)]
    assert command("run", "charge", "r_1")[1] == "model_calls 0 of 0 · tokens_total 13500 of 15000 (90 %)\n"
    assert "tokens_total  15000  13500  (90 %)  0         1500" in command("run", "show", "r_1")[1]


def test_evidence_is_new_or_known(fake_run, command):
    assert command("run", "evidence", "r_1", "new")[:2] == (0, "new\n")
    assert command("run", "evidence", "r_1", "old")[:2] == (0, "known\n")
    assert json.loads(command("run", "evidence", "r_1", "old", "--json")[1])["novel"] is False


@pytest.mark.parametrize("status", sorted(set(RunStatus) - {RunStatus.RUNNING}))
def test_what_may_not_go_on_prints_why_and_exits_as_the_run_ended(fake_run, command, status):
    fake_run.stop = stop_record(status)
    for words in (["step", "r_1"], ["charge", "r_1"], ["evidence", "r_1", "x"], ["finish", "r_1"], ["wait", "r_1"]):
        code, out, err = command("run", *words)
        if status is not RunStatus.COMPLETED:  # of which only those two that ask for the end say 0
            assert (code, err) == (RUN_EXIT[status], "")
        assert out.startswith(
            f"{status} (step_budget) at step 25, decide · after 1.5 s of 8 m 00 s · r_1\nno step is left"
        )
        assert json.loads(command("run", *words, "--json")[1])["status"] == status
    assert command("run", "cancel", "r_1")[0] == 0
    assert command("run", "show", "r_1")[0] == 0


def test_a_loop_of_steps_ends_when_its_run_is_completed(fake_run, command):
    fake_run.stop = stop_record(RunStatus.COMPLETED)
    exits = {words: command("run", words, "r_1")[0] for words in ("step", "charge", "finish", "wait")}
    assert exits == {"step": 3, "charge": 3, "finish": 0, "wait": 0}
    assert command("run", "evidence", "r_1", "x")[0] == 3


def test_finish_exits_0_when_the_checks_agree_and_75_with_their_words_when_not(fake_daemon, fake_run, command):
    fake_run.refused = "pytest -q: 1 failed"
    code, out, err = command("run", "finish", "r_1")
    assert (code, out) == (75, "pytest -q: 1 failed\n")
    assert "goes on" in err
    assert json.loads(command("run", "finish", "r_1", "--json")[1]) == {
        "run": "r_1",
        "finished": False,
        "refusals": 1,
        "feedback": "pytest -q: 1 failed",
    }
    fake_run.refused = None
    code, out, _ = command("run", "finish", "r_1", "--answer", "mended")
    assert (code, out.splitlines()[0].split()[0], out.splitlines()[2]) == (0, "completed", "answer: mended")


def test_no_exit_of_a_run_is_that_of_a_refused_finish():
    assert 75 not in RUN_EXIT.values()


def test_a_stop_record_says_what_was_found_what_is_open_and_what_would_help(fake_run, command):
    fake_run.stop = stop_record(
        deadline=RunDeadline(2_000, 2_012, 0, 12),
        advice="larger_budget",
        partial=[f"line {n}" for n in range(9)],
        artefacts=[Artefact("c_1", "/out/c_1")],
        unresolved_effects=[OpenEffect("c_7", "mail", "r_1", 0, "KEY", 1)],
    )
    lines = command("run", "wait", "r_1")[1].splitlines()
    assert "after 2.0 s of 2.0 s, 12 ms over" in lines[0]
    assert lines[2:] == [
        *(f"found: line {n}" for n in range(4, 9)),
        "left: /out/c_1",
        "unknown: whether c_7 (mail) did its work; look for the key KEY, then: deadlined effects close c_7 --note TEXT",
        "what would help: a larger budget",
    ]


def test_a_suspended_run_says_who_has_to_do_what(fake_run, command):
    waiting = (RunStatus.WAITING_FOR_APPROVAL, RunReason.APPROVAL_REQUIRED)
    fake_run.stop = stop_record(*waiting, approvals=["a_1"], advice="after_a_human", resumable=True)
    assert "waits for a decision: deadlined approve a_1, or reject a_1" in command("run", "step", "r_1")[1].splitlines()


def test_what_a_tool_or_a_model_wrote_steers_no_terminal(fake_run, command):
    fake_run.stop = stop_record(text="no\x1b[2J", answer="\x1b]0;x\x07", partial=["\x9b2J"])
    assert not {"\x1b", "\x07", "\x9b"} & set(command("run", "show", "r_1")[1])
    fake_run.stop, fake_run.refused = None, "red\x1b[2J"
    assert command("run", "finish", "r_1")[1] == "red\x1b[2J\n", "to a pipe it goes as it is, like a call's output"


def test_show_has_the_budgets_and_why_it_stopped(fake_daemon, fake_run, command):
    lines = command("run", "show", "r_1")[1].splitlines()
    assert lines[0] == "r_1 · running · step 3 of 25, decide · 6 m 30 s left"
    assert lines[1] == "goal: mend it"
    assert lines[2] == "profile edit · detectors default · tenant default"
    assert [line.split() for line in lines[3:]] == [
        ["budget", "limit", "used", "reserved", "left", "from"],
        ["steps", "25", "3", "(12", "%)", "0", "22", "profile", "edit"],
        ["tokens_in", "-", "700", "8000", "-", "-"],
    ]
    fake_run.stop = stop_record()
    assert "budget_exhausted (step_budget)" in command("run", "show", "r_1")[1]
    assert json.loads(command("run", "show", "r_1", "--json")[1])["stop"]["reason"] == "step_budget"


def test_show_leaves_out_budgets_without_limit_and_use_and_names_what_fired(fake_daemon, command):
    view = run_view()
    view.budgets = {"retries": DimensionView(None, 0, 0, None), "steps": DimensionView(25, 0, 0, 25)}
    view.notices = [FiredDetector("repeat_call", "warn", 3, "the third time")]
    view.session, view.checks, view.approvals, view.calls_in_flight = "s", ["true"], ["a_1"], 2
    fake_daemon.on[cm.ShowRun] = lambda m: [cm.RunState(m.id, view)]
    out = command("run", "show", "r_1")[1]
    assert "retries" not in out
    for line in (
        "profile edit · detectors default · tenant default · session s",
        "check: true",
        "calls in flight: 2",
        "waits for a decision: a_1",
        "notice (repeat_call, warn): the third time",
    ):
        assert line in out.splitlines()


def test_list_shows_runs_newest_first_as_told(fake_daemon, command):
    rows = [
        RunRow("r_2", RunStatus.STUCK, RunReason.REPEAT_CALL, "edit", "mend", 4, 3, 0, 1),
        RunRow("r_1", RunStatus.RUNNING, None, "default", "", 1, 0, 90_000, 1),
    ]
    fake_daemon.on[cm.ListRuns] = lambda m: [cm.Runs(m.id, rows if m.all else rows[1:])]
    lines = [line.split() for line in command("run", "list", "--all")[1].splitlines()]
    assert lines[1:] == [
        ["r_2", "stuck", "(repeat_call)", "edit", "4", "3", "0", "ms", "mend"],
        ["r_1", "running", "default", "1", "0", "1", "m", "30", "s", "-"],
    ]
    assert len(json.loads(command("run", "list", "--json")[1])["runs"]) == 1


def test_events_of_a_run_are_one_a_line(fake_daemon, fake_run, command):
    events = [
        Event(4, 0, "step_begun", None, "r_1", 0, {"step": 1, "run_seq": 2}, ""),
        Event(9, 0, "run_settled", None, "r_1", 0, {}, ""),
    ]
    fake_daemon.on[cm.ReadEvents] = lambda m: [cm.Events(m.id, [e for e in events if e.seq > m.after], 9)]
    out = command("run", "events", "r_1", "--follow", "--after", "3")[1].splitlines()
    assert [line.split()[0] for line in out] == ["4", "9"]
    assert out[0].endswith("r_1  step=1 run_seq=2")
    assert heard(fake_daemon, cm.ReadEvents)[0].run == "r_1"
    assert json.loads(command("run", "events", "r_1", "--json")[1].splitlines()[0])["seq"] == 4


def test_a_call_in_a_run_names_it(fake_daemon, command):
    assert command("call", "t", "--run", "r_1")[0] == 0
    assert heard(fake_daemon, cm.Submit)[0].run == "r_1"


def test_kill_ends_a_run_by_its_id(fake_daemon, fake_run, command):
    code, out, _ = command("kill", "r_1")
    assert (code, out.split()[:2]) == (0, ["cancelled", "(client)"])
    assert len(heard(fake_daemon, cm.CancelRun)) == 1


@pytest.mark.parametrize("words", [("show",), ("step",), ("wait",), ("cancel",), ("finish",), ("events",)])
def test_an_unknown_run_is_exit_3_in_one_line(fake_daemon, command, words):
    unknown = ErrorInfo(ErrorClass.ARGUMENT, "unknown_run", "no run r_9 is known")
    for kind in (cm.ShowRun, cm.StepRun, cm.WaitRun, cm.CancelRun, cm.FinishRun):
        fake_daemon.on[kind] = lambda m: [cm.Failed(m.id, unknown)]
    fake_daemon.on[cm.ReadEvents] = lambda m: [cm.Events(m.id, [], 7)]
    assert command("run", *words, "r_9") == (3, "", "deadlined: no run r_9 is known [unknown_run]\n")
