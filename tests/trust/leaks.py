"""Many calls of every ending against one daemon: what it holds afterwards is what it held before.

Counted from outside, by /proc and directory listings: descriptors, threads, descendants, control groups, directories of
workers, outputs. Memory is counted twice: what is in use, by the allocators' own account (`rigged`), which is exact in
a short run too; and what the kernel gave (RssAnon), which is judged from `RESIDENT_FROM` calls on, because before that
arenas are still filling. Results are kept for a second here, so that what is kept by design does not grow.
"""

from __future__ import annotations

import math
import os
import random
import re
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from deadlined._errors import DeadlinedError, RequestRefused
from deadlined.client import Client
from protocol._outcomes import CallResult, Reason, Status
from tests.trust.daemons import SuiteDaemon
from tests.trust.held import CALM_WITHIN_S, Held, calm, resident
from tests.trust.registry import Figures, Suite
from tests.trust.rigged import IN_USE

LANES = 4
_SMALL = re.compile(r"# bytes in allocated blocks += +([\d,]+)")
SETTINGS = {"result_ttl_ms": 1_000, "output_ttl_ms": 1_000, "idle_worker_ms": 1_000, "spares": 2}
BYTES_A_CALL = 102.4
NOISE_BYTES = 96 << 10
"""Caches of the interpreter, buffers that have grown: once, whatever the number of calls."""
RESIDENT_FROM = 20_000
WARM_UP = 0.3
"""Share of the calls that come before the first look."""


def _noop(client: Client, *_: object) -> CallResult:
    return client.call("trust_noop")


def _prints(client: Client, rng: random.Random, *_: object) -> CallResult:
    return client.call("trust_print", {"text": "x" * rng.randrange(1, 20_000)})


def _shell_ok(client: Client, *_: object) -> CallResult:
    return client.call("shell", {"argv": ["echo", "hello"]})


def _shell_error(client: Client, *_: object) -> CallResult:
    return client.call("shell", {"argv": ["sh", "-c", "echo no >&2; exit 3"]})


def _leftovers(client: Client, *_: object) -> CallResult:
    return client.call("script", {"text": "sleep 60 & setsid sleep 60 & echo started"})


def _deadline(client: Client, rng: random.Random, *_: object) -> CallResult:
    return client.call("trust_sleep", deadline_ms=rng.randrange(1, 30))


def _cancel(client: Client, rng: random.Random, *_: object) -> CallResult:
    handle = client.submit("trust_sleep")
    time.sleep(rng.random() / 200)
    handle.cancel()
    return handle.wait()


def _disconnect(client: Client, rng: random.Random, socket: str) -> CallResult | None:
    """Another client comes, asks and goes; the first one hears what became of its call."""
    with Client(socket) as leaver:
        call = leaver.submit("trust_sleep").call
        time.sleep(rng.random() / 200)
    return _result_of(client, call)


def _detached(client: Client, *_: object) -> CallResult | None:
    return _result_of(client, client.submit("trust_noop", detach=True).call)


def _result_of(client: Client, call: str) -> CallResult | None:
    """None: it is no longer kept. A machine that stands still for longer than results are kept here leaks nothing."""
    try:
        return client.handle(call).wait()
    except RequestRefused:
        return None


class Kind(NamedTuple):
    """Out of a hundred calls how many, and how each must end."""

    call: Callable[[Client, random.Random, str], CallResult | None]
    share: int
    status: frozenset[Status]
    reason: Reason | None = None


_OK = frozenset({Status.OK})
KINDS = (
    Kind(_noop, 69, _OK),
    Kind(_prints, 4, _OK),
    Kind(_shell_ok, 10, _OK),
    Kind(_shell_error, 6, frozenset({Status.ERROR})),
    Kind(_leftovers, 1, _OK),
    Kind(_deadline, 3, frozenset({Status.KILLED, Status.NOT_EXECUTED}), Reason.TIME_BUDGET),
    Kind(_cancel, 2, frozenset({Status.CANCELLED}), Reason.CLIENT),
    Kind(_disconnect, 2, frozenset({Status.CANCELLED}), Reason.DISCONNECT),
    Kind(_detached, 3, _OK),
)


def run(count: int, seed: int) -> Figures:
    """Make ``count`` calls in four lanes; the endings are those of the seed, their order in time is not."""
    directory = Path(tempfile.mkdtemp(prefix="dl-"))
    figures = Figures()
    try:
        with SuiteDaemon(directory, SETTINGS) as daemon:
            daemon.start("weighed")
            try:
                _play(daemon, count, seed, figures)
            except DeadlinedError as error:
                figures.fail(f"after {figures.tried} calls of seed {seed}: {error}")
            if code := daemon.stop():
                figures.fail(f"the daemon exited {code} at its stop: {daemon.words()}")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return figures


def _play(daemon: SuiteDaemon, count: int, seed: int, figures: Figures) -> None:
    warm_up = int(count * WARM_UP)
    _calls(daemon, warm_up, f"{seed} warm", figures)
    before, used, resident_before = calm(daemon), _in_use(daemon), resident(daemon)
    _calls(daemon, count - warm_up, f"{seed}", figures)
    after, allowed = calm(daemon, before), BYTES_A_CALL * (count - warm_up)
    for name, was, has in zip(Held._fields, before, after, strict=True):
        figures.counts[f"{name} {was} →"] = has
        if has > was:
            figures.fail(f"{name}: {was} before, {has} after {count - warm_up} calls of seed {seed}")
    for what, grown, most in (
        ("bytes in use", _in_use(daemon) - used, NOISE_BYTES + allowed),
        ("bytes resident", resident(daemon) - resident_before, allowed if count >= RESIDENT_FROM else math.inf),
    ):
        figures.counts[f"{what} {grown:+,}, a call"] = round(grown / (count - warm_up))
        if grown > most:
            figures.fail(f"{what}: {grown:+,} after {count - warm_up} calls of seed {seed}, {most:,.0f} allowed")


def _calls(daemon: SuiteDaemon, count: int, seed: str, figures: Figures) -> None:
    kinds = random.Random(seed).choices(KINDS, [kind.share for kind in KINDS], k=count)
    lock = threading.Lock()

    def lane(number: int) -> None:
        rng = random.Random(f"{seed} {number}")
        with Client(daemon.socket) as client:
            for kind in kinds[number::LANES]:
                result = kind.call(client, rng, daemon.socket)
                with lock:
                    _judge(kind, result, figures)

    with ThreadPoolExecutor(LANES) as pool:
        list(pool.map(lane, range(LANES)))


def _judge(kind: Kind, result: CallResult | None, figures: Figures) -> None:
    figures.tried += 1
    if result is None:
        figures.count("forgotten before they were asked for")
        return
    if result.reason is Reason.TIME_BUDGET or result.status is Status.CANCELLED:
        figures.count("ended by force")
    if result.status not in kind.status or result.reason is not kind.reason:
        figures.fail(f"{kind.call.__name__} ended {result.status} {result.reason}: {result.summary}")


def _in_use(daemon: SuiteDaemon) -> int:
    """Bytes that objects of the daemon take, as it says itself in its log when it is asked."""
    time.sleep(SETTINGS["result_ttl_ms"] / 500)  # no result is kept any more
    log = daemon.directory / "log"
    start = log.stat().st_size
    os.kill(daemon.pid, signal.SIGUSR2)
    until = time.monotonic() + CALM_WITHIN_S
    while (said := log.read_bytes()[start:].decode(errors="replace")).count("\n" + IN_USE) == 0 or said[-1] != "\n":
        if time.monotonic() > until:
            raise TimeoutError(f"the daemon did not say how much it has in use: {said[-200:]}")
        time.sleep(0.05)
    small = _SMALL.search(said)
    assert small is not None
    return int(small[1].replace(",", "")) + int(said.rpartition(IN_USE)[2])


SUITE = Suite(
    passes_when="+0 descriptors, threads, processes, groups, directories; memory < 0.1 KiB a call (N=10000)",
    push=2_000,
    long=1_000_000,
    run=run,
)
