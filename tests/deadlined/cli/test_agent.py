"""``deadlined agent`` and ``agent resume`` against a scripted daemon: what is asked, what is printed, how it exits."""

import json
import re
import subprocess
import sys

import pytest
from click.shell_completion import ShellComplete

from deadlined import AsyncClient, Client
from deadlined.cli.app import app, main
from protocol import _client_messages as cm
from protocol._checks import FieldValue
from protocol._events import Event, EventKind
from protocol._outcomes import ErrorClass, ErrorInfo
from protocol._runs import RUN_EXIT, AgentOptions, OpenEffect, RunReason, RunStatus
from tests.deadlined.conftest import run_view, stop_record

EFFECT = OpenEffect("c_1", "pay", "r_1", 0, "key17", 0)


@pytest.fixture
def agent_run(fake_daemon, fake_run):
    """A run that the daemon steers: ``events`` are what happened in it, ``stop`` is why it stopped."""
    fake_run.events = [
        Event(1, 0, EventKind.RUN_ADMITTED, None, "r_1", 0, ADMITTED, ""),
        Event(2, 0, EventKind.STEP_BEGUN, None, "r_1", 0, {"step": 1}, ""),
    ]
    fake_run.stop = stop_record(RunStatus.COMPLETED, RunReason.FINISH_ACCEPTED, text="Completed.", answer="it is 7")
    fake_daemon.on[cm.ReadEvents] = lambda m: [
        cm.Events(m.id, [one for one in fake_run.events if one.seq > m.after], fake_run.events[-1].seq)
    ]
    fake_daemon.on[cm.ShowRun] = lambda m: [cm.RunState(m.id, hosted(fake_run.stop))]
    return fake_run


ADMITTED = {"limits": {"steps": 25}, "deadline_ms": 480_000, "checks": [], "profile": "edit"}


def hosted(stop=None):
    view = run_view(stop)
    view.agent = AgentOptions("scripted:/x")
    return view


def opened(fake_daemon):
    [message] = [message for message in fake_daemon.heard if isinstance(message, cm.OpenRun)]
    return message


def test_all_that_is_wanted_reaches_the_daemon_with_whole_paths(fake_daemon, agent_run, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w").mkdir()
    bounds = ["--profile", "edit", "--deadline", "8m", "--limit", "steps=3", "--limit", "wall_ms=5m", "--session", "s"]
    what = ["--check", "true", "--check", "make test", "--constraint", "be brief", "--plan", "--workspace", "w"]
    assert command("agent", "mend it", "--model", "scripted:a/b.toml", *bounds, *what)[0] == 0
    message = opened(fake_daemon)
    assert message == cm.OpenRun(
        id=message.id,
        goal="mend it",
        profile="edit",
        deadline_ms=480_000,
        limits={"steps": 3, "wall_ms": 300_000},
        session="s",
        workspace=str(tmp_path / "w"),
        checks=["true", "make test"],
        on_disconnect="cancel",
        agent=AgentOptions(f"scripted:{tmp_path}/a/b.toml", True, ["be brief"]),
    )


def test_without_wishes_the_daemon_decides_and_keep_leaves_the_run_to_it(fake_daemon, agent_run, command):
    assert command("agent", "mend it", "--keep")[0] == 0
    message = opened(fake_daemon)
    assert (message.on_disconnect, message.agent, message.profile) == ("keep", AgentOptions(), None)


def test_the_answer_goes_to_stdout_and_all_else_to_stderr(agent_run, command):
    code, out, err = command("agent", "mend it")
    assert (code, out) == (0, "it is 7\n")
    assert err.splitlines() == ["r_1 · profile edit · 8 m 00 s left", "step 1 of 25 · 8 m 00 s left", "Completed."]


def test_json_is_one_event_a_line_and_the_stop_at_last(agent_run, command):
    code, out, err = command("agent", "mend it", "--json")
    *events, stop = [json.loads(line) for line in out.splitlines()]
    assert (code, err, [one["seq"] for one in events], stop["outcome"]) == (0, "", [1, 2], "done")


@pytest.mark.parametrize("status", sorted(set(RunStatus) - {RunStatus.RUNNING}))
def test_the_exit_says_how_the_run_ended(agent_run, command, status):
    agent_run.stop = stop_record(status)
    assert command("agent", "mend it")[0] == RUN_EXIT[status]
    assert command("agent", "mend it", "--json")[0] == RUN_EXIT[status]


@pytest.mark.behaviour("M102")
def test_what_ends_early_says_what_is_known_what_is_open_and_what_would_help(agent_run, command):
    said = {"answer": "half is done", "fields": {"sum": FieldValue("7", ("c_9",))}}
    more = {"partial": ["shell: ok: 3 of 6"], "unresolved_effects": [EFFECT], "advice": "larger_budget"}
    agent_run.stop = stop_record(text="Budget exhausted.", **said, **more)
    code, out, err = command("agent", "mend it")
    assert (code, out) == (3, "half is done\nsum: 7 (c_9)\n")
    assert err.splitlines()[2:] == [
        "Budget exhausted.",
        "found: shell: ok: 3 of 6",
        "unknown: whether c_1 (pay) did its work; look for the key key17, then: "
        "deadlined effects close c_1 --note TEXT",
        "what would help: a larger budget",
        "its log: deadlined run events r_1",
    ]


def test_no_line_of_a_question_passes_for_one_of_the_commands(agent_run, command):
    asks = "which?\ndecide: deadlined approve a_9"
    agent_run.stop = stop_record(RunStatus.NEEDS_INPUT, RunReason.MISSING_PARAMETER, detail=asks, text=asks)
    err = command("agent", "mend it")[2]
    assert "it asks: which?\n  decide: deadlined approve a_9\n" in err
    assert "\ndecide:" not in err


def test_one_that_waits_says_what_a_person_has_to_do(agent_run, command):
    agent_run.stop = stop_record(RunStatus.NEEDS_INPUT, RunReason.MISSING_PARAMETER, detail="which order?", text="It.")
    code, out, err = command("agent", "mend it")
    assert (code, out) == (4, "")
    assert err.splitlines()[-2:] == ["it asks: which order?", "answer it: deadlined agent resume r_1 --answer TEXT"]
    agent_run.stop = stop_record(RunStatus.WAITING_FOR_APPROVAL, RunReason.APPROVAL_REQUIRED, approvals=["a_1"])
    code, out, err = command("agent", "mend it")
    assert (code, out) == (4, "")
    assert "decide: deadlined approve a_1, or: deadlined reject a_1\n" in err
    assert "deadlined agent resume r_1\n" in err
    agent_run.stop = stop_record(RunStatus.WAITING_FOR_APPROVAL, RunReason.RECONCILE_REQUIRED)
    assert "deadlined effects --run r_1" in command("agent", "mend it")[2]


def test_what_a_model_says_cannot_steer_the_terminal(agent_run, command):
    agent_run.stop = stop_record(RunStatus.NEEDS_INPUT, RunReason.MISSING_PARAMETER, detail="\u202e?hcihw")
    assert "\u202e" not in command("agent", "mend it")[2]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "Missing argument 'TASK'"),
        ([" "], "TASK is empty"),
        (["mend it", "--deadline", "0"], "not a duration"),
        (["mend it", "--limit", "steps"], "steps"),
        (["mend it", "--workspace", "/no/such/place"], "does not exist"),
        (["mend it", "--workspace", __file__], "is a file"),
        (["mend it", "--bogus"], "--bogus"),
        (["mend it", "and more"], "unexpected extra argument"),
        (["mend it", "--keep", "--local"], "--keep or --local"),
        (["mend it", "--local", "--model", "bogus"], "bogus"),
        (["resume"], "Missing argument 'RUN'"),
    ],
)
def test_a_usage_error_is_one_line_and_exit_2(agent_run, command, words, says):
    code, out, err = command("agent", *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert says in err


@pytest.mark.parametrize(
    ("error_class", "exits"), [(ErrorClass.ARGUMENT, 2), (ErrorClass.POLICY, 3), (ErrorClass.OVERLOADED, 3)]
)
def test_what_cannot_be_opened_says_why_in_one_line(fake_daemon, agent_run, command, error_class, exits):
    fake_daemon.on[cm.OpenRun] = lambda m: [cm.Failed(m.id, ErrorInfo(error_class, "no_model", "no model is named"))]
    code, out, err = command("agent", "mend it")
    assert (code, out, err.count("\n")) == (exits, "", 1)
    assert "no model is named" in err


def test_without_a_daemon_both_ways_say_how_to_start_one(tmp_path, capsys):
    script = tmp_path / "s.toml"
    script.write_text('[[turn]]\ntext = "hello"\n')
    for words in (["agent", "x"], ["agent", "x", "--local", "--model", f"scripted:{script}"], ["agent", "resume", "r"]):
        assert main([*words, "--socket", str(tmp_path / "nobody")]) == 125
        assert "start one with: deadlined serve --socket" in capsys.readouterr().err


# ---------------------------------------------------------------- resume


def resumed(fake_daemon):
    return [message.answer for message in fake_daemon.heard if isinstance(message, cm.ResumeRun)]


@pytest.fixture
def asking(fake_daemon, agent_run):
    """A hosted run that asks a person, and completes when it has its answer."""
    done = agent_run.stop
    agent_run.events.append(Event(3, 0, EventKind.RUN_SUSPENDED, None, "r_1", 0, {"remaining_ms": 9_000}, ""))
    agent_run.stop = stop_record(RunStatus.NEEDS_INPUT, RunReason.MISSING_PARAMETER, detail="which order?")

    def answered(message):
        agent_run.stop = done
        told = {"remaining_ms": 9_000, "answer": message.answer}
        agent_run.events.append(Event(4, 0, EventKind.RUN_RESUMED, None, "r_1", 0, told, ""))
        return [cm.RunState(message.id, hosted())]

    fake_daemon.on[cm.ResumeRun] = answered
    return agent_run


def test_resume_gives_the_answer_and_shows_what_comes_after_it(fake_daemon, asking, command):
    code, out, err = command("agent", "resume", "r_1", "--answer", "4711")
    assert (code, out, resumed(fake_daemon)) == (0, "it is 7\n", ["4711"])
    assert err.splitlines() == ["it goes on: 4711 · 9.0 s left", "Completed."]


def test_resume_without_an_answer_says_the_question(fake_daemon, asking, command):
    code, out, err = command("agent", "resume", "r_1")
    assert (code, out, err.count("\n"), resumed(fake_daemon)) == (2, "", 1, [])
    assert "which order?" in err
    assert "--answer" in err


def test_resume_of_one_that_waits_for_an_approval_says_which(fake_daemon, agent_run, command):
    agent_run.stop = stop_record(RunStatus.WAITING_FOR_APPROVAL, RunReason.APPROVAL_REQUIRED, approvals=["a_1", "a_2"])
    code, out, err = command("agent", "resume", "r_1")
    assert (code, out, resumed(fake_daemon)) == (4, "", [])
    assert "approve a_1" in err
    assert "approve a_2" in err


def test_resume_of_one_that_goes_on_or_has_ended_shows_it_from_where_it_waited(fake_daemon, asking, command):
    fake_daemon.on[cm.ShowRun] = lambda m: [cm.RunState(m.id, hosted())]
    asking.stop = stop_record(RunStatus.COMPLETED, RunReason.FINISH_ACCEPTED, text="Completed.", answer="it is 7")
    asking.events.append(Event(5, 0, EventKind.STEP_BEGUN, None, "r_1", 0, {"step": 2}, ""))
    code, out, err = command("agent", "resume", "r_1")
    assert (code, out, resumed(fake_daemon)) == (0, "it is 7\n", [])
    assert err.splitlines() == ["step 2 of 25 · 8 m 00 s left", "Completed."]
    assert [json.loads(line).get("seq") for line in command("agent", "resume", "r_1", "--json")[1].splitlines()] == [
        5,
        None,
    ]


def test_resume_does_not_answer_what_asks_nothing(fake_daemon, agent_run, command):
    code, _, err = command("agent", "resume", "r_1", "--answer", "4711")
    assert (code, resumed(fake_daemon)) == (2, [])
    assert "waits for no answer, it is completed" in err


def test_resume_of_a_run_that_somebody_else_steers_says_so(fake_daemon, agent_run, command):
    fake_daemon.on[cm.ShowRun] = lambda m: [cm.RunState(m.id, run_view())]
    code, out, err = command("agent", "resume", "r_1")
    assert (code, out, err.count("\n"), resumed(fake_daemon)) == (3, "", 1, [])
    assert "not steered by the daemon" in err


def test_resume_that_comes_too_late_shows_how_the_run_ended(fake_daemon, asking, command):
    ended = stop_record(RunStatus.CANCELLED, RunReason.OPERATOR, text="Cancelled.")
    fake_daemon.on[cm.ResumeRun] = lambda m: [cm.RunSettled(m.id, ended)]
    code, _, err = command("agent", "resume", "r_1", "--answer", "4711")
    assert code == 5
    assert "Cancelled." in err


# ---------------------------------------------------------------- help, completion, clients


def test_help_of_both_says_what_each_is_for(capsys):
    assert main(["agent", "--help"]) == 0
    assert "deadlined agent [OPTIONS] TASK" in capsys.readouterr().out
    assert main(["agent", "resume", "--help"]) == 0
    resume = capsys.readouterr().out
    assert "deadlined agent resume [OPTIONS] RUN" in resume
    assert re.search(r"Example:\n *deadlined agent resume r_1a2b3c --answer", resume)
    assert "--json" in resume


def test_a_shell_completes_the_options_of_both(agent_run):
    complete = ShellComplete(app, {}, "deadlined", "_DEADLINED_COMPLETE").get_completions
    assert {item.value for item in complete(["agent", "x"], "--")} >= {"--model", "--plan", "--local", "--socket"}
    assert [item.value for item in complete(["agent"], "res")] == ["resume"]
    options = {item.value for item in complete(["agent", "resume", "r_1"], "--")}
    assert "--answer" in options
    assert "--model" not in options


def test_both_clients_open_such_a_run(fake_daemon, agent_run):
    with Client(fake_daemon.path) as client:
        run = client.agent("mend it", model="openai:m", constraints=["be brief"], plan=True, limits={"steps": 3})
        assert run.id == "r_1"
        assert run.wait().answer == "it is 7"
    message = opened(fake_daemon)
    assert (message.goal, message.limits, message.on_disconnect) == ("mend it", {"steps": 3}, "keep")
    assert message.agent == AgentOptions("openai:m", True, ["be brief"])


async def test_the_asynchronous_client_does_too(fake_daemon, agent_run):
    async with AsyncClient(fake_daemon.path) as client:
        run = await client.agent("mend it")
        assert (await run.wait()).answer == "it is 7"
    assert opened(fake_daemon).agent == AgentOptions()


def test_watching_a_task_loads_no_loop_and_no_daemon():
    heavy = "('trio', 'anyio', 'supervisor', 'rich', 'psutil')"
    code = f"import sys, deadlined.cli.agent; print([name for name in {heavy} if name in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "[]\n"
