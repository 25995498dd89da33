"""The command line as a person or a program starts it, against a real daemon."""

import json
import os
import pty
import signal
import subprocess
import sys
import time

import pytest

from deadlined import Client

pytestmark = pytest.mark.contract
MARK = "DEADLINED_TEST_MARK"


@pytest.fixture
def sleeping(tmp_path, mark):
    """Arguments of a marked ``sleep``, in a file: on the command line the mark would also be that of the client."""
    (tmp_path / "sleeping.json").write_text(json.dumps({"argv": ["sleep", "1000"], "env": {MARK: mark}}))
    return f"@{tmp_path}/sleeping.json"


def _argv(*argv):
    return json.dumps({"argv": argv})


def test_call_prints_the_output_and_exits_0(deadlined):
    done = deadlined("call", "shell", _argv("echo", "hi"))
    assert (done.returncode, done.stdout) == (0, "hi\n")
    assert done.stderr.startswith("ok after ")


def test_call_at_the_deadline_exits_124_and_leaves_nothing(deadlined, mark, nothing_left, sleeping):
    done = deadlined("call", "shell", sleeping, "--deadline", "500ms", "--json")
    nothing_left(mark)
    result = json.loads(done.stdout)
    assert (done.returncode, result["status"], result["reason"]) == (124, "killed", "time_budget")
    assert result["kill"]["confirmed"]


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (["shell", _argv("false")], 1, None),
        (["shell", "{bad"], 3, "invalid_arguments"),
        (["shell", '{"argv": ["true"], "argv": ["false"]}'], 3, "invalid_arguments"),
        (["shell", '{"argv": ["a\\u0000b"]}'], 3, "invalid_arguments"),
        (["shell", '{"argv": ["\\ud800"]}'], 3, "invalid_arguments"),
        (["shell", '{"argv": [18446744073709551616]}'], 3, "invalid_arguments"),
        (["shell", "[]"], 3, "invalid_arguments"),
        (["shell", _argv("true", "x" * 200 * 1024)], 3, "invalid_arguments"),
        (["shell", _argv()], 3, "invalid_arguments"),
        (["shell", '{"argv": ["true"], "bogus": 1}'], 3, "invalid_arguments"),
        (["no_such_tool"], 3, "unknown_tool"),
        (["shell", _argv("true"), "--deadline", "2h"], 3, "invalid_arguments"),
        (["shell", _argv("true"), "--cwd", "/no/such/directory"], 3, "invalid_arguments"),
        (["shell", _argv("no-such-program-anywhere")], 1, None),
        (["shell", _argv("/etc/passwd")], 1, None),
    ],
    ids=lambda value: str(value)[:50],
)
def test_bad_input_is_one_clear_result_and_harms_nobody(standing_daemon, deadlined, tmp_path, words, code, reason):
    if len(words) > 1 and len(words[1]) > 100_000:  # the kernel allows no such word on a command line
        (tmp_path / "arguments").write_text(words[1])
        words = [words[0], f"@{tmp_path}/arguments", *words[2:]]
    done = deadlined("call", *words, "--json")
    assert done.stderr == ""
    result = json.loads(done.stdout)
    assert (done.returncode, result["reason"]) == (code, reason)
    assert result["error"]["message"]
    with Client(standing_daemon.socket) as client:
        assert client.call("shell", {"argv": ["true"]}).status == "ok"


def test_a_call_runs_where_it_is_told(deadlined, tmp_path):
    done = deadlined("call", "shell", _argv("pwd"), "--cwd", ".", cwd=tmp_path)
    assert done.stdout == f"{tmp_path}\n"


def test_ctrl_c_ends_the_call_and_exits_5(deadlined, mark, somebody_alive, nothing_left, sleeping):
    with deadlined.start("call", "shell", sleeping) as child:
        somebody_alive(mark)
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=30)
    nothing_left(mark)
    assert child.returncode == 5
    assert "cancelled (client)" in err


def test_ctrl_c_ends_a_wait_and_not_the_call(deadlined, sleeping):
    call = deadlined("call", "shell", sleeping, "--detach", "--deadline", "60s").stdout.strip()
    ours, theirs = pty.openpty()
    with deadlined.start("wait", call, stderr=theirs) as child:
        os.close(theirs)
        shown = b""
        while b" left" not in shown:
            shown += os.read(ours, 4096)
        child.send_signal(signal.SIGINT)
        shown += _read_to_end(ours)
    assert child.returncode == 130
    assert b"Traceback" not in shown
    assert deadlined("result", call).returncode == 75
    assert deadlined("kill", call).returncode == 0


def test_a_killed_command_line_takes_its_call_with_it(deadlined, mark, somebody_alive, nothing_left, sleeping):
    with deadlined.start("call", "shell", sleeping) as child:
        somebody_alive(mark)
        child.kill()
    nothing_left(mark, 5)


def test_a_daemon_killed_mid_call_is_exit_125(daemon, deadlined_alone, mark, somebody_alive, nothing_left, sleeping):
    daemon.expected_exit = None
    with deadlined_alone.start("call", "shell", sleeping) as child:
        somebody_alive(mark)
        os.kill(daemon.pid, signal.SIGKILL)
        out, err = child.communicate(timeout=30)
    nothing_left(mark, 2)
    assert (child.returncode, out) == (125, "")
    assert "connection" in err
    assert "Traceback" not in err
    done = deadlined_alone("status")
    assert done.returncode == 125
    assert "start one with: deadlined serve" in done.stderr


def test_a_detached_call_is_waited_for_followed_and_shown(deadlined):
    call = deadlined("call", "shell", _argv("sh", "-c", "echo 1; sleep 1; echo 2"), "--detach").stdout.strip()
    assert deadlined("result", call).returncode == 75
    followed = deadlined("output", call, "--follow")
    assert (followed.returncode, followed.stdout) == (0, "1\n2\n")
    waited, shown = deadlined("wait", call, "--json"), deadlined("result", call, "--json")
    assert waited.returncode == shown.returncode == 0
    assert json.loads(waited.stdout) == json.loads(shown.stdout)
    assert deadlined("output", call).stdout == "1\n2\n"


def test_raw_output_is_every_byte(deadlined):
    call = deadlined("call", "shell", _argv("head", "-c", "3000000", "/dev/zero"), "--detach").stdout.strip()
    deadlined("wait", call)
    with deadlined.start("output", call, "--raw", text=False) as child:
        out, _ = child.communicate(timeout=30)
    assert (child.returncode, out) == (0, bytes(3_000_000))


def test_kill_ends_a_call_and_says_so_when_it_is_gone(deadlined, mark, somebody_alive, nothing_left, sleeping):
    call = deadlined("call", "shell", sleeping, "--detach").stdout.strip()
    somebody_alive(mark)
    done = deadlined("kill", call)
    nothing_left(mark)
    assert done.returncode == 0
    assert "all gone after" in done.stdout
    assert deadlined("result", call).returncode == 5
    assert "had settled already" in deadlined("kill", call).stdout


def test_ps_shows_what_runs_and_for_how_much_longer(deadlined, mark, somebody_alive, sleeping):
    call = deadlined("call", "shell", sleeping, "--detach", "--deadline", "60s").stdout.strip()
    somebody_alive(mark)
    done = deadlined("ps")
    assert done.returncode == 0
    assert call in done.stdout
    (row,) = [row for row in json.loads(deadlined("ps", "--json").stdout)["rows"] if row["call"] == call]
    assert 0 < row["remaining_ms"] <= 60_000
    assert deadlined("kill", call).returncode == 0


@pytest.mark.parametrize("words", [["wait"], ["result"], ["output"], ["kill"]], ids=" ".join)
def test_an_unknown_call_is_exit_3(deadlined, words):
    done = deadlined(*words, "c_none")
    assert (done.returncode, done.stdout) == (3, "")
    assert "c_none" in done.stderr


def test_status_is_healthy(deadlined):
    assert deadlined("status").returncode == 0
    assert json.loads(deadlined("status", "--json").stdout)["healthy"]


def test_tools_show_contracts_and_schemas(deadlined):
    assert "shell" in deadlined("tools").stdout
    shell = json.loads(deadlined("tools", "shell", "--json").stdout)
    assert shell["contract"]["kind"] == "command"
    assert "argv" in shell["schema"]["properties"]
    assert deadlined("tools", "no_such_tool").returncode in (2, 3)


def test_config_show_has_values_and_their_origin(deadlined):
    shown = json.loads(deadlined("config", "show", "--json").stdout)
    assert shown["values"]
    assert deadlined("config", "show").returncode == 0


def test_config_check_names_the_bad_key(deadlined, tmp_path):
    good, bad = tmp_path / "good.toml", tmp_path / "bad.toml"
    good.write_text("")
    bad.write_text("[daemon]\nbogus_key = 1\n")
    assert deadlined("config", "check", str(good)).returncode == 0
    done = deadlined("config", "check", str(bad))
    assert done.returncode == 1
    assert "bogus_key" in done.stderr
    assert not json.loads(deadlined("config", "check", str(bad), "--json").stdout)["ok"]
    assert deadlined("config", "check", str(tmp_path / "none.toml")).returncode == 1


def test_serve_says_ready_stops_at_sigterm_and_exits_0(deadlined, tmp_path):
    for words, ready in (((), f"ready {tmp_path}/s\n"), (("--json",), f"{tmp_path}/s")):
        with deadlined.start("serve", "--socket", f"{tmp_path}/s", *words) as child:
            said = child.stdout.readline()
            child.terminate()
            child.wait(30)
        assert child.returncode == 0
        assert (json.loads(said)["ready"] if words else said) == ready
        assert not (tmp_path / "s").exists()


def test_a_second_daemon_on_the_same_socket_exits_75(standing_daemon, deadlined):
    done = deadlined("serve", "--socket", standing_daemon.socket)
    assert (done.returncode, done.stdout) == (75, "")
    assert deadlined("status").returncode == 0


def test_a_stopped_daemon_is_told_from_none(daemon, deadlined_alone):
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        done = deadlined_alone("status")
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
    assert done.returncode == 125
    assert "stopped or overloaded" in done.stderr


def test_a_terminal_is_shown_the_time_that_is_left_and_gets_its_line_back(deadlined, mark, sleeping):
    ours, theirs = pty.openpty()
    with deadlined.start("call", "shell", sleeping, "--deadline", "2500ms", stderr=theirs) as child:
        os.close(theirs)
        shown = _read_to_end(ours)
    assert child.returncode == 124
    assert b"\r\x1b[Kshell: " in shown
    assert b" s left" in shown
    assert shown.rpartition(b"\x1b[K")[2].startswith(b"deadline: ")


def _read_to_end(terminal):
    """What is shown until its other side is closed (which Linux tells by EIO); closes ours."""
    shown = b""
    with os.fdopen(terminal, "rb", buffering=0) as file:
        while True:
            try:
                shown += file.read(4096)
            except OSError:
                return shown


def test_completion_knows_tools_and_calls(deadlined):
    def completed(*words):
        environment = {**deadlined.environment, "_DEADLINED_COMPLETE": "bash_complete"}
        environment |= {"COMP_WORDS": " ".join(["deadlined", *words]), "COMP_CWORD": str(len(words))}
        return subprocess.run(
            [sys.executable, "-m", "deadlined"], env=environment, capture_output=True, text=True
        ).stdout

    assert "plain,shell" in completed("call", "sh")
    assert "plain,status" in completed("sta")


def test_ps_answers_quickly_enough_to_be_typed(deadlined):
    """The bound is loose on purpose (a loaded machine); the figure belongs to the bench. It catches a heavy import."""
    begun = time.monotonic()
    assert deadlined("ps").returncode == 0
    assert time.monotonic() - begun < 5


def test_the_demo_has_no_surprise(python, open_directory):
    environment = {"PATH": os.environ["PATH"], "HOME": str(open_directory), "TMPDIR": str(open_directory)}
    done = subprocess.run(
        [*python, "-m", "deadlined", "demo"], cwd="/", env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "processes left: 0"
    assert list(open_directory.iterdir()) == []


def test_a_terminated_demo_cleans_up(open_directory, nothing_left):
    environment = {**os.environ, "TMPDIR": str(open_directory), MARK: str(open_directory)}
    demo = subprocess.Popen(
        [sys.executable, "-m", "deadlined", "demo"], env=environment, stdout=subprocess.PIPE, text=True
    )
    with demo:
        for line in demo.stdout:
            if line.startswith("grep"):
                break
        demo.terminate()
        demo.communicate(timeout=30)
    assert demo.returncode != 0
    nothing_left(str(open_directory), 5)
    assert list(open_directory.iterdir()) == []
