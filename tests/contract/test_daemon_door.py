"""The socket: who may come in, what nonsense costs, and that nothing a client sends ends the daemon."""

from __future__ import annotations

import json
import os
import socket
import stat
import struct
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from deadlined import Client

pytestmark = pytest.mark.contract


class Raw:
    """A hand-made client that speaks JSON lines."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(20)
        self.socket.connect(path)
        self.file = self.socket.makefile("rb")

    def say(self, **message: Any) -> None:
        self.send(json.dumps(message).encode() + b"\n")

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def hear(self) -> Any:
        line = self.file.readline()
        return json.loads(line) if line else None

    def greet(self) -> Raw:
        self.say(op="hello", version=1)
        assert self.hear()["op"] == "welcome"
        return self

    def close(self) -> None:
        self.file.close()
        self.socket.close()


@pytest.fixture
def raw(standing_daemon) -> Iterator[Raw]:
    client = Raw(standing_daemon.socket)
    yield client
    client.close()


@pytest.fixture(autouse=True)
def daemon_lives_on(standing_daemon) -> Iterator[None]:
    """Whatever a test does at the door, the next client is served."""
    yield
    with Client(standing_daemon.socket) as client:
        assert client.call("shell", {"argv": ["echo", "still here"]}).output.view == "still here\n"


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff" * 64,
        b"\x00\x00\x00\x05\xc1\xc1\xc1\xc1\xc1",
        b"\xff\xff\xff\xff",
        struct.pack(">I", 1 << 20) + b"\x91" * (1 << 20),
        b"{]\n",
        b'{"op": "nonsense"}\n',
        b'{"op": "submit", "id": 1, "tool": "shell"}\n',
        b'{"op": "hello", "version": 1' + b" " * (2 << 20),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=["noise", "no msgpack", "4 GiB", "deep", "cut json", "unknown op", "no hello", "endless line", "http"],
)
def test_garbage_gets_a_reason_and_an_end(raw, garbage):
    raw.send(garbage)
    heard = raw.socket.recv(65_536)
    assert b"protocol_error" in heard
    while raw.socket.recv(65_536):
        pass


def test_a_cut_frame_costs_its_sender_alone(raw, standing_daemon):
    raw.send(struct.pack(">I", 100) + b"\x81")
    raw.close()


def test_an_unknown_version_is_refused_by_name(raw):
    raw.say(op="hello", version=99)
    error = raw.hear()["error"]
    assert error["code"] == "unknown_version"
    assert "99" in error["message"]
    assert raw.hear() is None


@pytest.mark.parametrize("deadline", [0, -1, 1.5, 1e300, 2**64, 3_600_001, "5s", True])
def test_a_deadline_that_is_none_is_refused_and_the_connection_goes_on(raw, deadline):
    raw.greet()
    raw.say(op="submit", id=1, tool="shell", arguments='{"argv": ["true"]}', deadline_ms=deadline)
    result = raw.hear()["result"]
    assert (result["status"], result["reason"]) == ("not_executed", "invalid_arguments")
    assert "deadline_ms" in result["error"]["message"]
    raw.say(op="submit", id=2, tool="shell", arguments='{"argv": ["true"]}', deadline_ms=5_000)
    assert raw.hear()["result"]["status"] == "ok"


def test_a_nan_deadline_in_msgpack_is_refused(standing_daemon):
    client = Raw(standing_daemon.socket)
    for message in (
        {"op": "hello", "version": 1},
        {"op": "submit", "id": 1, "tool": "shell", "arguments": "{}", "deadline_ms": float("nan")},
    ):
        body = msgspec.msgpack.encode(message)
        client.send(struct.pack(">I", len(body)) + body)
    data = b""
    while b"invalid_arguments" not in data:
        piece = client.socket.recv(65_536)
        assert piece, data
        data += piece
    client.close()


@pytest.mark.parametrize(
    ("tool", "arguments", "reason", "says"),
    [
        ("nope", "{}", "unknown_tool", "shell"),
        ("shell", '{"argv": ["true"]', "invalid_arguments", ""),
        ("shell", '{"argv": ["true"], "argv": ["false"]}', "invalid_arguments", "argv"),
        ("shell", '{"argv": "true"}', "invalid_arguments", "argv"),
        ("shell", '{"argv": ["true"], "more": 1}', "invalid_arguments", "more"),
        ("shell", '{"argv": ["a\\u0000b"]}', "invalid_arguments", "NUL"),
        ("shell", '{"argv": ["\\ud800"]}', "invalid_arguments", "surrogate"),
        ("shell", "[]", "invalid_arguments", "object"),
        ("shell", '{"argv": [18446744073709551616]}', "invalid_arguments", ""),
        ("shell", '{"argv": ["true"], "cwd": "/no/such/place"}', "invalid_arguments", "/no/such/place"),
    ],
)
def test_arguments_that_cannot_be_are_refused_with_what_is_wrong(raw, tool, arguments, reason, says):
    raw.greet()
    raw.say(op="submit", id=1, tool=tool, arguments=arguments)
    result = raw.hear()["result"]
    assert (result["status"], result["reason"]) == ("not_executed", reason), result["error"]
    assert says in result["error"]["message"]
    assert result["delivery"] == "not_delivered"


def test_an_argument_of_200_kib_is_refused(raw):
    raw.greet()
    raw.say(op="submit", id=1, tool="shell", arguments=json.dumps({"argv": ["echo", "x" * 200 * 1024]}))
    result = raw.hear()["result"]
    assert (result["status"], result["reason"]) == ("not_executed", "invalid_arguments")


@pytest.mark.parametrize(("argv", "code"), [(["/no/such/program"], 127), (["/etc/hostname"], 126)])
def test_a_program_that_cannot_start_says_so(raw, argv, code):
    raw.greet()
    raw.say(op="submit", id=1, tool="shell", arguments=json.dumps({"argv": argv}))
    result = raw.hear()["result"]
    assert (result["status"], result["exit"]["code"]) == ("error", code)


def test_a_missing_cwd_is_said(raw):
    raw.greet()
    raw.say(op="submit", id=1, tool="shell", arguments='{"argv": ["pwd"]}', cwd="/no/such/place")
    result = raw.hear()["result"]
    assert (result["status"], result["reason"]) == ("not_executed", "invalid_arguments")
    assert "/no/such/place" in result["error"]["message"]


def test_a_tool_that_comes_to_the_socket_is_refused(raw, standing_daemon):
    """Nobody answers it: its connection is closed before a byte."""
    script = (
        "import socket\ns = socket.socket(socket.AF_UNIX)\n"
        f"s.connect({standing_daemon.socket!r})\n"
        's.sendall(b\'{"op":"hello","version":1}\\n\')\nprint("HEARD", s.recv(100))\n'
    )
    raw.greet()
    raw.say(op="submit", id=1, tool="script", arguments=json.dumps({"text": script, "interpreter": "python3"}))
    result = raw.hear()["result"]
    assert "welcome" not in result["output"]["view"]
    assert "HEARD b''" in result["output"]["view"] or "Error" in result["output"]["view"]


def test_a_double_forked_tool_is_refused_too(raw, standing_daemon, tmp_path):
    script = (
        "import os, socket, time\n"
        "if os.fork(): os.waitpid(-1, 0); time.sleep(1); os._exit(0)\n"
        "if os.fork(): os._exit(0)\n"
        "os.setsid()\ntime.sleep(0.2)\n"
        f"s = socket.socket(socket.AF_UNIX); s.connect({standing_daemon.socket!r})\n"
        's.sendall(b\'{"op":"hello","version":1}\\n\'); print("HEARD", s.recv(100), flush=True)\n'
    )
    raw.greet()
    raw.say(op="submit", id=1, tool="script", arguments=json.dumps({"text": script, "interpreter": "python3"}))
    assert "welcome" not in raw.hear()["result"]["output"]["view"]


def test_the_socket_is_for_its_owner_alone(standing_daemon):
    assert stat.S_IMODE(os.stat(standing_daemon.socket).st_mode) & 0o077 == 0


def serve(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "deadlined", "serve", *arguments]
    return subprocess.run(argv, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60)


def test_a_second_daemon_on_the_socket_exits_75(standing_daemon, tmp_path):
    second = serve("--socket", standing_daemon.socket, XDG_STATE_HOME=str(tmp_path))
    assert (second.returncode, second.stdout) == (75, "")
    assert "another daemon" in second.stderr


def test_a_stale_socket_is_no_obstacle(start_daemon, daemon):
    import signal

    daemon.expected_exit = None
    os.kill(daemon.pid, signal.SIGKILL)
    daemon.process.wait()
    assert os.path.exists(daemon.socket)
    os.makedirs(daemon.directory, mode=0o700, exist_ok=True)
    third = subprocess.Popen(
        [sys.executable, "-m", "deadlined", "serve", "--socket", daemon.socket],
        env={**os.environ, "XDG_STATE_HOME": str(daemon.directory)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert third.stdout is not None
        assert third.stdout.readline() == f"ready {daemon.socket}\n"
    finally:
        third.terminate()
        assert third.wait(30) == 0
        third.stdout.close()


def test_a_socket_path_of_200_characters_is_refused(tmp_path):
    refused = serve("--socket", str(tmp_path / ("x" * 200)), XDG_STATE_HOME=str(tmp_path))
    assert refused.returncode in (2, 125)
    assert "107" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_directory_that_others_may_write_is_refused(open_directory, tmp_path):
    refused = serve("--socket", str(open_directory / "s"), XDG_STATE_HOME=str(tmp_path))
    assert refused.returncode == 125
    assert "700" in refused.stderr


def test_a_file_in_the_sockets_place_is_left_alone(tmp_path):
    directory = tmp_path / "d"
    directory.mkdir(mode=0o700)
    (directory / "s").write_text("precious")
    refused = serve("--socket", str(directory / "s"), XDG_STATE_HOME=str(tmp_path))
    assert refused.returncode == 125
    assert (directory / "s").read_text() == "precious"


def test_a_client_that_does_not_read_is_cut_and_others_are_served(standing_daemon):
    deaf = Raw(standing_daemon.socket).greet()
    deaf.socket.settimeout(5)
    with pytest.raises(OSError):
        talk_without_listening(deaf)
    deaf.close()


def talk_without_listening(client: Raw) -> None:
    for number in range(200_000):
        client.say(op="list_tools", id=number)


def test_two_deliveries_of_one_key_are_one_call_and_it_ends_with_the_last_of_them(standing_daemon, tmp_path):
    count = tmp_path / "count"
    arguments = json.dumps({"argv": ["sh", "-c", f"echo once >> {count}; sleep 1; echo done"]})
    first, second = Raw(standing_daemon.socket).greet(), Raw(standing_daemon.socket).greet()
    for client in (first, second):
        client.say(op="submit", id=1, tool="shell", arguments=arguments, key="k-1", announce=True)
    assert first.hear()["call"] == second.hear()["call"]
    first.close()
    result = second.hear()["result"]
    second.close()
    assert (result["status"], result["output"]["view"]) == ("ok", "done\n")
    assert count.read_text() == "once\n"


def test_a_key_with_other_arguments_is_a_conflict(raw):
    raw.greet()
    for number, word in ((1, "true"), (2, "false")):
        raw.say(op="submit", id=number, tool="shell", arguments=json.dumps({"argv": [word]}), key="k-2")
        result = raw.hear()["result"]
    assert (result["status"], result["reason"]) == ("not_executed", "key_conflict")
