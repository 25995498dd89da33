"""Mutated frames through the buffers and codecs of every link, as the daemon, its workers and its clients read them.

Passes when nothing but RemoteProtocolError comes out; the bytes give the same fed whole and fed in pieces; what was
understood can be passed on to a client of either codec; and the memory of a process that has seen millions of lying
lengths stays what it was. What bytes mean is told a second time here, so that both readings must agree.
"""

from __future__ import annotations

import gc
import itertools
import math
import os
import random
import resource
import tracemalloc
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import msgspec

from protocol import _client_messages as cm
from protocol import _codecs as codecs
from protocol import _worker_messages as wm
from protocol._errors import RemoteProtocolError
from protocol._framing import FRAME_LIMIT, FrameBuffer, LineBuffer
from protocol._links import ClientLink, Speaker, WorkerLink
from protocol._outcomes import CallResult, Status
from tests.trust.mutation import Random, cut, header, mutated
from tests.trust.registry import Figures, Suite
from tests.trust.spoken import json_value, same, speaker_of

PROCESSES = 2
CHUNK = 50_000
BATCH = 24
POOL = 200
EXTRA_MEMORY = 1 << 20
WEIGHED_EVERY = 50
"""Batches between two whose every allocation is counted, which is slow."""
PASSED_ON = ("content", "id", "tools")
"""Fields whose value the daemon hands on: what is wrong in them must be seen when it is heard."""
DEEP = 2_000
FOREIGN: tuple[Any, ...] = (
    math.nan,
    math.inf,
    {1: 2},
    {"a": {"b": b"c"}},
    [[]] * 3,
    -1,
    1.5,
    "7",
    True,
    None,
    b"bytes",
)
"""Values that no content may hold though both codecs can say them, and such as no number may be."""
FOREIGN_MSGPACK = (
    *FOREIGN,
    {None: 1},
    {(1, 2): 3},
    msgspec.msgpack.Ext(7, b"x"),
    msgspec.Raw(b"\x91" * DEEP + b"\xc0"),
)
FOREIGN_JSON = (
    *FOREIGN,
    10**30,
    msgspec.Raw(b"[" * DEEP + b"]" * DEEP),
    msgspec.Raw(b"9" * 5_000),
    msgspec.Raw(b'"\\ud800"'),
)
BLANK = b" \t\r"
"""Beside the newline what JSON calls white space (RFC 8259, 2)."""
_WRONG_HEADER = 0.01
_LIMITS = (FRAME_LIMIT, FRAME_LIMIT, FRAME_LIMIT, 256)


@dataclass(frozen=True)
class Ear:
    """One end that listens: what may be said to it, in frames, lines or datagrams, and what its link does with it."""

    hears: codecs.Codec[Any, Any]
    union: Any
    buffer: type[FrameBuffer | LineBuffer] | None
    link: Callable[[], Callable[[Any], object] | None]


def _from_client() -> Callable[[Any], object]:
    link = ClientLink(Speaker.DAEMON)
    link.hear(cm.Hello(cm.VERSION))
    link.say(cm.Welcome(cm.VERSION, [], 1, "", FRAME_LIMIT))
    return link.hear


def _from_worker() -> Callable[[Any], object]:
    link = WorkerLink(Speaker.DAEMON)
    link.hear(wm.WorkerReady(1))
    link.say(wm.Call(1, "t", "{}", 1, "k"))
    link.hear(wm.Accepted(1))
    return link.hear


def _to_worker() -> Callable[[Any], object]:
    link = WorkerLink(Speaker.WORKER)
    link.say(wm.WorkerReady(1))
    return link.hear


def _no_link() -> None:
    return None


EARS = {
    "client to daemon, msgpack": Ear(codecs.daemon_to_client(False), cm.FromClient, FrameBuffer, _from_client),
    "client to daemon, json": Ear(codecs.daemon_to_client(True), cm.FromClient, LineBuffer, _from_client),
    "daemon to client, msgpack": Ear(codecs.client_to_daemon(False), cm.FromDaemon, FrameBuffer, _no_link),
    "daemon to client, json": Ear(codecs.client_to_daemon(True), cm.FromDaemon, LineBuffer, _no_link),
    "worker to daemon": Ear(codecs.daemon_to_worker(), wm.FromWorker, FrameBuffer, _from_worker),
    "daemon to worker": Ear(codecs.worker_to_daemon(), wm.ToWorker, FrameBuffer, _to_worker),
    "zygote to daemon": Ear(codecs.daemon_to_zygote(), wm.FromZygote, None, _no_link),
    "daemon to zygote": Ear(codecs.zygote_to_daemon(), wm.ToZygote, None, _no_link),
}


def run(count: int, seed: int) -> Figures:
    """Break ``count`` frames in two processes; the same for the same seed, however many processes there are."""
    chunks = [(seed, start, min(CHUNK, count - start)) for start in range(0, count, CHUNK)]
    figures = Figures()
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        for found in pool.map(_chunk, chunks):
            figures.add(found)
    return figures


def _chunk(chunk: tuple[int, int, int]) -> Figures:
    seed, start, count = chunk
    rng = random.Random(f"{seed} {start}")
    pools = {name: bodies(ear, rng) for name, ear in EARS.items()}
    figures = Figures()
    _batches(pools, count // 4, rng, figures)  # the first quarter brings the process to its working size
    gc.collect()
    before = _high_water()
    _batches(pools, count, rng, figures)
    grown = _high_water() - before
    if grown > EXTRA_MEMORY:
        figures.fail(f"chunk {start} of seed {seed}: the process grew by {grown:,} bytes")
    return figures


def _batches(pools: dict[str, list[bytes]], until: int, rng: random.Random, figures: Figures) -> None:
    names = list(EARS)
    for number in itertools.count():
        if figures.tried >= until:
            return
        name = names[int(rng.random() * len(names))]
        size = min(BATCH, until - figures.tried)
        play = _batch if number % WEIGHED_EVERY else _weighed_batch
        play(name, pools[name], size, rng.random, figures)
        figures.tried += size


def _weighed_batch(name: str, pool: list[bytes], size: int, rand: Random, figures: Figures) -> None:
    tracemalloc.start()
    _batch(name, pool, size, rand, figures)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    if peak > EXTRA_MEMORY:
        figures.fail(f"{name}: {peak:,} bytes at once for a batch of {size}")
    figures.peak("bytes of a batch", peak)


def bodies(ear: Ear, rng: random.Random) -> list[bytes]:
    """Well-formed messages, and as many in which one field holds something else: what bytes alone seldom become."""
    speak = speaker_of(ear.union)
    json = ear.buffer is LineBuffer
    encode: Callable[[Any], bytes] = msgspec.json.encode if json else msgspec.msgpack.encode
    made: list[bytes] = []
    for _ in range(POOL // 2):
        message = speak(rng)
        fields = msgspec.to_builtins(message, builtin_types=() if json else (bytes,))
        foreign = rng.choice(FOREIGN_JSON if json else FOREIGN_MSGPACK)
        passed_on = [name for name in PASSED_ON if name in fields] if rng.random() < 0.5 else []
        fields[rng.choice(passed_on or [*fields, "from_the_future"])] = (
            foreign if rng.random() < 0.7 else json_value(rng)
        )
        made += [encode(message), encode(fields)]
    return made


def _batch(name: str, pool: list[bytes], size: int, rand: Random, figures: Figures) -> None:
    ear = EARS[name]
    broken = [_broken(pool, rand) for _ in range(size)]
    if ear.buffer is not None:
        limit = _LIMITS[int(rand() * len(_LIMITS))]
        broken = read_twice(name, stream(broken, ear.buffer, rand), limit, rand, figures)
    link = ear.link()
    for body in broken:
        hear(name, ear, link, body, figures)


def _broken(pool: list[bytes], rand: Random) -> bytes:
    which = int(rand() * POOL)
    if which % 2 and rand() < 0.5:
        return pool[which]  # broken already, in its fields
    return mutated(pool[which], pool[int(rand() * POOL)], rand)


def stream(bodies: list[bytes], buffer: type[FrameBuffer | LineBuffer] | None, rand: Random | None = None) -> bytes:
    """One behind the other, as they go over a socket; with ``rand``, some behind a length that lies."""
    if buffer is LineBuffer:
        return b"".join([body + b"\n" for body in bodies])
    return b"".join(
        [
            (header(len(body), rand) if rand and rand() < _WRONG_HEADER else len(body).to_bytes(4, "big")) + body
            for body in bodies
        ]
    )


def read_twice(name: str, data: bytes, limit: int, rand: Random, figures: Figures) -> list[bytes]:
    """The bodies in a stream. Whole and in pieces must give the same, and it must be what the format says."""
    buffer = EARS[name].buffer
    assert buffer is not None
    try:
        whole = _read(buffer(limit), [data])
        parts = _read(buffer(limit), cut(data, rand))
    except Exception as error:
        figures.fail(f"{name}, limit {limit}: {error!r} for {data.hex()}")
        return []
    meant = _meant_lines(data, limit) if buffer is LineBuffer else _meant_frames(data, limit)
    if not whole == parts == meant:
        figures.fail(f"{name}, limit {limit}: whole, cut and meant differ for {data.hex()}")
    if not whole[1]:
        figures.count("streams broken")
    return whole[0]


def _meant_frames(stream: bytes, limit: int) -> tuple[list[bytes], bool]:
    """What the format says, told a second time and simply: the bodies, and whether the stream ended well."""
    bodies: list[bytes] = []
    while len(stream) >= 4:
        size = int.from_bytes(stream[:4], "big")
        if size > limit or len(stream) < 4 + size:
            return bodies, False
        bodies.append(stream[4 : 4 + size])
        stream = stream[4 + size :]
    return bodies, not stream


def _meant_lines(stream: bytes, limit: int) -> tuple[list[bytes], bool]:
    *lines, rest = stream.split(b"\n")
    good = list(itertools.takewhile(lambda line: len(line) <= limit, lines))
    whole = len(good) == len(lines) and len(rest) <= limit and not rest.strip(BLANK)
    return [line.strip(BLANK) for line in good if line.strip(BLANK)], whole


def _read(buffer: FrameBuffer | LineBuffer, pieces: Iterable[bytes]) -> tuple[list[bytes], bool]:
    bodies: list[bytes] = []
    try:
        for piece in pieces:
            bodies.extend(buffer.feed(piece))
        buffer.eof()
    except RemoteProtocolError:
        return bodies, False
    return bodies, True


def hear(name: str, ear: Ear, link: Callable[[Any], object] | None, body: bytes, figures: Figures) -> None:
    """What one body does to whoever hears it."""
    try:
        message = ear.hears.unpack(body)
    except RemoteProtocolError:
        figures.count("refused")
        return
    except Exception as error:
        figures.fail(f"{name}: {error!r} for {body.hex()}")
        return
    figures.count("understood")
    try:
        _pass_on(message)
        if link is not None:
            link(message)
    except RemoteProtocolError:
        figures.count("out of turn")
    except Exception as error:
        figures.fail(f"{name}: {error!r} after {body.hex()} was understood")


def _pass_on(message: Any) -> None:
    """Say to clients what came in. Whatever fails here, or reaches them unlike, would have been the daemon's fault."""
    if isinstance(message, wm.Ended):
        told: Any = cm.Settled(1, CallResult("c", "t", Status.OK, content=message.content))
    elif isinstance(message, wm.WorkerReady):
        told = cm.Tools(1, message.tools or [])
    elif isinstance(message, (cm.Submit, cm.Wait)):
        told = cm.Submitted(message.id, "c", 1)
    else:
        return
    for speaks_json in (False, True):
        packed = codecs.daemon_to_client(speaks_json).pack(told)
        heard = codecs.client_to_daemon(speaks_json).unpack(packed[:-1] if speaks_json else packed[4:])
        if not same(heard, told):
            raise AssertionError(f"{'json' if speaks_json else 'msgpack'} told {heard} for {told}")


def _high_water() -> int:
    """The most memory that this process ever held, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1024 if os.uname().sysname == "Linux" else 1)


SUITE = Suite(
    passes_when="only protocol errors come out, whole = cut, what is understood can be passed on, ≤ 1 MiB more memory",
    push=2_000_000,
    long=200_000_000,
    run=run,
)
