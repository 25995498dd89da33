"""Public cases, chapter K10: protocol and framing on pipes and sockets."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from deadlined import AsyncClient, Client, ConnectionLost
from tests.contract.conftest import TestedDaemon, open_daemons

pytestmark = pytest.mark.contract

MIB = 1 << 20
ENOUGH_MS = 20_000
LIMIT = 16 * MIB
TOOLS = f'[tool.answer]\nkind = "python"\nmodule = "case_tools"\npath = ["{os.path.dirname(__file__)}"]\n'
CONFIG = f"[daemon]\nframe_limit = {LIMIT}\nframe_timeout_ms = 700\nhello_timeout_ms = 3_000\n{TOOLS}"


class Peer:
    """A client made by hand. ``codec``: "json" or "msgpack"."""

    def __init__(self, path: str, codec: str = "json", greet: bool = True) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(20)
        self.socket.connect(path)
        self._codec = codec
        if greet:
            self.say(op="hello", version=1)
            assert self.hear()["op"] == "welcome"

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def say(self, **message: Any) -> None:
        if self._codec == "json":
            self.socket.sendall(json.dumps(message).encode() + b"\n")
        else:
            self.socket.sendall(framed(message))

    def hear(self) -> Any:
        """The next message; None at the end of the connection."""
        if self._codec == "json":
            line = b""
            while not line.endswith(b"\n") and (byte := self.socket.recv(1)):
                line += byte
            return json.loads(line) if line else None
        header = self._exactly(4)
        return msgspec.msgpack.decode(self._exactly(struct.unpack(">I", header)[0])) if header else None

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size and (more := self.socket.recv(size - len(data))):
            data += more
        return data

    def last_words(self) -> bytes:
        """Everything that is said until the daemon ends this connection."""
        words = b""
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            while data := self.socket.recv(65_536):
                words += data
        return words


def framed(message: dict[str, Any]) -> bytes:
    body = msgspec.msgpack.encode(message)
    return struct.pack(">I", len(body)) + body


def goes_on(client: Client) -> None:
    result = client.call("shell", {"argv": ["echo", "served"]}, deadline_ms=ENOUGH_MS)
    assert (result.status, result.output.view) == ("ok", "served\n")


# ---------------------------------------------------------------- B056


@pytest.mark.case("B056")
def test_b056_whatever_a_python_tool_prints_is_its_output_and_no_child_of_it_has_our_descriptors(client):
    for _ in range(3):  # the worker is the same, and its link is whole
        handle = client.submit("write_everywhere", deadline_ms=ENOUGH_MS)
        assert (handle.wait().status, handle.wait().content) == ("ok", "answered")
        # 3: the directory that ls lists
        assert b"".join(handle.output()) == b"hello\nraw\nchild\nopen: 0 1 2 3\n\x93\x01\n"


@pytest.mark.case("B056")
def test_b056_a_command_has_three_descriptors_and_nothing_of_ours(client):
    result = client.call("shell", {"argv": ["ls", "/proc/self/fd"]}, deadline_ms=ENOUGH_MS)
    assert result.output.view.split() == ["0", "1", "2", "3"]
    code = (
        "import os\nfor n in range(3, 2000):\n  try: os.write(n, b'\\x93\\x01')\n  except OSError: pass\nprint('tried')"
    )
    for tool, arguments in (("script", {"text": code, "interpreter": "python3"}), ("shell", {"argv": ["true"]})):
        assert client.call(tool, arguments, deadline_ms=ENOUGH_MS).status == "ok"


@pytest.mark.case("B056")
@pytest.mark.parametrize("fail", [False, True])
def test_b056_what_a_command_tools_own_code_prints_is_that_calls_output_and_no_other_calls(start_daemon, fail):
    """One worker serves all calls, so that whatever stayed behind would be found by the next one."""
    with Client(start_daemon(f"[daemon]\nin_flight = 1\nspares = 1\n{TOOLS}").socket) as client:
        for _ in range(3):
            result = client.call("planned", {"fail": fail}, deadline_ms=ENOUGH_MS)
            assert result.status == ("error" if fail else "ok")
            assert result.output.view.startswith("planning\nplanning on\n")
            assert ("no plan" if fail else "done") in result.output.view
            assert client.call("answer", {"size": 3}, deadline_ms=ENOUGH_MS).output.bytes == 0
            written = client.call("write_bytes", {"hexadecimal": b"x".hex()}, deadline_ms=ENOUGH_MS)
            assert written.output.view == "xx"


# ---------------------------------------------------------------- B057

FORGED = [
    b'{"jsonrpc":"2.0","id":1,"result":"forged"}\n',
    b'{"op": "settled", "id": 1, "result": {"call": "c", "tool": "shell", "status": "ok", "content": "forged"}}\n',
    *(framed({"op": "ended", "nonce": nonce, "how": "ok", "content": "forged"}) for nonce in range(1, 8)),
    framed({"op": "accepted", "nonce": 1}),
    framed({"op": "settled", "id": 1, "result": {"call": "c", "tool": "shell", "status": "ok"}}),
]


@pytest.mark.case("B057")
@pytest.mark.parametrize("tool", ["write_bytes", "shell"])
def test_b057_output_that_looks_like_a_message_is_output(client, tool):
    """Every message that could end a call, from a Python tool and a command, beside a call that is to be forged."""
    other = client.submit("shell", {"argv": ["sh", "-c", "sleep 0.3; echo mine"]}, deadline_ms=ENOUGH_MS)
    data = b"".join(FORGED)
    if tool == "write_bytes":
        handle = client.submit("write_bytes", {"hexadecimal": data.hex()}, deadline_ms=ENOUGH_MS)
        expected = data * 2  # descriptors 1 and 2; 0 takes nothing
    else:
        code = f"import os\nfor n in (1, 2): os.write(n, bytes.fromhex('{data.hex()}'))"
        handle = client.submit("shell", {"argv": ["python3", "-c", code]}, deadline_ms=ENOUGH_MS)
        expected = data * 2
    result = handle.wait()
    assert (result.status, result.content) == ("ok", "written" if tool == "write_bytes" else None)
    assert b"".join(handle.output()) == expected
    assert (other.wait().status, other.wait().content, other.wait().output.view) == ("ok", None, "mine\n")
    goes_on(client)


# ---------------------------------------------------------------- B058, B059


def memory(daemon: TestedDaemon) -> int:
    """Bytes that the daemon has in memory now."""
    return int(Path(f"/proc/{daemon.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def flat_memory(daemon: TestedDaemon) -> Iterator[Client]:
    """The daemon's memory is what it was, give or take 16 MiB; others were and are served."""
    with Client(daemon.socket) as good:
        goes_on(good)
        before = memory(daemon)
        yield good
        assert memory(daemon) - before < 16 * MIB
        goes_on(good)


@pytest.fixture(scope="module")
def narrow() -> Iterator[TestedDaemon]:
    """A daemon that takes small frames, and waits for them for a short time."""
    with open_daemons() as start:
        yield start("[daemon]\nframe_limit = 65_536\nframe_timeout_ms = 500\nhello_timeout_ms = 1_500\n")


@pytest.mark.case("B058")
@pytest.mark.parametrize(
    ("start", "pace"),
    [(b"{", "slow"), (b" ", "fast"), (b"", "slow"), (b"", "fast")],
    ids=["a line", "spaces alone", "slowly after hello", "fast after hello"],
)
def test_b058_a_client_that_never_ends_its_frame_is_ended(narrow, start, pace):
    """Thirty or fifty send spaces for longer than a frame may take; the fast ones 200 MiB, were it taken."""
    with flat_memory(narrow) as good, contextlib.ExitStack() as stack:
        count = 30 if start else 50  # 32 may be without a hello
        peers = [stack.enter_context(Peer(narrow.socket, greet=not start)) for _ in range(count)]
        for peer in peers:
            peer.socket.sendall(start or b"{")
            peer.socket.setblocking(False)
        until = time.monotonic() + 0.7
        while time.monotonic() < until:
            for peer in peers:
                with contextlib.suppress(OSError):
                    peer.socket.send(b" " * (100 if pace == "slow" else 65_536))
            goes_on(good)
        for peer in peers:
            peer.socket.settimeout(20)
            words = peer.last_words()
            assert b"protocol_error" in words or not words, words  # its own bytes may have reset the connection


@pytest.mark.case("B058")
def test_b058_spaces_without_end_are_cut_at_the_limit_and_the_reason_is_said(narrow):
    with flat_memory(narrow), Peer(narrow.socket) as peer:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for _ in range(64):
                peer.socket.sendall(b" " * 65_536)
        words = peer.last_words()
        assert b"protocol_error" in words
        assert b"65536" in words


@pytest.mark.case("B058")
def test_b058_connections_are_bounded_and_a_silent_crowd_passes(narrow):
    with flat_memory(narrow) as good, contextlib.ExitStack() as stack:
        silent = [stack.enter_context(Peer(narrow.socket, greet=False)) for _ in range(60)]
        goes_on(good)
        words = [peer.last_words() for peer in silent]
        assert b"" in words  # not let in: 32 may be without a hello at a time
        assert all(b"no hello within" in said for said in words if said)
    with Client(narrow.socket) as another:
        goes_on(another)


@pytest.mark.case("B059")
@pytest.mark.parametrize("announced", [LIMIT, 0xFFFFFFFF])
def test_b059_memory_grows_with_what_comes_and_a_dribble_is_ended(module_daemon, announced):
    """Sixty-four announce a frame each, and let a byte follow now and then: 1 GiB if it were believed."""
    with flat_memory(module_daemon) as good, contextlib.ExitStack() as stack:
        peers = [stack.enter_context(Peer(module_daemon.socket, "msgpack")) for _ in range(64)]
        for number in range(6):
            for peer in peers:
                with contextlib.suppress(OSError):
                    peer.socket.send(b"\x81" if number else struct.pack(">I", announced))
            time.sleep(0.15)
            goes_on(good)
        for peer in peers:
            refused = peer.hear()
            assert (refused["op"], refused["id"], refused["error"]["code"]) == ("failed", None, "protocol_error")
            assert peer.hear() is None


# ---------------------------------------------------------------- B060

FIRST_MUCH = "yes | head -c 4000000; while :; do echo more; sleep 0.01; done"


@pytest.mark.case("B060")
@pytest.mark.parametrize("detach", [False, True], ids=["attached", "detached"])
def test_b060_a_client_that_stops_reading_blocks_nobody_and_is_cut(module_daemon, detach):
    with flat_memory(module_daemon) as client, Peer(module_daemon.socket) as deaf:
        arguments = json.dumps({"argv": ["sh", "-c", FIRST_MUCH]})
        deaf.say(op="submit", id=1, tool="shell", arguments=arguments, deadline_ms=2_500, announce=True, detach=detach)
        call = deaf.hear()["call"]
        handle = client.handle(call)
        follow = handle.output()
        assert next(follow).startswith(b"y\n")
        asks = b"".join(
            json.dumps({"op": "read_output", "id": n, "call": call, "limit": 262_144}).encode() + b"\n"
            for n in range(2, 400)
        )
        with contextlib.suppress(BrokenPipeError, ConnectionResetError, TimeoutError):
            deaf.socket.settimeout(2)
            deaf.socket.sendall(asks)
        for _ in range(20):
            goes_on(client)
        result = handle.wait()
        expected = ("killed", "time_budget") if detach else ("cancelled", "disconnect")
        assert (result.status, result.reason) == expected
        assert result.output.bytes > 4_000_000
        assert result.kill.confirmed


# ---------------------------------------------------------------- B061


@pytest.mark.case("B061")
@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999", "-1e400", '"nan"', "nan", "0x10"])
@pytest.mark.parametrize("codec", ["json", "msgpack"])
def test_b061_an_argument_that_is_no_number_is_refused_and_the_session_goes_on(module_daemon, codec, value):
    with Peer(module_daemon.socket, codec) as peer:
        peer.say(op="submit", id=1, tool="delay", arguments=f'{{"delay_s": {value}}}', deadline_ms=ENOUGH_MS)
        result = peer.hear()["result"]
        assert (result["status"], result["reason"]) == ("not_executed", "invalid_arguments"), result
        assert (result["error"]["class"], result["delivery"]) == ("argument", "not_delivered")
        peer.say(op="submit", id=2, tool="delay", arguments='{"delay_s": 0.0}', deadline_ms=ENOUGH_MS)
        assert peer.hear()["result"]["content"] == "slept"


@pytest.mark.case("B061")
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 1e300, -1e300, 0.5])
def test_b061_a_deadline_that_is_no_number_is_refused_and_the_session_goes_on(module_daemon, value):
    with Peer(module_daemon.socket, "msgpack") as peer:
        peer.say(op="submit", id=1, tool="delay", arguments='{"delay_s": 0.0}', deadline_ms=value)
        result = peer.hear()["result"]
        assert (result["status"], result["reason"]) == ("not_executed", "invalid_arguments")
        assert "deadline_ms" in result["error"]["message"]
        peer.say(op="submit", id=2, tool="delay", arguments='{"delay_s": 0.0}', deadline_ms=ENOUGH_MS)
        assert peer.hear()["result"]["content"] == "slept"


@pytest.mark.case("B061")
@pytest.mark.parametrize("text", ["NaN", "Infinity", "1e999"])
def test_b061_a_line_with_such_a_number_is_no_json_and_ends_its_own_connection(client, module_daemon, text):
    with Peer(module_daemon.socket) as peer:
        line = '{"op": "submit", "id": 1, "tool": "delay", "arguments": "{}", "deadline_ms": ' + text + "}\n"
        peer.socket.sendall(line.encode())
        refused = peer.hear()
        assert (refused["op"], refused["error"]["code"]) == ("failed", "protocol_error")
    goes_on(client)


@pytest.mark.case("B061")
@pytest.mark.parametrize("kind", ["nan", "inf", "-inf"])
def test_b061_a_tools_answer_that_is_no_number_is_an_error_of_that_call(client, kind):
    result = client.call("not_a_number", {"kind": kind}, deadline_ms=ENOUGH_MS)
    assert (result.status, result.content, result.error.code) == ("error", None, "content")
    goes_on(client)
    with pytest.raises(ValueError, match="JSON"):
        client.call("delay", {"delay_s": float(kind)})
    goes_on(client)


# ---------------------------------------------------------------- B062


@contextlib.contextmanager
def false_daemon(*answers: bytes) -> Iterator[str]:
    """A listener that answers one message after the other with these bytes, and then goes on talking; its path."""
    with tempfile.TemporaryDirectory(prefix="dl-") as directory, socket.socket(socket.AF_UNIX) as listener:
        path = str(Path(directory) / "s")
        listener.bind(path)
        listener.listen()
        thread = threading.Thread(target=_talk, args=(listener, answers), daemon=True)
        thread.start()
        yield path
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(20)
        assert not thread.is_alive()


def _talk(listener: socket.socket, answers: tuple[bytes, ...]) -> None:
    with contextlib.suppress(OSError):
        connection, _ = listener.accept()
        with connection:
            for answer in answers:
                connection.recv(65_536)
                connection.sendall(answer)
            while True:  # as much as it likes, for as long as somebody listens
                connection.sendall(b"\x81" * 65_536)


WELCOME = framed(
    {"op": "welcome", "version": 1, "features": [], "daemon_pid": 1, "containment": "pidns", "frame_limit": MIB}
)
HUGE = struct.pack(">I", 0xFFFFFFFF)
TOO_LARGE = struct.pack(">I", (16 << 20) + (1 << 20))


@pytest.mark.case("B062")
@pytest.mark.parametrize("answers", [(HUGE,), (WELCOME, HUGE), (WELCOME, TOO_LARGE)], ids=["hello", "call", "17 MiB"])
def test_b062_a_client_believes_no_length_and_drops_the_daemon_that_said_it(answers):
    with false_daemon(*answers) as path, pytest.raises(ConnectionLost, match=r"at most \d+ are allowed"):
        Client(path, answer_timeout_s=20).call("shell", {"argv": ["true"]})
    with false_daemon(*answers) as path:
        trio.run(_call_asynchronously, path)
    with false_daemon(*answers) as path:
        words = [sys.executable, "-m", "deadlined", "call", "shell", '{"argv": ["true"]}', "--socket", path]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout) == (125, "")
        assert "are allowed" in done.stderr
        assert "Traceback" not in done.stderr


async def _call_asynchronously(path: str) -> None:
    with pytest.raises(ConnectionLost, match="are allowed"):
        async with AsyncClient(path) as client:
            await client.call("shell", {"argv": ["true"]})


@pytest.mark.case("B062")
@pytest.mark.parametrize("announced", [LIMIT + 1, 0x7FFFFFFF, 0xFFFFFFFF])
def test_b062_the_daemon_believes_no_length_of_a_worker_and_ends_the_worker_that_said_it(module_daemon, announced):
    with flat_memory(module_daemon) as client:
        other = client.submit("shell", {"argv": ["sh", "-c", "sleep 0.3; echo mine"]}, deadline_ms=ENOUGH_MS)
        result = client.call("announce", {"size": announced, "send": 100_000, "hang": True}, deadline_ms=60_000)
        assert (result.status, result.reason) == ("crashed", "protocol_error")
        assert str(announced) in result.error.message
        assert (other.wait().status, other.wait().output.view) == ("ok", "mine\n")


@pytest.mark.case("B062")
def test_b062_the_caps_are_said_and_can_be_set(module_daemon: TestedDaemon, client: Client):
    with Peer(module_daemon.socket, greet=False) as peer:
        peer.say(op="hello", version=1)
        assert peer.hear()["frame_limit"] == LIMIT
    assert client.config().values["daemon"]["frame_limit"] == LIMIT
