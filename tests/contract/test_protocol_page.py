"""The client and the conversation of docs/protocol.md, as they stand on the page, against a real daemon."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.contract.conftest import REPOSITORY, TestedDaemon

pytestmark = pytest.mark.contract

PAGE = (REPOSITORY / "docs" / "protocol.md").read_text(encoding="utf-8")


class PageClient:
    """The program of the page, in an interpreter that has the standard library and nothing else."""

    def __init__(self, file: Path, socket_path: str) -> None:
        self.file, self.environment = file, {"DEADLINED_SOCKET": socket_path}

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-I", "-S", str(self.file), *words]
        return subprocess.run(argv, env=self.environment, capture_output=True, text=True, timeout=60, cwd="/")

    def result(self, *words: str) -> tuple[int, dict[str, Any]]:
        done = self(*words)
        assert done.stderr == ""
        return done.returncode, json.loads(done.stdout)


@pytest.fixture
def client(standing_daemon: TestedDaemon, tmp_path: Path) -> PageClient:
    [code] = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    file = tmp_path / "client.py"
    file.write_text(code)
    return PageClient(file, standing_daemon.socket)


def test_the_client_of_the_page_has_nothing_of_ours_to_import(client: PageClient) -> None:
    probe = "import importlib.util, sys; sys.exit(any(map(importlib.util.find_spec, sys.argv[1:])))"
    argv = [sys.executable, "-I", "-S", "-c", probe, "protocol", "deadlined", "msgspec", "trio"]
    assert subprocess.run(argv, cwd="/").returncode == 0


def test_the_client_of_the_page_runs_a_tool(client: PageClient) -> None:
    code, result = client.result("shell", '{"argv": ["echo", "hi"]}')
    assert code == 0
    assert (result["status"], result["output"]["view"]) == ("ok", "hi\n")


def test_the_client_of_the_page_hears_the_value_of_a_python_tool(client: PageClient) -> None:
    code, result = client.result("python", json.dumps({"code": "{'a': [1, None, 'ü']}"}), "20000")
    assert (code, result["content"]) == (0, {"a": [1, None, "ü"]})


def test_the_client_of_the_page_hears_of_a_kill_when_it_is_confirmed(client: PageClient) -> None:
    code, result = client.result("shell", '{"argv": ["sleep", "100"]}', "300")
    assert code == 124
    assert (result["status"], result["reason"]) == ("killed", "time_budget")
    assert result["kill"]["confirmed"] is True


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (("no_such_tool", "{}"), 3, "unknown_tool"),
        (("shell", '{"argv": ["true"]}', "0"), 3, "invalid_arguments"),
        (("shell", '{"argv": ["true"]}', "-1"), 3, "invalid_arguments"),
        (("shell", "{}"), 3, "invalid_arguments"),
        (("shell", '{"argv": ["false"]}'), 1, None),
    ],
)
def test_the_client_of_the_page_exits_as_the_page_says(
    client: PageClient, words: tuple[str, ...], code: int, reason: str | None
) -> None:
    exited, result = client.result(*words)
    assert (exited, result["reason"]) == (code, reason)


def test_the_client_of_the_page_says_why_when_there_is_no_daemon(client: PageClient, tmp_path: Path) -> None:
    client.environment["DEADLINED_SOCKET"] = str(tmp_path / "nobody")
    done = client("shell", "{}")
    assert done.returncode != 0
    assert "FileNotFoundError" in done.stderr


class Line:
    """A connection that speaks JSON lines."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(20)
        self.socket.connect(path)
        self.lines = self.socket.makefile("rb")

    def say(self, *texts: str) -> None:
        self.socket.sendall("".join(f"{text}\n" for text in texts).encode())

    def hear(self) -> Any:
        line = self.lines.readline()
        return json.loads(line) if line else None

    def close(self) -> None:
        self.lines.close()
        self.socket.close()


@pytest.fixture
def line(standing_daemon: TestedDaemon):
    opened = Line(standing_daemon.socket)
    yield opened
    opened.close()


def shown_in(heard: Any, shown: Any) -> bool:
    """Whether everything that is shown was heard so."""
    if isinstance(shown, dict):
        return isinstance(heard, dict) and all(shown_in(heard.get(name), value) for name, value in shown.items())
    return bool(heard == shown)


def test_the_conversation_at_the_top_of_the_page_happens(line: Line) -> None:
    for speaker, text in re.findall(r"^([CD]): (.*)$", PAGE, re.MULTILINE):
        if speaker == "C":
            line.say(text)
        else:
            heard = line.hear()
            assert shown_in(heard, json.loads(text)), heard


HELLO = '{"op": "hello", "version": 1}'


def submit(number: int, *argv: str, **more: Any) -> str:
    return json.dumps({"op": "submit", "id": number, "tool": "shell", "arguments": json.dumps({"argv": argv}), **more})


def test_first_requests_may_come_in_one_piece_with_the_greeting(line: Line) -> None:
    line.say(HELLO, submit(1, "true"), '{"op": "ask_status", "id": 2}')
    heard = [line.hear() for _ in range(3)]
    assert heard[0]["op"] == "welcome"
    assert {message["op"] for message in heard[1:]} == {"settled", "daemon_status"}


def test_an_id_that_is_open_ends_the_connection_and_a_free_one_does_not(line: Line) -> None:
    line.say(HELLO, submit(1, "true"))
    assert [line.hear()["op"] for _ in range(2)] == ["welcome", "settled"]
    line.say(submit(1, "sleep", "100"), submit(1, "true"))
    failed = line.hear()
    assert (failed["op"], failed["id"], failed["error"]["code"]) == ("failed", None, "protocol_error")
    assert "waits for an answer already" in failed["error"]["message"]
    assert line.hear() is None


def test_the_greeting_of_a_later_version_is_refused_by_name(line: Line) -> None:
    line.say('{"op": "hello", "version": 2, "from_the_future": {"a": 1}}')
    failed = line.hear()
    assert (failed["id"], failed["error"]["code"]) == (None, "unknown_version")
    assert "2" in failed["error"]["message"]
    assert line.hear() is None


def test_a_request_with_an_unknown_field_ends_the_connection(line: Line) -> None:
    line.say(HELLO, submit(1, "true", from_the_future=1))
    assert line.hear()["op"] == "welcome"
    failed = line.hear()
    assert (failed["id"], failed["error"]["code"]) == (None, "protocol_error")
    assert "from_the_future" in failed["error"]["message"]


def test_the_order_of_fields_and_blank_lines_mean_nothing(line: Line) -> None:
    line.say('{"version": 1, "op": "hello"}', "", " \r", '{"id": 5, "op": "ask_status"}\r')
    assert line.hear()["op"] == "welcome"
    assert line.hear()["id"] == 5


@pytest.mark.parametrize("whole", [False, True], ids=["writing side", "connection"])
def test_closing_ends_the_calls_that_belong_to_the_connection(
    standing_daemon: TestedDaemon, line: Line, whole: bool
) -> None:
    line.say(HELLO, submit(1, "sleep", "100", announce=True), submit(2, "sleep", "100", detach=True))
    assert line.hear()["op"] == "welcome"
    attached, detached = line.hear()["call"], line.hear()["call"]
    if whole:
        line.close()
    else:
        line.socket.shutdown(socket.SHUT_WR)
    other = Line(standing_daemon.socket)
    try:
        other.say(HELLO, json.dumps({"op": "wait", "id": 1, "call": attached}))
        assert other.hear()["op"] == "welcome"
        result = other.hear()["result"]
        assert (result["status"], result["reason"]) == ("cancelled", "disconnect")
        assert result["kill"] is None or result["kill"]["confirmed"]
        other.say(json.dumps({"op": "wait", "id": 2, "call": detached, "nowait": True}))
        assert other.hear()["op"] == "pending"
        other.say(json.dumps({"op": "cancel", "id": 3, "call": detached}))
        assert other.hear() == {"op": "cancel_accepted", "id": 3, "call": detached, "live": True}
        other.say(json.dumps({"op": "wait", "id": 4, "call": detached}))
        assert other.hear()["result"]["reason"] == "operator"
    finally:
        other.close()


def test_output_is_read_while_the_call_runs_and_its_end_is_told(line: Line) -> None:
    line.say(HELLO, submit(1, "sh", "-c", "echo begun; sleep 100", announce=True))
    assert line.hear()["op"] == "welcome"
    call = line.hear()["call"]
    data, number, until = "", 2, time.monotonic() + 20
    while not data:
        assert time.monotonic() < until
        line.say(json.dumps({"op": "read_output", "id": number, "call": call}))
        chunk = line.hear()
        data, number = chunk["data"], number + 1
    assert (data, chunk["settled"]) == ("YmVndW4K", False)
    line.say(json.dumps({"op": "cancel", "id": number, "submit": 1}))
    assert line.hear()["op"] == "cancel_accepted"
    assert line.hear()["result"]["reason"] == "client"
    line.say(json.dumps({"op": "read_output", "id": number, "call": call, "offset": 6}))
    chunk = line.hear()
    assert (chunk["data"], chunk["offset"], chunk["settled"]) == ("", 6, True)
