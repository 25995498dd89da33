"""Two hundred clients of one daemon that ask for more than it takes: 64 calls in flight, 256 in its queue (defaults).

The count is of calls; the page's push is all clients with ten calls each (N=2000), ten minutes about N=60000. Passes
when nothing that was asked for is lost or done twice; what is refused is refused as `overloaded`, retryable and not
delivered, and is served when it is asked for again; nothing is told later than its deadline, the confirm budget and
what this machine stood still (`lateness`); and nothing overdue is ok.

How far beyond their deadlines calls were killed and told, and what memory the daemon has, are figures beside the
verdict: on a machine that also does other things they say more of it than of the daemon.
"""

from __future__ import annotations

import contextlib
import math
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

import msgspec

from deadlined._errors import DeadlinedError, RequestRefused
from deadlined.client import CallHandle, Client
from protocol._outcomes import CallResult, Delivery, Reason, Status
from tests.trust.daemons import PATIENT, TRUSTING, NotReady, SuiteDaemon
from tests.trust.held import resident
from tests.trust.lateness import Pulse
from tests.trust.ledger import Asked, Ledger, contradiction
from tests.trust.registry import Figures, Suite

LANES = 2
CLIENTS = 100
"""Of each lane."""
MOST_AT_ONCE = 4
OVERDUE_SHARE, SLOW_SHARE = 0.15, 0.35
OVERDUE_MS = (300, 1_500)
SLOW_MS = (300, 1_500)
"""Only what lasts is in flight with many others."""
ENOUGH = 1_000
SHORT_QUEUE = 16
"""Fewer calls do not fill the queue that is default, and are to meet a full one."""
LOOK_EVERY_S = 0.05
ANSWER_S = 120.0


@dataclass
class Found:
    """What one lane has found; threads append to it. Milliseconds beyond the deadline: until the kernel's word
    (``killed``), and until it was ``heard``."""

    figures: Figures = field(default_factory=Figures)
    wrong: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    killed: list[int] = field(default_factory=list)
    heard: list[int] = field(default_factory=list)


def run(count: int, seed: int) -> Figures:
    """Ask for ``count`` things, each until it is served. What is asked for is the seed's, who is refused is not."""
    directory = Path(tempfile.mkdtemp(prefix="dl-"))
    figures, found = Figures(), []
    try:
        settings = {} if count >= ENOUGH else {"queue": SHORT_QUEUE}
        with SuiteDaemon(directory, settings, restart=PATIENT, quarantine=TRUSTING) as daemon:
            daemon.start()
            each = [count // LANES + (lane < count % LANES) for lane in range(LANES)]
            with ProcessPoolExecutor(LANES, get_context("spawn")) as pool, _looking(daemon, figures):
                where = [str(directory)] * LANES, [daemon.socket] * LANES
                found = list(pool.map(lane, range(LANES), each, [seed] * LANES, *where))
            if code := daemon.stop():
                figures.fail(f"seed {seed}: it exited {code}: {daemon.words()}")
    except (NotReady, DeadlinedError) as error:
        figures.fail(f"seed {seed}: {error!r}")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    for one in found:
        figures.add(one.figures)
    figures.counts["ms overshoot p99"] = _p99([ms for one in found for ms in one.killed])
    figures.counts["ms told after the deadline p99"] = _p99([ms for one in found for ms in one.heard])
    if 2 * figures.counts.get("calls ok", 0) < figures.tried:
        figures.fail(f"seed {seed}: hardly anything was done: {figures.counts}")
    if not figures.counts.get("refused for overload"):
        figures.fail(f"seed {seed}: the daemon had never more to do than it takes: {figures.counts}")
    return figures


def _p99(values: list[int]) -> int:
    return sorted(values)[math.ceil(0.99 * len(values)) - 1] if values else 0


@contextlib.contextmanager
def _looking(daemon: SuiteDaemon, figures: Figures) -> Iterator[None]:
    """How much the daemon has in hand, and how much memory, while it is asked."""
    over = threading.Event()

    def look() -> None:
        with Client(daemon.socket) as client:
            while not over.wait(LOOK_EVERY_S):
                status = client.status()
                figures.peak("in flight", status.calls_in_flight)
                figures.peak("queued", status.calls_queued)
                figures.peak("MiB resident", resident(daemon, "VmRSS") >> 20)

    with ThreadPoolExecutor(1) as pool:
        looks = pool.submit(look)
        try:
            yield
        finally:
            over.set()
        looks.result()


def lane(number: int, count: int, seed: int, directory: str, socket: str) -> Found:
    """So many calls of half of the clients."""
    found, ledger = Found(), Ledger(Path(directory) / f"effects{number}", f"l{number}")
    with Pulse() as pulse, ThreadPoolExecutor(CLIENTS) as pool:
        all_there = threading.Barrier(CLIENTS, timeout=ANSWER_S)
        clients = [
            _Greedy(found, ledger, pulse, socket, f"{ledger.prefix}c{at}", seed, all_there) for at in range(CLIENTS)
        ]
        shares = [count // CLIENTS + (at < count % CLIENTS) for at in range(CLIENTS)]
        for job in [pool.submit(client.ask, share) for client, share in zip(clients, shares, strict=True)]:
            job.result()
    done = ledger.lines()
    for asked in ledger.asked:
        found.figures.tried += 1
        if asked.result is not None:
            found.figures.count(f"calls {asked.result.status}")
        if wrong := _wrong(asked, done[asked.name]):
            found.wrong.append(f"{asked.name} ({asked.tool}): {wrong}")
    for what in found.wrong:
        found.figures.fail(f"seed {seed}: {what}")
    found.figures.count("refused for overload", len(found.refused))
    return found


def _wrong(asked: Asked, done: int) -> str:
    result = asked.result
    if result is None:
        return f"lost, and done {done} times"
    if asked.effect:
        return contradiction(result, done)
    if result.reason is Reason.TIME_BUDGET:  # what has time enough may be late on a slow machine, and is told in time
        return ""
    ends = asked.tool != "trust_sleep" or "ms" in asked.arguments
    return "" if ends and result.status is Status.OK else f"it ended {result.status} {result.reason}: {result.summary}"


class _Greedy:
    """One client, which asks for several things at once."""

    def __init__(
        self,
        found: Found,
        ledger: Ledger,
        pulse: Pulse,
        socket: str,
        prefix: str,
        seed: int,
        all_there: threading.Barrier,
    ) -> None:
        self._all_there = all_there
        self._found, self._ledger, self._pulse = found, ledger, pulse
        self._socket, self._prefix = socket, prefix
        self._rng = random.Random(f"{seed} {prefix}")

    def ask(self, count: int) -> None:
        """So many things, some of them at once, when every client is there."""
        number = 0
        try:
            with Client(self._socket, answer_timeout_s=ANSWER_S) as self._client:
                self._all_there.wait()
                while number < count:
                    some = min(count - number, self._rng.randrange(1, MOST_AT_ONCE + 1))
                    self._serve([self._drawn(f"{self._prefix}n{number + at}") for at in range(some)])
                    number += some
        except (DeadlinedError, TimeoutError, threading.BrokenBarrierError) as error:
            self._all_there.abort()  # the others need not wait for this one
            self._fail(f"{self._prefix}, from {number} of {count} on: {error!r}")

    def _drawn(self, name: str) -> Asked:
        kind = self._rng.random()
        if kind < OVERDUE_SHARE:
            overdue = Asked(name, "trust_sleep", {}, effect=False, deadline_ms=self._rng.randrange(*OVERDUE_MS))
            return self._ledger.enter(overdue)
        if kind < OVERDUE_SHARE + SLOW_SHARE:
            slow = Asked(name, "trust_sleep", {"ms": self._rng.randrange(*SLOW_MS)}, effect=False)
            return self._ledger.enter(slow)
        return self._ledger.write(name, self._rng)

    def _serve(self, some: list[Asked]) -> None:
        """Until each has been served; who must be told first is heard first."""
        until = time.monotonic() + ANSWER_S
        some.sort(key=lambda one: one.deadline_ms)
        while some:
            sent = [(one, time.monotonic(), self._submit(one)) for one in some]
            some = [one for one, asked, handle in sent if handle is None or not self._heard(one, asked, handle)]
            if some and time.monotonic() > until:
                self._fail(f"{some[0].name} was refused for {ANSWER_S:g} s")
                return
            time.sleep(0.1 * self._rng.random() * bool(some))

    def _submit(self, one: Asked) -> CallHandle | None:
        try:
            return one.submit(self._client)
        except RequestRefused as refused:
            if refused.error.code != "overloaded":
                self._fail(f"{one.name} was refused: {refused}")
            return None

    def _heard(self, one: Asked, asked: float, handle: CallHandle) -> bool:
        """Whether it was served."""
        result, heard = handle.wait(ANSWER_S), time.monotonic()
        if result.reason is Reason.OVERLOADED:
            self._found.refused.append(one.name)
            if not result.retryable or result.delivery is not Delivery.NOT_DELIVERED:
                self._fail(f"{one.name} was refused as if for good: {result}")
            return False
        one.call, one.told = handle.call, msgspec.msgpack.encode(result)
        if (late := self._pulse.too_late(asked, one.deadline_ms, heard)) > 0:
            self._fail(f"{one.name} was told {late:.3f} s too late: {result.status} {result.timing}")
        self._note(one, result, asked, heard)
        return True

    def _note(self, one: Asked, result: CallResult, asked: float, heard: float) -> None:
        if result.status is Status.KILLED and result.reason is Reason.TIME_BUDGET:
            self._found.killed.append(result.timing.overrun_ms)
            self._found.heard.append(round(1_000 * (heard - asked) - one.deadline_ms))

    def _fail(self, what: str) -> None:
        self._found.wrong.append(what)


SUITE = Suite(
    passes_when="0 lost, 0 doubled, refused only as overloaded and then served, 0 told late (N=2000)",
    push=200,
    long=60_000,
    run=run,
)
