"""A blocking stand-in for the daemon: real zygote, real workers, real killer, real table; no Trio, no policy.

It says and hears what the daemon would, so that the far side is proven by itself. Everything that it starts ends with
its ``with`` block: the zygote by the end of its socket, the killer by the end of its own.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import json
import mmap
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from protocol import _slots
from protocol._codecs import daemon_to_worker, daemon_to_zygote
from protocol._framing import FrameBuffer
from protocol._links import Speaker, WorkerLink
from protocol._worker_messages import Accepted, Call, Ended, Progress, Reaped, Spawn, Spawned, WorkerReady, ZygoteReady

PATIENCE_S = 20.0
REPOSITORY = Path(__file__).resolve().parents[2]
_RIGHTS = socket.CMSG_SPACE(64)
_PIPE_BYTES = 1 << 20


def send_with(sock: socket.socket, data: bytes, descriptors: Sequence[int] = ()) -> int:
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    return sock.sendmsg([data], rights)


def receive_with(sock: socket.socket) -> tuple[bytes, list[int]]:
    data, ancillary, _, _ = sock.recvmsg(65_536, _RIGHTS, socket.MSG_CMSG_CLOEXEC)
    came = array.array("i")
    for _, _, packed in ancillary:
        came.frombytes(packed)
    return data, list(came)


def readable(descriptor: int, patience_s: float = PATIENCE_S) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(patience_s * 1000))


def pid_of(pidfd: int) -> int:
    for line in Path(f"/proc/self/fdinfo/{pidfd}").read_text().splitlines():
        if line.startswith("Pid:"):
            return int(line[4:])
    return -1


def helper(arguments: list[str], descriptors: list[int], python: Sequence[str] = (sys.executable,), **options: Any):
    """Start ``python -I -m toolworkers …`` with ``descriptors`` at their numbers."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    argv = [*python, "-I", "-m", "toolworkers", *arguments]
    return subprocess.Popen(argv, pass_fds=descriptors, env=environment, stdin=subprocess.DEVNULL, **options)


class Zygote:
    """A running zygote, seen from outside."""

    def __init__(self, directory: Path, python: Sequence[str] = (sys.executable,), **config: Any) -> None:
        self.directory = directory
        self.codec = daemon_to_zygote()
        self.link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.link.settimeout(PATIENCE_S)
        told = {"outer_pidns": os.stat("/proc/self/ns/pid").st_ino, "user_env": dict(os.environ), **config}
        self.errors = directory / "stderr"
        with theirs, tempfile.TemporaryFile("w+") as config, self.errors.open("ab") as errors:
            config.write(json.dumps(told))
            config.flush()
            passed = [theirs.fileno(), config.fileno()]
            self.process = helper(["zygote", *map(str, passed)], passed, python, stderr=errors)
        self.workers = 0
        self.reaped: dict[int, Reaped] = {}
        self.ready: ZygoteReady | None = None

    def wait_ready(self) -> ZygoteReady:
        self.ready = self.hear()[0]
        assert isinstance(self.ready, ZygoteReady), self.errors.read_text()
        return self.ready

    def hear(self) -> tuple[Any, list[int]]:
        data, descriptors = receive_with(self.link)
        return (self.codec.unpack(data) if data else None), descriptors

    def hear_reaped(self, worker: int) -> Reaped:
        while worker not in self.reaped:
            message, _ = self.hear()
            assert isinstance(message, Reaped), message
            self.reaped[message.worker] = message
        return self.reaped[worker]

    def ask(self, descriptors: Sequence[int], **fields: Any) -> tuple[Any, list[int]]:
        """A Spawn as it stands; the answer to it (wait statuses that come before are kept)."""
        self.workers += 1
        fields.setdefault("worker", self.workers)
        send_with(self.link, self.codec.pack(Spawn(**fields)), descriptors)
        while True:
            message, came = self.hear()
            if not isinstance(message, Reaped):
                return message, came
            self.reaped[message.worker] = message

    def spawn(self, uid: int | None = None, cgroups: Sequence[int] = (), **fields: Any) -> Worker:
        number = self.workers + 1
        scratch = self.directory / f"w{number}"
        for path in (scratch, scratch / "tmp", scratch / "work"):
            path.mkdir(0o700)
        output = os.open(scratch / "out", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        if uid is not None:
            for path in (scratch, scratch / "tmp", scratch / "work", scratch / "out"):
                os.chown(path, uid, uid)
        ours, theirs = socket.socketpair()
        with theirs:
            message, came = self.ask([theirs.fileno(), *cgroups], scratch=str(scratch), cgroups=len(cgroups), **fields)
        assert isinstance(message, Spawned), message
        return Worker(self, number, ours, came[0], scratch, output, uid)

    def children(self) -> list[int]:
        """Every process that the zygote has forked: workers, and the one that waits to become the next."""
        (zygote,) = children_of(self.process.pid)
        return children_of(zygote)

    def close(self) -> None:
        self.link.close()
        self.process.wait(PATIENCE_S)


class Worker:
    """A worker's socket, pidfd and files."""

    def __init__(
        self, zygote: Zygote, number: int, sock: socket.socket, pidfd: int, scratch: Path, output: int, uid: int | None
    ) -> None:
        self.zygote, self.number, self.socket, self.pidfd = zygote, number, sock, pidfd
        self.scratch, self.output, self.uid = scratch, output, uid
        self.pid = pid_of(pidfd)
        self.codec, self.link = daemon_to_worker(), WorkerLink(Speaker.DAEMON)
        self.frames, self.heard = FrameBuffer(), []
        self.nonce = 0
        self.seen: list[Any] = []
        sock.settimeout(PATIENCE_S)

    def hear(self) -> Any:
        """The next frame, judged by the link; None at the end of the stream."""
        while not self.heard:
            try:
                data = self.socket.recv(65_536)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self.heard += [self.codec.unpack(body) for body in self.frames.feed(data)]
        message = self.heard.pop(0)
        self.link.hear(message)
        return message

    def wait_ready(self) -> WorkerReady:
        message = self.hear()
        assert isinstance(message, WorkerReady), self.zygote.errors.read_text()
        return message

    def send(self, tool: str, arguments: Any, descriptors: Sequence[int] = (), **fields: Any) -> None:
        self.nonce += 1
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        call = Call(
            nonce=self.nonce,
            tool=tool,
            arguments=text,
            deadline_ns=time.monotonic_ns() + 60 * 10**9,
            key="key",
            fds=len(descriptors),
        )
        for name, value in fields.items():
            setattr(call, name, value)
        self.link.say(call)
        packed = self.codec.pack(call)
        sent = send_with(self.socket, packed, descriptors)
        if sent < len(packed):  # a worker may be gone already, and sending nothing to it is an error too
            self.socket.sendall(packed[sent:])

    def result(self) -> Ended | None:
        """The Ended of the running call; None when the worker is lost. `seen` has what came before it."""
        self.seen = []
        while True:
            message = self.hear()
            if message is None or isinstance(message, Ended):
                return message
            self.seen.append(message)

    def call(self, tool: str, arguments: Any = None, **fields: Any) -> Ended | None:
        self.send(tool, {} if arguments is None else arguments, **fields)
        return self.result()

    @property
    def accepted(self) -> bool:
        return any(isinstance(message, Accepted) for message in self.seen)

    @property
    def progress(self) -> list[Progress]:
        return [message for message in self.seen if isinstance(message, Progress)]

    def command(self, argv: list[str] | None, tool: str = "shell", **fields: Any) -> tuple[Ended | None, bytes]:
        """Run a command; its Ended, and the bytes of its raw file (with split_streams: of the first)."""
        with Capture(2 if fields.get("split_streams") else 1) as capture:
            if self.uid is not None:
                capture.give_to(self.uid)
            arguments = {**({} if argv is None else {"argv": argv}), **fields.pop("arguments", {})}
            self.send(tool, arguments, capture.descriptors, **fields)
            capture.sent()
            ended = self.result()
            return ended, capture.read()

    def printed(self) -> bytes:
        return os.pread(self.output, 1 << 20, 0)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def gone(self, patience_s: float = PATIENCE_S) -> bool:
        return readable(self.pidfd, patience_s)

    def reaped(self) -> Reaped:
        assert self.gone()
        return self.zygote.hear_reaped(self.number)

    def close(self) -> None:
        """Give up what is ours; the worker must be gone or going."""
        self.socket.close()
        os.close(self.pidfd)
        os.close(self.output)

    def processes(self) -> list[int]:
        """Every live process of the worker's pid namespace, itself included: its descendants, because the first process
        of a namespace adopts all that lose their parent. (The namespace itself is root's to see, as of all that are not
        dumpable.)"""
        found, parents = [self.pid] if _is_there(self.pid) else [], [self.pid]
        while parents:
            children = _children(parents.pop())
            found += children
            parents += children
        return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, file.read_text().split())
    return [child for child in found if _is_there(child)]


def _is_there(pid: int) -> bool:
    """Alive, and no zombie."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


class Capture:
    """Raw files and pipes for one command, as the daemon makes them."""

    def __init__(self, streams: int = 1) -> None:
        self.raws, self.read_ends, self.descriptors = [], [], []
        for _ in range(streams):
            raw = os.memfd_create("raw", os.MFD_CLOEXEC)
            read_end, write_end = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(read_end, False)
            with contextlib.suppress(PermissionError):
                fcntl.fcntl(read_end, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
            self.raws.append(raw)
            self.read_ends.append(read_end)
            self.descriptors += [raw, read_end, write_end]

    def sent(self) -> None:
        for write_end in self.descriptors[2::3]:
            os.close(write_end)

    def give_to(self, uid: int) -> None:
        """So that a command of another uid may open /dev/stdout again."""
        for write_end in self.descriptors[2::3]:
            os.fchown(write_end, uid, uid)

    def read(self, stream: int = 0) -> bytes:
        return os.pread(self.raws[stream], 1 << 30, 0)

    def __enter__(self) -> Capture:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in (*self.raws, *self.read_ends):
            os.close(descriptor)


class Killer:
    """A running killer over a table of ours."""

    MESSAGE = struct.Struct("<IQ")

    def __init__(self, slots: int = 8, python: Sequence[str] = (sys.executable,)) -> None:
        size = _slots.table_bytes(slots)
        memory = os.memfd_create("table", os.MFD_CLOEXEC)
        os.ftruncate(memory, size)
        self.bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._map = mmap.mmap(memory, size)
        self.words = memoryview(self._map).cast("Q")
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.settimeout(PATIENCE_S)
        passed = [theirs.fileno(), memory, self.bell]
        with theirs:
            self.process = helper(["killer", *map(str, passed)], passed, python)
        os.close(memory)

    def register(self, slot: int, generation: int, *descriptors: int) -> None:
        self.words[_slots.slot_base(slot) + _slots.GENERATION] = generation
        self.tell(slot, generation, *descriptors)
        assert self.MESSAGE.unpack(self.control.recv(64)) == (slot, generation)

    def unregister(self, slot: int) -> None:
        self.tell(slot, 0)
        assert self.MESSAGE.unpack(self.control.recv(64)) == (slot, 0)

    def tell(self, slot: int, generation: int, *descriptors: int) -> None:
        send_with(self.control, self.MESSAGE.pack(slot, generation), descriptors)

    def arm(self, slot: int, deadline_ns: int, term_ns: int = 0, ring: bool = True) -> None:
        base = _slots.slot_base(slot)
        self.words[base + _slots.TERM] = term_ns
        self.words[base + _slots.DEADLINE] = deadline_ns
        if ring:
            os.eventfd_write(self.bell, 1)

    def word(self, slot: int, which: int) -> int:
        return self.words[_slots.slot_base(slot) + which]

    def wait_word(self, slot: int, which: int) -> int:
        until = time.monotonic() + PATIENCE_S
        while not (value := self.word(slot, which)) and time.monotonic() < until:
            time.sleep(0.001)
        return value

    def close(self) -> None:
        self.control.close()
        self.process.wait(PATIENCE_S)
        self.words.release()
        self._map.close()
        os.close(self.bell)


def children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def namespace_of(pid: int) -> int | None:
    try:
        return os.stat(f"/proc/{pid}/ns/pid").st_ino
    except OSError:
        return None


def is_alive(pid: int) -> bool:
    """Whether a process of that number exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@contextlib.contextmanager
def open_zygote(directory: Path, **options: Any) -> Iterator[Zygote]:
    """A zygote that has said it is ready, and that is gone with all its workers afterwards."""
    zygote = Zygote(directory, **options)
    try:
        zygote.wait_ready()
        yield zygote
    finally:
        zygote.close()


@contextlib.contextmanager
def open_killer(**options: Any) -> Iterator[Killer]:
    """A killer that is gone afterwards."""
    killer = Killer(**options)
    try:
        yield killer
    finally:
        killer.close()
