"""Each misbehaving client beside good ones, which are served meanwhile: those that are there, and those that come.

The count is of rounds, in each of which every kind has its turn; the page's push is N=1, and so is each push. Passes
when every call of a good client ends as it should; each bad client is answered, cut or forgotten as its kind has to be;
and in the end the daemon holds what it held before, stops well, and its log adds up. How quickly good calls were served
is a figure beside the verdict.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from deadlined._errors import ConnectionLost, DeadlinedError
from deadlined.client import Client
from protocol import _client_messages as cm
from protocol._codecs import client_to_daemon
from protocol._outcomes import Status
from tests.trust.daemons import PATIENT, REPOSITORY, TRUSTING, NotReady, SuiteDaemon
from tests.trust.held import calm
from tests.trust.ledger import Ledger, contradiction
from tests.trust.mutation import header, mutated
from tests.trust.registry import Figures, Suite
from tests.trust.spoken import speaker_of
from tests.trust.whole_log import wrong_in_log

GOOD, PAUSE_S = 2, 0.1
CUT_AFTER_MS = 1_500
"""A machine that is busy must let a good client say its hello."""
MOST_CLIENTS = 64
SETTINGS = {
    "hello_timeout_ms": CUT_AFTER_MS,
    "frame_timeout_ms": CUT_AFTER_MS,
    "clients": MOST_CLIENTS,
    "spares": 2,
    "idle_worker_ms": 1_000,
    "output_ttl_ms": 1_000,
}
MANY = 8
"""So many are let in at once after each bad client."""
PATIENCE_S = 20.0
THREADS = 12
HELLO = {"op": "hello", "version": 1}
SUBMIT = {"op": "submit", "id": 1, "tool": "shell", "arguments": '{"argv": ["sleep", "600"]}', "deadline_ms": 3_600_000}
CALLED_OFF = cm.OpenRun
"""What is left out of random words: a run that was really opened lives for as long as it says."""


class _Place:
    """Where one bad client is let loose. What it comes to is what its function returns: empty, or what was wrong."""

    def __init__(self, path: str, rng: random.Random) -> None:
        self.path, self.rng = path, rng

    @contextlib.contextmanager
    def line(self, *first: dict[str, object]) -> Iterator[socket.socket]:
        """A connection that has said this much, as JSON."""
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(PATIENCE_S)
            line.connect(self.path)
            for message in first:
                line.sendall(_json(message))
            yield line

    def program(self, name: str, count: int, **environment: str) -> str:
        """What a program of tests/hostile says of itself."""
        given = {"DEADLINED_HOSTILE": "1", "HOSTILE_SOCKET": self.path, "HOSTILE_COUNT": str(count)}
        given |= {"HOSTILE_SEED": str(self.rng.randrange(1 << 30)), "PYTHONDONTWRITEBYTECODE": "1", **environment}
        argv = [sys.executable, "-S", str(REPOSITORY / "tests" / "hostile" / f"{name}.py")]
        return subprocess.run(argv, env={**os.environ, **given}, capture_output=True, text=True, timeout=60).stdout


def _json(message: dict[str, object]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _end(line: socket.socket) -> bytes:
    """All that is heard until the daemon has ended the connection. Raises TimeoutError."""
    heard = b""
    try:
        while piece := line.recv(1 << 16):
            heard += piece
    except ConnectionError:
        pass
    return heard


def _must_hear(line: socket.socket, words: str) -> str:
    heard = _end(line)
    return "" if words.encode() in heard else f"it heard {heard[-300:]!r}, and not {words!r}"


# ---------------------------------------------------------------- kinds


def drips(place: _Place) -> str:
    """Forty clients that say a byte now and then."""
    said = place.program("drips_at_the_daemon", 40)
    return "" if said == "ready\ncut 40 open 0\n" else said or "it said nothing"


def babbles(place: _Place) -> str:
    """Random bytes, some of them behind a length."""
    said = place.program("babbles_at_the_daemon", 60)
    return "" if "silence 0" in said else said or "it said nothing"


def leaves(place: _Place) -> str:
    """A hello and a long call, or a part of them; and gone."""
    words = (_json(HELLO) + _json(SUBMIT)).decode()
    said = place.program("leaves_the_daemon", 20, HOSTILE_WORDS=words)
    return "" if "said all of it" in said else said or "it said nothing"


def is_silent(place: _Place) -> str:
    """No hello."""
    with place.line() as line:
        return _must_hear(line, "no hello within")


def half_a_message(place: _Place) -> str:
    """It begins one, and does not end it."""
    with place.line(HELLO) as line:
        line.sendall(_json(SUBMIT)[:20])
        return _must_hear(line, "begun and not ended")


def announces_too_much(place: _Place) -> str:
    """A frame of two gigabytes."""
    with place.line() as line:
        line.sendall((1 << 31).to_bytes(4, "big") + b"x" * 1_000)
        _end(line)
    return ""


def nests(place: _Place) -> str:
    """Brackets without end: where a message should be, and in arguments."""
    deep = "[" * 2_000 + "]" * 2_000
    with place.line(HELLO, SUBMIT | {"arguments": f'{{"argv": {deep}}}'}) as line:
        heard = line.recv(1 << 16)
        while b"settled" not in heard and (piece := line.recv(1 << 16)):
            heard += piece
        if b"not_executed" not in heard:
            return f"deep arguments came to {heard[-300:]!r}"
        line.sendall(f'{{"op": "wait", "id": 2, "call": {deep}}}\n'.encode())
        _end(line)
    return ""


def speaks_out_of_turn(place: _Place) -> str:
    """Before its hello, a second hello, an unknown version, a word of the daemon's, an id twice."""
    wrong: list[dict[str, object]] = [HELLO, HELLO | {"version": 9}, {"op": "welcome", "version": 1}, {"op": "nothing"}]
    for first in ([SUBMIT], [HELLO, HELLO], wrong[1:2], [HELLO, wrong[2]], [HELLO, wrong[3]], [HELLO, SUBMIT, SUBMIT]):
        with place.line(*first) as line:
            if said := _must_hear(line, '"op":"failed"'):
                return f"{first}: {said}"
    return ""


def never_reads(place: _Place) -> str:
    """It asks for much more than may wait for it."""
    with Client(place.path) as client:
        call = client.call("shell", {"argv": ["head", "-c", "300000", "/dev/zero"]}, deadline_ms=20_000).call
    with place.line(HELLO) as line, contextlib.suppress(OSError):
        line.sendall(
            b"".join(_json({"op": "read_output", "id": n, "call": call, "limit": 262_144}) for n in range(300))
        )
        time.sleep(CUT_AFTER_MS / 1_000)
    return ""


def waits_and_leaves(place: _Place) -> str:
    """Thousands of requests that are answered when a call ends; and gone before it does."""
    with Client(place.path) as client:
        handle = client.submit("shell", {"argv": ["sleep", "600"]}, deadline_ms=60_000)
        asks = b"".join(_json({"op": "wait", "id": n, "call": handle.call}) for n in range(4_000))
        for _ in range(3):
            with place.line(HELLO) as line, contextlib.suppress(OSError):
                line.sendall(asks)
        handle.cancel()
        status = handle.wait(PATIENCE_S).status
    return "" if status is Status.CANCELLED else f"the call that was waited for ended {status}"


def asks_for_others(place: _Place) -> str:
    """Calls and runs that are not there: each is an answer, and the connection goes on."""
    names: list[dict[str, object]] = [
        {"op": op, what: name}
        for op, what in (("wait", "call"), ("cancel", "call"), ("read_output", "call"), ("cancel_run", "run"))
        for name in ("", "c_0", "../../etc/passwd", "x" * 10_000, "\0")
    ]
    with place.line(HELLO) as line:
        for number, message in enumerate(names):
            line.sendall(_json(message | {"id": number}))
        line.sendall(_json({"op": "ask_status", "id": 999}))
        heard = b""
        while b"daemon_status" not in heard:
            if not (piece := line.recv(1 << 16)):
                return f"it was cut: {heard[-300:]!r}"
            heard += piece
    failed = heard.count(b'"op":"failed"')
    return "" if failed == len(names) else f"{failed} of {len(names)} were refused: {heard[-300:]!r}"


def mutters(place: _Place) -> str:
    """Good messages of any kind with something broken, as frames, some with a length that lies."""
    speak, codec, rng = speaker_of(cm.Request), client_to_daemon(), place.rng
    for _ in range(30):
        with place.line() as line, contextlib.suppress(OSError):
            line.sendall(_frame(codec.pack(cm.Hello(1)), rng, lies=False))
            for _ in range(20):
                message = speak(rng)
                if not isinstance(message, CALLED_OFF):
                    words = codec.pack(message)
                    line.sendall(_frame(mutated(words, words, rng.random), rng, lies=rng.random() < 0.05))
            line.shutdown(socket.SHUT_WR)
            line.settimeout(0.05)
            line.recv(1 << 16)
    return ""


def _frame(body: bytes, rng: random.Random, lies: bool) -> bytes:
    return (header(len(body), rng.random) if lies else len(body).to_bytes(4, "big")) + body


def comes_too_often(place: _Place) -> str:
    """More connections than may be: those beyond are turned away, and nobody is that was there before."""
    refused = 0
    with contextlib.ExitStack() as lines:
        for _ in range(MOST_CLIENTS + 8):
            line = lines.enter_context(place.line())
            with contextlib.suppress(OSError):
                line.sendall(_json(HELLO))
            try:
                refused += b"welcome" not in line.recv(4096)
            except ConnectionError:
                refused += 1
    return "" if refused else f"{MOST_CLIENTS + 8} were let in, of {MOST_CLIENTS} at most"


KINDS: tuple[Callable[[_Place], str], ...] = (
    drips,
    babbles,
    leaves,
    is_silent,
    half_a_message,
    announces_too_much,
    nests,
    speaks_out_of_turn,
    never_reads,
    waits_and_leaves,
    asks_for_others,
    mutters,
    comes_too_often,
)
CLOSES_THE_DOOR = (comes_too_often, drips)
"""While it is at it nobody else is let in at once."""


# ---------------------------------------------------------------- and the good ones


def run(count: int, seed: int) -> Figures:
    """So many rounds of all kinds, in an order and with words that are the seed's."""
    directory = Path(tempfile.mkdtemp(prefix="dl-"))
    figures, wrong, rng = Figures(), [], random.Random(seed)
    try:
        with SuiteDaemon(directory, SETTINGS, restart=PATIENT, quarantine=TRUSTING) as daemon:
            daemon.start("weighed")
            before = calm(daemon)
            with _GoodOnes(daemon.socket, directory, seed) as good:
                for turn in range(count):
                    for kind in rng.sample(KINDS, len(KINDS)):
                        figures.tried += 1
                        wrong += [
                            f"round {turn}, {kind.__name__}: {what}" for what in _let_loose(kind, daemon, good, rng)
                        ]
            wrong += good.wrong
            figures.counts["good calls"] = good.served
            figures.counts["ms good calls p99"] = _p99(good.took)
            after = calm(daemon, before._replace(threads=before.threads + THREADS))
            wrong += [
                f"{name}: {was} before, {has} after"
                for name, was, has in zip(before._fields, before, after, strict=True)
                if has > was + THREADS * (name == "threads")
            ]
            with Client(daemon.socket) as client:
                wrong += client.status().degraded
            words = (directory / "log").read_text(errors="replace")
            wrong += [words[-2_000:]] * ("Traceback" in words)
            if code := daemon.stop():
                wrong.append(f"it exited {code}: {daemon.words()}")
            wrong += wrong_in_log(daemon.state, {}, figures)
    except (NotReady, DeadlinedError, TimeoutError) as error:
        wrong.append(f"{type(error).__name__}: {error}")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    for what in wrong:
        figures.fail(f"seed {seed}: {what}")
    return figures


def _let_loose(
    kind: Callable[[_Place], str], daemon: SuiteDaemon, good: _GoodOnes, rng: random.Random
) -> Iterator[str]:
    assert daemon.process is not None
    served, place = good.served, _Place(daemon.socket, random.Random(rng.random()))
    with ThreadPoolExecutor(1) as pool:
        bad = pool.submit(kind, place)
        try:
            if kind not in CLOSES_THE_DOOR:
                _come(daemon.socket)
            if what := bad.result(60):
                yield what
            _come(daemon.socket, MANY)
        except (DeadlinedError, OSError, subprocess.TimeoutExpired) as error:
            yield f"{type(error).__name__}: {error}"
    if daemon.process.poll() is not None:
        yield f"the daemon has ended: {daemon.words()}"
        raise NotReady("the daemon has ended")
    if not good.serves_on(served):
        yield f"no good call was served in {PATIENCE_S:g} s"


def _come(path: str, many: int = 1) -> None:
    """Good clients that come now. One may be too late with its hello, on a machine that is busy, or too early, when the
    daemon has not yet seen others go: then they come again. Raises ConnectionLost, DaemonSilent."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            with contextlib.ExitStack() as stack:
                for _ in range(many):
                    stack.enter_context(Client(path, answer_timeout_s=PATIENCE_S)).status()
                return
        except ConnectionLost:
            if time.monotonic() > until:
                raise


class _GoodOnes:
    """Clients that are there all the time. ``took``: milliseconds of each call of theirs that does nothing.
    ``served``: all of them."""

    def __init__(self, path: str, directory: Path, seed: int) -> None:
        self._path, self._seed = path, seed
        self._ledger = Ledger(directory / "effects", "g")
        self._over, self._pool = threading.Event(), ThreadPoolExecutor(GOOD)
        self.took: list[int] = []
        self.served = 0
        self.wrong: list[str] = []

    def __enter__(self) -> _GoodOnes:
        self._jobs = [self._pool.submit(self._ask, f"g{at}") for at in range(GOOD)]
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._pool.shutdown()
        done = self._ledger.lines()
        for asked in self._ledger.asked:
            result = asked.result
            if result is None or result.status is not Status.OK:
                self.wrong.append(f"good {asked.name} ({asked.tool}): {result}")
            elif asked.effect and (what := contradiction(result, done[asked.name])):
                self.wrong.append(f"good {asked.name} ({asked.tool}): {what}")

    def serves_on(self, served: int) -> bool:
        """Whether some call of theirs ends that had not."""
        until = time.monotonic() + PATIENCE_S
        while self.served <= served and time.monotonic() < until:
            time.sleep(0.005)
        return self.served > served

    def _ask(self, prefix: str) -> None:
        rng, number = random.Random(f"{self._seed} {prefix}"), 0
        try:
            with Client(self._path) as client:
                while not self._over.wait(PAUSE_S):
                    asked = self._ledger.write(f"{prefix}n{number}", rng)
                    asked.detach, number = False, number + 1
                    began = time.monotonic()
                    asked.told = msgspec.msgpack.encode(asked.submit(client).wait(PATIENCE_S))
                    self.served += 1
                    if not asked.effect:
                        self.took.append(round(1_000 * (time.monotonic() - began)))
        except (DeadlinedError, TimeoutError) as error:
            self.wrong.append(f"good client {prefix}: {type(error).__name__}: {error}")


def _p99(values: list[int]) -> int:
    return sorted(values)[math.ceil(0.99 * len(values)) - 1] if values else 0


SUITE = Suite(
    passes_when="every good call is served, every bad client answered or cut, and the daemon is as it was",
    push=1,
    long=300,
    run=run,
)
