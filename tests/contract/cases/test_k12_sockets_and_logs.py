"""Public cases, chapter K12: what lies at the socket's place, who is let in, what log and status may cost, locks that a
kill leaves. (What a restart finds is in the other file of the chapter.)
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deadlined import Client
from supervisor.doors import listening
from tests.contract.cases.by_deadline import killed_after
from tests.contract.conftest import AS_PLAIN_UID, PLAIN_UID, TestedDaemon, open_daemons

pytestmark = pytest.mark.contract

ENOUGH_MS = 20_000
HERE = os.path.dirname(__file__)
AS_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user too")


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory of our own for a socket, on a short path."""
    path = Path(tempfile.mkdtemp(prefix="dl-"))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def serve(path: Path, **more: Any) -> subprocess.CompletedProcess[str]:
    """Start a daemon that will not live."""
    with tempfile.TemporaryDirectory(prefix="dl-state-") as state:
        words = [sys.executable, "-m", "deadlined", "serve", "--socket", str(path)]
        own = {**os.environ, "XDG_STATE_HOME": state}
        return subprocess.run(words, env=own, capture_output=True, text=True, timeout=60, **more)


@contextlib.contextmanager
def serving(path: Path) -> Iterator[Client]:
    """A daemon at ``path`` for as long as the block lasts."""
    with tempfile.TemporaryDirectory(prefix="dl-state-") as state:
        words = [sys.executable, "-m", "deadlined", "serve", "--socket", str(path)]
        own = {**os.environ, "XDG_STATE_HOME": state}
        process = subprocess.Popen(words, env=own, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == f"ready {path}\n"
            with Client(str(path)) as client:
                yield client
        finally:
            process.terminate()
            assert process.wait(30) == 0
            process.stdout.close()


# ---------------------------------------------------------------- B068


def a_file(path: Path) -> None:
    path.write_text("precious")


def a_directory(path: Path) -> None:
    path.mkdir()
    (path / "inside").write_text("precious")


def a_link(path: Path) -> None:
    """To a stale socket: what it leads to might be removed, the link is somebody's."""
    target = path.with_name("target")
    a_stale_socket(target)
    path.symlink_to(target)


def a_dangling_link(path: Path) -> None:
    path.symlink_to(path.with_name("nothing"))


def a_fifo(path: Path) -> None:
    os.mkfifo(path)


def a_stale_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def a_strangers_socket(path: Path) -> None:
    a_stale_socket(path)
    os.chown(path, PLAIN_UID, PLAIN_UID)


@pytest.mark.case("B068")
@pytest.mark.parametrize(
    ("put", "named"),
    [
        (a_file, "a regular file"),
        (a_directory, "a directory"),
        (a_link, "a symbolic link"),
        (a_dangling_link, "a symbolic link"),
        (a_fifo, "a FIFO"),
        pytest.param(a_strangers_socket, f"uid {PLAIN_UID}", marks=AS_ROOT),
    ],
)
def test_b068_what_is_no_stale_socket_of_ours_is_named_and_left_alone(place, put, named):
    path = place / "s"
    put(path)
    before = os.lstat(path)
    refused = serve(path)
    assert (refused.returncode, refused.stdout) == (125, "")
    assert named in refused.stderr
    assert "left alone" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert os.path.samestat(os.lstat(path), before)
    if put is a_file:
        assert path.read_text() == "precious"
    if put is a_directory:
        assert (path / "inside").read_text() == "precious"
    if put is a_link:
        assert (place / "target").is_socket()


@pytest.mark.case("B068")
@pytest.mark.parametrize("kind", ["listens", "full", "datagrams"])
def test_b068_a_socket_that_somebody_has_open_is_left_alone_whether_it_answers_or_not(place, kind):
    path = place / "s"
    type_ = socket.SOCK_DGRAM if kind == "datagrams" else socket.SOCK_STREAM
    with contextlib.ExitStack() as stack:
        owner = stack.enter_context(socket.socket(socket.AF_UNIX, type_))
        owner.bind(str(path))
        if kind != "datagrams":
            owner.listen(0)
        if kind == "full":  # as that of a program that was stopped for long
            for _ in range(2):
                waiting = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK))
                with contextlib.suppress(BlockingIOError):
                    waiting.connect(str(path))
        before = os.lstat(path)
        refused = serve(path)
        assert refused.returncode == (75 if kind == "listens" else 125)
        said = "somebody" if kind == "listens" else "cannot be told"
        assert said in refused.stderr
        assert os.path.samestat(os.lstat(path), before)


@pytest.mark.case("B068")
def test_b068_a_stopped_daemon_keeps_its_socket(standing_daemon):
    daemon = standing_daemon
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        before = os.lstat(daemon.socket)
        refused = serve(Path(daemon.socket))
        assert (refused.returncode, "another daemon owns" in refused.stderr) == (75, True)
        assert os.path.samestat(os.lstat(daemon.socket), before)
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
    with Client(daemon.socket) as client:
        assert client.call("shell", {"argv": ["true"]}, deadline_ms=ENOUGH_MS).status == "ok"


@pytest.mark.case("B068")
def test_b068_a_stale_socket_is_removed(place):
    a_stale_socket(place / "s")
    with serving(place / "s") as client:
        assert client.call("shell", {"argv": ["true"]}, deadline_ms=ENOUGH_MS).status == "ok"


@pytest.mark.case("B068")
def test_b068_only_a_refused_connection_proves_that_a_socket_is_stale(place, monkeypatch):
    """What else a connection may meet: no permission, no time."""
    path = place / "s"
    a_stale_socket(path)
    for error in (PermissionError(13, "Permission denied"), TimeoutError(110, "Connection timed out")):

        class Unclear(socket.socket):
            def connect(self, _path: Any, error: OSError = error) -> None:
                raise error

        with monkeypatch.context() as patch:
            patch.setattr(listening.socket, "socket", Unclear)
            with (
                pytest.raises(listening.DoorError, match=f"cannot be told.*{error.strerror}"),
                listening.open_socket(str(path)),
            ):
                pass
        assert path.is_socket()


# ---------------------------------------------------------------- B072


@contextlib.contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.mark.case("B072")
@pytest.mark.parametrize("mask", [0, 0o022, 0o077])
def test_b072_whatever_the_umask_the_socket_is_its_owners_and_what_is_made_on_the_way_too(place, mask):
    runtime = place / "made" / "for it"
    with umask(mask), listening.open_socket(str(runtime / "s")):
        assert mode(runtime / "s") & 0o077 == 0
        assert mode(runtime) == 0o700
        assert mode(place / "made") & 0o022 == 0
        assert mode(runtime / "s.lock") & 0o077 == 0


@pytest.mark.case("B072")
def test_b072_a_daemon_that_was_started_with_no_umask_keeps_everything_to_itself(place):
    with umask(0), serving(place / "made" / "s") as client:
        assert mode(place / "made") == 0o700
        assert mode(place / "made" / "s") & 0o077 == 0
        assert client.call("shell", {"argv": ["echo", "x"]}, deadline_ms=ENOUGH_MS).status == "ok"
        state = Path(client.config().values["daemon"]["state_dir"])
        for made in (state, *state.rglob("*")):
            with contextlib.suppress(FileNotFoundError):  # workers come and go
                if not made.is_symlink() and "/work/" not in str(made):
                    assert mode(made) & 0o077 == 0, made


def mode(path: Path) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


KNOCK = """
import socket, sys
s = socket.socket(socket.AF_UNIX); s.settimeout(20); s.connect(sys.argv[1])
try:
    s.sendall(b'{"op": "hello", "version": 1}\\n{"op": "submit", "id": 1, "tool": "shell", "arguments": "{}"}\\n')
    print("HEARD", s.recv(4096))
except OSError as error:
    print("HEARD", error.errno)
"""


@AS_ROOT
@pytest.mark.case("B072")
def test_b072_a_foreign_uid_that_reaches_the_socket_is_refused_and_written_down(standing_daemon):
    """The operator has opened directory and socket to all; the kernel's word on who connects decides all the same."""
    daemon, words = standing_daemon, [*AS_PLAIN_UID, "/usr/bin/python3", "-c", KNOCK, standing_daemon.socket]
    alone = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (alone.returncode, "PermissionError" in alone.stderr) == (1, True), alone
    with Client(daemon.socket) as client, opened(daemon):
        before = client.status().calls_settled
        for _ in range(3):
            knocked = subprocess.run(words, capture_output=True, text=True, timeout=60)
            assert knocked.stdout in ("HEARD b''\n", "HEARD 32\n", "HEARD 104\n"), knocked
        assert client.status().calls_settled == before
    events = refusals(daemon, "uid", 3)
    assert [event["uid"] for event in events] == [PLAIN_UID] * 3
    assert all(event["data"]["pid"] > 0 for event in events)


@contextlib.contextmanager
def opened(daemon: TestedDaemon) -> Iterator[None]:
    daemon.directory.chmod(0o711)
    os.chmod(daemon.socket, 0o666)
    try:
        yield
    finally:
        daemon.directory.chmod(0o700)
        os.chmod(daemon.socket, 0o600)


def refusals(daemon: TestedDaemon, why: str, least: int = 1) -> list[dict[str, Any]]:
    """The events of who was turned away for this reason, as the command line tells; waits until there are so many."""
    environment = {**os.environ, "DEADLINED_SOCKET": daemon.socket}
    until = time.monotonic() + 20
    while time.monotonic() < until:
        words = [sys.executable, "-m", "deadlined", "events", "--json"]
        told = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60)
        assert told.returncode == 0, told.stderr
        found = [json.loads(line) for line in told.stdout.splitlines()]
        refused = [event for event in found if event["kind"] == "client_refused" and event["data"]["why"] == why]
        if len(refused) >= least:
            return refused
    raise AssertionError(f"less than {least} were written down")


@pytest.mark.case("B072")
def test_b072_a_tool_that_dials_the_daemon_is_refused_and_written_down_a_bounded_number_of_times(standing_daemon):
    script = (
        "import socket\nfor _ in range(300):\n    s = socket.socket(socket.AF_UNIX)\n"
        f"    s.connect({standing_daemon.socket!r})\n"
        "    try: assert not s.recv(1)\n    except OSError: pass\n    s.close()\n"
        "print('done')"
    )
    with Client(standing_daemon.socket) as client:
        arguments = {"text": script, "interpreter": "python3"}
        result = client.call("script", arguments, deadline_ms=ENOUGH_MS)
        assert (result.status, result.output.view) == ("ok", "done\n")
    assert 1 <= len(refusals(standing_daemon, "call")) <= 20


# ---------------------------------------------------------------- B074


def log_of(daemon: TestedDaemon) -> bytes:
    return (daemon.directory / "daemon.log").read_bytes()


@pytest.mark.case("B074")
def test_b074_a_missing_program_called_again_and_again_leaves_no_line_a_call(standing_daemon):
    with Client(standing_daemon.socket) as client:
        before = len(log_of(standing_daemon))
        for _ in range(200):
            result = client.call("shell", {"argv": ["/no/such/program"]}, deadline_ms=ENOUGH_MS)
            assert (result.status, result.exit.code) == ("error", 127)
        assert len(log_of(standing_daemon)) - before < 20_000


@pytest.mark.case("B074")
def test_b074_ten_thousand_malformed_frames_leave_a_bounded_log(standing_daemon):
    """In one piece, and one a connection: each ends its connection, and no one is a line."""
    daemon = standing_daemon
    before = len(log_of(daemon))
    malformed = struct.pack(">I", 5) + b"\xc1" * 5
    for piece, connections in ((malformed * 10_000, 1), (malformed, 300), (b"{]\n" * 100, 100)):
        for _ in range(connections):
            with socket.socket(socket.AF_UNIX) as peer:
                peer.settimeout(20)
                peer.connect(daemon.socket)
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    peer.sendall(piece)
                    while peer.recv(65_536):
                        pass
    with Client(daemon.socket) as client:
        assert client.call("shell", {"argv": ["true"]}, deadline_ms=ENOUGH_MS).status == "ok"
    assert len(log_of(daemon)) - before < 20_000


@pytest.mark.case("B074")
def test_b074_workers_that_die_at_their_start_are_started_ever_more_rarely_and_the_log_stays_small(start_daemon, place):
    """Their first words are on stderr, as a traceback would be; the daemon is well until the flag is there."""
    flag = place / "flag"
    daemon = start_daemon(
        f'[daemon]\nspares = 1\n[tool.stillborn]\nkind = "python"\nmodule = "case_stillborn"\npath = ["{HERE}"]\n',
        TZ=str(flag),
    )
    with Client(daemon.socket) as client:
        assert client.call("stillborn", deadline_ms=ENOUGH_MS).content == "lives"
        before, made = len(log_of(daemon)), client.status().replacements
        flag.touch()
        until = time.monotonic() + 60
        while client.call("stillborn", deadline_ms=500).reason != "pool_unhealthy":
            assert time.monotonic() < until, "it goes on starting them"
        for _ in range(100):
            assert client.call("stillborn", deadline_ms=500).reason == "pool_unhealthy"
        assert client.status().degraded
        assert client.status().replacements - made < 25
        assert len(log_of(daemon)) - before < 25 * 4_096
        flag.unlink()


# ---------------------------------------------------------------- B075

LOCKS = """
[tool.shell]
lock_files = [".git/*.lock"]
[tool.graceful]
kind = "command"
argv = ["python3", "-c", "{code}"]
arguments = { code = "str" }
term_grace_ms = 300
lock_files = [".git/*.lock"]
"""
TAKE = "import time\nlock = '.git/index.lock'\nopen(lock, 'x')\n"
LET_GO = "import os, signal, sys\ndef let_go(*_):\n  os.unlink(lock); print('let go'); sys.exit(7)\n"
LET_GO += "signal.signal(signal.SIGTERM, let_go)\n"
HANG = "open('taken', 'w')\ntime.sleep(600)\n"


@pytest.fixture(scope="module")
def locking() -> Iterator[Client]:
    with open_daemons() as start, Client(start(LOCKS).socket) as client:
        yield client


@pytest.fixture
def repository(open_directory: Path) -> Path:
    subprocess.run(["git", "init", "-q", str(open_directory)], check=True, capture_output=True)
    (open_directory / "file").write_text("content")
    return open_directory


@pytest.mark.case("B075")
def test_b075_a_killed_call_tells_of_the_lock_that_it_left_and_nobody_removes_it(locking, repository):
    """The next git fails until a person has looked; and the daemon names the file to look at."""
    arguments = {"argv": ["python3", "-c", TAKE + HANG]}
    lock = repository / ".git" / "index.lock"
    result = killed_after(repository / "taken", locking, "shell", arguments, cwd=repository, again=[lock]).wait()
    notices = [notice for notice in result.notices if notice.detector == "lock_files"]
    assert [(notice.level, str(lock) in notice.text) for notice in notices] == [("warn", True)]
    assert lock.exists()
    git = {"argv": ["git", "-c", "safe.directory=*", "add", "file"]}
    failed = locking.call("shell", git, cwd=repository, deadline_ms=ENOUGH_MS)
    assert (failed.status, failed.exit.code, "index.lock" in failed.output.view) == ("error", 128, True)
    assert not [notice for notice in failed.notices if notice.detector == "lock_files"]
    assert lock.exists()
    lock.unlink()
    added = locking.call("shell", git, cwd=repository, deadline_ms=ENOUGH_MS)
    assert (added.status, added.notices) == ("ok", []), added.output.view


@pytest.mark.case("B075")
def test_b075_whoever_declared_no_locks_is_told_to_look_all_the_same(standing_daemon, open_directory):
    arguments = {"argv": ["sh", "-c", "touch begun; sleep 600"]}
    with Client(standing_daemon.socket) as client:
        result = killed_after(open_directory / "begun", client, "shell", arguments, cwd=open_directory).wait()
    assert "locks left behind" in result.next_action


@pytest.mark.case("B075")
def test_b075_a_tool_that_asked_for_a_grace_may_let_go_of_its_lock(locking, repository):
    lock, code = repository / ".git" / "index.lock", LET_GO + TAKE + HANG
    for deadline_ms in (900, 3_000, 10_000, 30_000):
        lock.unlink(missing_ok=True)
        (repository / "taken").unlink(missing_ok=True)
        result = locking.call("graceful", {"code": code}, cwd=repository, deadline_ms=deadline_ms)
        if "let go" in result.output.view:
            break
    assert (result.status, result.exit.code) == ("error", 7)
    assert not lock.exists()
    assert not [notice for notice in result.notices if notice.detector == "lock_files"]


# ---------------------------------------------------------------- B077


@pytest.mark.case("B077")
@pytest.mark.parametrize("bits", [0o1777, 0o777, 0o770, 0o720])
def test_b077_a_directory_that_others_may_write_is_refused_sticky_or_not(place, bits):
    shared = place / "shared"
    shared.mkdir()
    shared.chmod(bits)
    with umask(0):
        refused = serve(shared / "s")
    assert (refused.returncode, "may be written by others" in refused.stderr) == (125, True)
    assert os.listdir(shared) == []


@pytest.mark.case("B077")
def test_b077_the_usual_shared_directory_is_refused():
    path = Path(tempfile.gettempdir()) / f"dl-{os.getpid()}.sock"
    refused = serve(path)
    assert refused.returncode == 125
    assert "chmod 700" in refused.stderr or "belongs to uid" in refused.stderr
    assert not path.exists()


@pytest.mark.case("B077")
def test_b077_a_private_directory_that_everybody_could_replace_is_refused(place):
    own = place / "open" / "own"
    own.mkdir(parents=True, mode=0o700)
    own.parent.chmod(0o777)
    refused = serve(own / "s")
    assert (refused.returncode, "may be replaced by others" in refused.stderr) == (125, True)
    assert os.listdir(own) == []
    own.parent.chmod(0o1777)
    with listening.open_socket(str(own / "s")):
        assert (own / "s").is_socket()


@pytest.mark.case("B077")
@pytest.mark.parametrize("gids", [(), (os.getgid(),)], ids=["its owner's", "a group's"])
def test_b077_there_is_no_moment_in_which_the_socket_has_another_mode(place, monkeypatch, gids):
    """Looked at between bind and whatever comes next."""
    seen: list[int] = []

    class Watched(socket.socket):
        def bind(self, path: Any) -> None:
            super().bind(path)
            seen.append(mode(Path(path)))

    monkeypatch.setattr(listening.socket, "socket", Watched)
    with umask(0), listening.open_socket(str(place / "s"), gids):
        assert mode(place / "s") == (0o660 if gids else 0o700)
        assert os.umask(0) == 0
    assert [bits & 0o077 for bits in seen] == [0]


# ---------------------------------------------------------------- B078


@pytest.mark.case("B078")
def test_b078_a_disk_that_takes_no_word_of_the_daemons_stops_none_of_its_duties(place):
    """``/dev/full`` answers every write with ENOSPC."""
    with open("/dev/full", "wb") as full, tempfile.TemporaryDirectory(prefix="dl-state-") as state:
        process = subprocess.Popen(
            [sys.executable, "-m", "deadlined", "serve", "--socket", str(place / "s")],
            env={**os.environ, "XDG_STATE_HOME": state},
            stdout=full,
            stderr=full,
        )
        try:
            with first_client(place / "s") as client:
                killed = client.call("shell", {"argv": ["sleep", "600"]}, deadline_ms=300)
                assert (killed.status, killed.reason, killed.kill.confirmed) == ("killed", "time_budget", True)
                assert client.call("shell", {"argv": ["true"]}, deadline_ms=ENOUGH_MS).status == "ok"
                assert client.status().degraded == ["the log cannot be written: No space left on device"]
        finally:
            process.terminate()
            assert process.wait(30) == 0


def first_client(path: Path) -> Client:
    """Waits for a daemon that can tell nobody that it is ready."""
    until = time.monotonic() + 30
    while True:
        try:
            return Client(str(path))
        except Exception:
            assert time.monotonic() < until
            time.sleep(0.02)


@pytest.mark.case("B078")
def test_b078_a_log_that_could_not_be_written_for_a_while_says_what_it_lost(place):
    """Nobody reads it at first: the pipe is full before the daemon starts. Then somebody does."""
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(theirs, b"x" * 4_095 + b"\n")
    os.set_blocking(theirs, True)  # as the daemon would have it
    with tempfile.TemporaryDirectory(prefix="dl-state-") as state:
        process = subprocess.Popen(
            [sys.executable, "-m", "deadlined", "serve", "--socket", str(place / "s")],
            env={**os.environ, "XDG_STATE_HOME": state},
            stdout=subprocess.DEVNULL,
            stderr=theirs,
        )
        os.close(theirs)
        try:
            with first_client(place / "s") as client:
                assert client.call("shell", {"argv": ["true"]}, deadline_ms=ENOUGH_MS).status == "ok"
                assert client.status().degraded == []
            os.set_blocking(ours, False)
            with contextlib.suppress(BlockingIOError):
                while os.read(ours, 65_536):
                    pass
        finally:
            process.terminate()
            assert process.wait(30) == 0
            os.set_blocking(ours, True)
            words = [json.loads(line) for line in os.read(ours, 65_536).splitlines()]
            os.close(ours)
    assert [line["event"] for line in words] == ["log_lines_lost", "stopped"]
    assert words[0]["count"] >= 1
