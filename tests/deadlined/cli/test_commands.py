"""Each client command against a scripted daemon: what is printed, and how it exits."""

import base64
import json
import os
import signal
import threading
import time

import pytest

from deadlined.cli.app import main
from deadlined.cli.call import call_command
from protocol import _client_messages as cm
from protocol._contracts import Contract, ToolDescription
from protocol._outcomes import (
    CallResult,
    ErrorClass,
    ErrorInfo,
    Exit,
    KillReceipt,
    Notice,
    OutputInfo,
    Reason,
    Status,
    StreamInfo,
    Timing,
)

KILLED = CallResult(
    call="c_1",
    tool="shell",
    status=Status.KILLED,
    reason=Reason.TIME_BUDGET,
    error=ErrorInfo(ErrorClass.KILLED, "deadline", "killed at its deadline"),
    exit=Exit(signal="SIGKILL"),
    timing=Timing(duration_ms=2001, deadline_ms=2000, overrun_ms=1),
    output=OutputInfo(bytes=3, view="hi\x1b[31m"),
    kill=KillReceipt(["pidns"], 3, 0.4, 1.9, True),
    notices=[Notice("left_processes", "warn", "2 processes were left")],
)


def _settles(fake_daemon, result):
    fake_daemon.on[cm.Submit] = lambda m: [cm.Submitted(m.id, result.call, 2000), cm.Settled(m.id, result)]


@pytest.mark.parametrize(
    ("status", "reason", "code"),
    [
        (Status.OK, None, 0),
        (Status.ERROR, None, 1),
        (Status.KILLED, Reason.OUTPUT_LIMIT, 1),
        (Status.KILLED, Reason.TIME_BUDGET, 124),
        (Status.NOT_EXECUTED, Reason.TIME_BUDGET, 124),
        (Status.NOT_EXECUTED, Reason.INVALID_ARGUMENTS, 3),
        (Status.CANCELLED, Reason.OPERATOR, 5),
        (Status.CRASHED, Reason.WORKER_LOST, 1),
    ],
)
def test_call_exits_as_the_call_ended(fake_daemon, command, status, reason, code):
    _settles(fake_daemon, CallResult("c_1", "t", status, reason=reason))
    assert command("call", "t")[0] == code


def test_a_person_sees_the_output_and_then_the_receipt(fake_daemon, command):
    _settles(fake_daemon, KILLED)
    _, out, err = command("call", "shell")
    assert out == "hi\x1b[31m\n"
    assert err.splitlines() == [
        "deadline: killed at its deadline",
        "notice (left_processes): 2 processes were left",
        "killed (time_budget) after 2.0 s · SIGKILL · 3 processes killed 0.4 ms after it was due, "
        "all gone after 1.9 ms · c_1",
    ]


def test_json_is_the_whole_result_as_one_object(fake_daemon, command):
    _settles(fake_daemon, KILLED)
    code, out, err = command("call", "shell", "--json")
    assert (code, err) == (124, "")
    result = json.loads(out)
    assert result["status"] == "killed"
    assert result["error"]["class"] == "killed"
    assert result["kill"]["confirmed"]


def test_content_is_printed_text_as_text_and_the_rest_as_json(fake_daemon, command):
    _settles(fake_daemon, CallResult("c_1", "t", Status.OK, content="text"))
    assert command("call", "t")[1] == "text\n"
    _settles(fake_daemon, CallResult("c_1", "t", Status.OK, content={"a": [1]}))
    assert json.loads(command("call", "t")[1]) == {"a": [1]}


def test_arguments_come_from_the_line_a_file_or_stdin(fake_daemon, command, tmp_path, monkeypatch):
    text = '{"x" : "é"}'
    (tmp_path / "a.json").write_text(text)
    read, write = os.pipe()
    os.write(write, text.encode())
    os.close(write)
    with os.fdopen(read) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        for given in (text, f"@{tmp_path}/a.json", "-"):
            assert command("call", "t", given)[0] == 0
    submits = [m for m in fake_daemon.heard if isinstance(m, cm.Submit)]
    assert [m.arguments for m in submits] == [text] * 3


def test_options_reach_the_daemon(fake_daemon, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command("call", "t", "--deadline", "1.5s", "--cwd", ".", "--key", "k", "--split-streams")
    submit = fake_daemon.heard[-1]
    assert (submit.deadline_ms, submit.cwd, submit.key, submit.split_streams) == (1500, str(tmp_path), "k", True)


def test_bad_json_is_the_daemons_to_judge(fake_daemon, command):
    command("call", "t", "{bad")
    assert fake_daemon.heard[-1].arguments == "{bad"


def test_detach_prints_the_id_alone(fake_daemon, command):
    assert command("call", "hang", "--detach") == (0, "c_1\n", "")
    assert json.loads(command("call", "hang", "--detach", "--json")[1]) == {"call": "c_2", "deadline_ms": 5000}


def test_a_detached_call_that_was_refused_shows_its_result(fake_daemon, command):
    refused = CallResult("c_1", "t", Status.NOT_EXECUTED, reason=Reason.UNKNOWN_TOOL)
    fake_daemon.on[cm.Submit] = lambda m: [cm.Settled(m.id, refused)]
    code, out, err = command("call", "t", "--detach")
    assert (code, out) == (3, "")
    assert "unknown_tool" in err


def test_ctrl_c_cancels_the_call_and_exits_5_after_its_end(fake_daemon, command):
    def interrupt():
        while not any(isinstance(m, cm.Submit) for m in fake_daemon.heard):
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    threading.Thread(target=interrupt).start()
    code, _, err = command("call", "hang")
    assert code == 5
    assert "cancelled (client)" in err
    assert signal.getsignal(signal.SIGINT) is before


def test_wait_and_result_exit_as_the_call_did(fake_daemon, command):
    fake_daemon.on[cm.Wait] = lambda m: [cm.Settled(m.id, KILLED)]
    assert command("wait", "c_1")[0] == 124
    assert command("result", "c_1")[0] == 124


def test_a_result_that_is_not_there_yet_is_exit_75(fake_daemon, command):
    fake_daemon.on[cm.Wait] = lambda m: [cm.Pending(m.id, m.call, 1500)]
    assert command("result", "c_1") == (75, "", "not settled yet, 1.5 s left\n")
    assert json.loads(command("result", "c_1", "--json")[1]) == {"call": "c_1", "settled": False, "remaining_ms": 1500}


def test_output_is_every_byte_as_it_was_written(fake_daemon, capfdbinary):
    data = bytes(range(256))
    fake_daemon.on[cm.ReadOutput] = lambda m: [
        cm.OutputChunk(m.id, m.call, m.offset, data[m.offset : m.offset + 100], True)
    ]
    assert main(["output", "c_1", "--socket", fake_daemon.path]) == 0
    assert capfdbinary.readouterr().out == data


def test_output_as_json_is_one_object_a_chunk(fake_daemon, command):
    fake_daemon.on[cm.ReadOutput] = lambda m: [
        cm.OutputChunk(m.id, m.call, m.offset, b"abc"[m.offset : m.offset + 2], True)
    ]
    lines = [json.loads(line) for line in command("output", "c_1", "--json")[1].splitlines()]
    assert [(line["offset"], base64.b64decode(line["data"])) for line in lines] == [(0, b"ab"), (2, b"c")]


def test_output_asks_for_the_stream(fake_daemon, command):
    fake_daemon.on[cm.ReadOutput] = lambda m: [cm.OutputChunk(m.id, m.call, 0, b"", True)]
    assert command("output", "c_1", "--stream", "stderr")[0] == 0
    assert fake_daemon.heard[-1].stream == "stderr"


def test_output_of_a_call_with_two_streams_says_which_to_ask_for(fake_daemon, command):
    split = CallResult(
        "c_1", "t", Status.OK, output=OutputInfo(streams={"stdout": StreamInfo(1), "stderr": StreamInfo()})
    )
    fake_daemon.on[cm.ReadOutput] = lambda m: [cm.OutputChunk(m.id, m.call, 0, b"", True)]
    fake_daemon.on[cm.Wait] = lambda m: [cm.Settled(m.id, split)]
    code, _, err = command("output", "c_1")
    assert code == 2
    assert "--stream stdout" in err


def _status(degraded):
    return lambda m: [cm.DaemonStatus(m.id, 7, "0.1", "pidns", ["as root"], 61000, degraded, 3, 2, 1, 0, 5, 4, 0, 4)]


def test_status_exits_0_when_healthy_and_1_when_degraded(fake_daemon, command):
    fake_daemon.on[cm.AskStatus] = _status([])
    code, out, _ = command("status")
    assert code == 0
    assert out.startswith("healthy · version 0.1 · pid 7 · up 1 m 01 s\ncontainment pidns\n  as root\n")
    fake_daemon.on[cm.AskStatus] = _status(["the killer was restarted"])
    code, out, _ = command("status")
    assert code == 1
    assert "degraded: the killer was restarted" in out
    code, out, _ = command("status", "--json")
    assert (code, json.loads(out)["healthy"], json.loads(out)["pid"]) == (1, False, 7)


TOOL = ToolDescription("shell\x1b[2J", "Run a command.\nMore.", Contract(kind="command"), {"type": "object"})


def test_tools_lists_and_tells_one(fake_daemon, command):
    fake_daemon.on[cm.ListTools] = lambda m: [cm.Tools(m.id, [TOOL] if m.name != "none" else [])]
    out = command("tools")[1]
    assert "shell" in out
    assert "\x1b" not in out
    assert "write, 10.0 s" in out
    assert "arguments\n{" in command("tools", "shell")[1]
    assert json.loads(command("tools", "--json")[1])["tools"][0]["contract"]["kind"] == "command"
    assert json.loads(command("tools", "shell", "--json")[1])["schema"] == {"type": "object"}
    assert command("tools", "none")[0] == 2


def test_ps_shows_workers_and_the_queue(fake_daemon, command):
    rows = [
        cm.ProcessRow(1, 42, "busy", "c_1", "shell", 1500, 3, 9 << 20, 12, slot=5),
        cm.ProcessRow(None, None, "queued", "c_2", "[bold]x[/bold]", 100),
        cm.ProcessRow(2, 43, "quarantined", "c_3", "shell", 0, slot=6),
    ]
    fake_daemon.on[cm.ListProcesses] = lambda m: [cm.Processes(m.id, rows)]
    lines = command("ps")[1].splitlines()
    assert lines[1].split() == ["1", "5", "42", "busy", "c_1", "shell", "1.5", "s", "3", "9.0", "MiB", "12", "ms"]
    assert lines[2].split() == ["-", "-", "-", "queued", "c_2", "[bold]x[/bold]", "100", "ms", "-", "-", "-"]
    assert lines[3].split()[:9] == ["2", "6", "43", "quarantined", "c_3", "shell", "until", "dead", "-"]
    assert json.loads(command("ps", "--json")[1])["rows"][0]["rss_bytes"] == 9 << 20


def test_kill_says_so_when_the_call_is_gone(fake_daemon, command):
    gone = CallResult(
        "c_1", "t", Status.CANCELLED, reason=Reason.OPERATOR, kill=KillReceipt(["pidns"], 2, 0.1, 1.0, True)
    )
    fake_daemon.on[cm.Cancel] = lambda m: [cm.CancelAccepted(m.id, m.call, True)]
    fake_daemon.on[cm.Wait] = lambda m: [cm.Settled(m.id, gone)]
    code, out, _ = command("kill", "c_1")
    assert code == 0
    assert "2 processes killed 0.1 ms after it was due, all gone after 1 ms" in out


def test_kill_of_a_call_that_waits_for_a_person_says_what_becomes_of_the_question(fake_daemon, command):
    waits = CallResult("c_1", "t", Status.WAITING_FOR_APPROVAL, reason=Reason.APPROVAL_REQUIRED, approval="a_1")
    fake_daemon.on[cm.Cancel] = lambda m: [cm.CancelAccepted(m.id, "c_1", False)]
    fake_daemon.on[cm.Wait] = lambda m: [cm.Settled(m.id, waits)]
    code, out, _ = command("kill", "c_1")
    assert (code, "; a_1 is void now, unless it was decided before" in out) == (0, True)


def test_kill_exits_1_when_the_end_is_not_confirmed(fake_daemon, command):
    gone = CallResult(
        "c_1", "t", Status.CANCELLED, reason=Reason.OPERATOR, kill=KillReceipt(["pidns"], 2, 0.1, None, False)
    )
    fake_daemon.on[cm.Cancel] = lambda m: [cm.CancelAccepted(m.id, m.call, False)]
    fake_daemon.on[cm.Wait] = lambda m: [cm.Settled(m.id, gone)]
    code, out, _ = command("kill", "c_1")
    assert code == 1
    assert out.startswith("had settled already: ")
    assert "END NOT CONFIRMED" in out


def test_config_show_says_where_each_value_comes_from(fake_daemon, command):
    config = cm.EffectiveConfig(0, {"daemon": {"queue": 256}}, {"daemon.queue": "/etc/d.toml"})
    fake_daemon.on[cm.AskConfig] = lambda m: [cm.EffectiveConfig(m.id, config.values, config.sources)]
    assert command("config", "show")[1].splitlines()[1].split() == ["daemon.queue", "256", "/etc/d.toml"]
    assert json.loads(command("config", "show", "--json")[1])["sources"] == config.sources


def test_a_directory_that_may_be_entered_and_not_listed_is_a_place_to_run_in(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda _path, mode: mode != os.R_OK)
    (cwd,) = [option for option in call_command.params if option.name == "cwd"]
    assert cwd.type.convert(str(tmp_path), cwd, None) == str(tmp_path)
