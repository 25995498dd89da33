"""Good, slow and hostile calls at once; cancelled, left alone, delivered twice, done and then told as failed; runs with
budgets among them; while workers, zygotes and killers are killed. Then the daemon is, and the next one is asked.

The page's count is N=3000, a push has some of it. Passes when the invariants hold, by witnesses that ask no daemon:

* I1, I2: one end for each call, the same bytes for every reader, now and after kill -9;
* I3: nothing is done twice, though everything is asked for again; what was done goes together with what is said of it;
* I4: nobody holds the pipe of a call (`pipes`) when its end is told; nobody is left after the daemon (`orphans`);
* I5: no answer comes later than deadline and confirm budget (and than this machine stood still, `lateness`);
* I6: no word of one call stands in the result of another;
* I7, I8: the daemon lives, holds in the end what it held before, and its log adds up (`whole_log`).
"""

from __future__ import annotations

import random
import re
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

import msgspec

from deadlined._errors import DeadlinedError, RequestRefused, RunStopped
from deadlined.client import Client
from protocol._outcomes import CallResult, Delivery
from protocol._runs import StopRecord
from tests.trust import pipes
from tests.trust.daemons import PATIENT, TRUSTING, NotReady, SuiteDaemon
from tests.trust.disorder import KINDS, TABLES, Place, Tried, as_meant, may_live, tried, wrong_end
from tests.trust.held import calm
from tests.trust.lateness import Pulse
from tests.trust.ledger import Ledger
from tests.trust.orphans import GONE_WITHIN_S, adopt_orphans, below_us, left_after
from tests.trust.registry import Figures, Suite
from tests.trust.victims import kill_a_helper
from tests.trust.whole_log import wrong_in_log

LANES = 2
A_LANE = 100
"""Fewer calls are for one daemon: its start, its end and its next life cost as much as they do."""
CLIENTS = 5
CALLS_A_KILL = 6
WITHIN_S = 0.05
SETTINGS = {"spares": 2, "idle_worker_ms": 1_000, "output_ttl_ms": 1_000}
RUN_SHARE = 0.04
MOST_OF_A_RUN = 4
ANSWER_S = 60.0
LEAST_FAULTS, LEAST_MEANT = 1 / 3, 2 / 3
"""Shares of the calls that are one, and of those that end as their kind does: else nothing was shown."""
LEAST_JUDGED = 100
THREADS = 12
"""Of the daemon's pools, which end when idle for ten seconds: `leaks` waits for them."""
_NAMES = re.compile(rb"k\d+c\d+n\d+(?:r\d+)?")


def run(count: int, seed: int) -> Figures:
    """Make ``count`` calls of two daemons. What is asked for is the seed's, what happens at the same time is not."""
    figures = Figures()
    lanes = max(1, min(LANES, count // A_LANE))
    each = [count // lanes + (lane < count % lanes) for lane in range(lanes)]
    with ProcessPoolExecutor(lanes, get_context("spawn"), adopt_orphans) as pool:
        for found in pool.map(lane, range(lanes), each, [seed] * lanes):
            figures.add(found)
    for what, least in (("faults", LEAST_FAULTS), ("ended as meant", LEAST_MEANT)):
        if figures.tried >= LEAST_JUDGED and figures.counts.get(what, 0) < least * figures.tried:
            figures.fail(f"{figures.counts.get(what, 0)} of {figures.tried} calls: {what}; that shows nothing")
    return figures


def lane(number: int, count: int, seed: int) -> Figures:
    """So many calls of one daemon, and what its next life knows of them."""
    directory = Path(tempfile.mkdtemp(prefix="dl-"))
    (directory / "pipes").mkdir()
    figures, wrong = Figures(tried=count), []
    try:
        with (
            SuiteDaemon(directory, SETTINGS, restart=PATIENT, quarantine=TRUSTING, **TABLES) as daemon,
            Pulse() as pulse,
        ):
            daemon.start("weighed")
            whole = _Lane(daemon, directory, pulse, figures, f"{seed} {number}", f"k{number}")
            try:
                wrong += whole.live(count)
                wrong += whole.die()
                wrong += whole.live_again()
            except (NotReady, DeadlinedError, TimeoutError) as error:
                wrong.append(f"{type(error).__name__}: {error}")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    for what in wrong:
        figures.fail(f"lane {number} of seed {seed}: {what}")
    return figures


@dataclass
class Budgeted:
    """A run that may make ``limit`` calls; ``stop``: its end, as it was told."""

    id: str
    limit: int
    calls: list[Tried] = field(default_factory=list)
    stop: StopRecord | None = None


class _Lane:
    """One daemon, its clients, and their books."""

    def __init__(
        self, daemon: SuiteDaemon, directory: Path, pulse: Pulse, figures: Figures, seed: str, prefix: str
    ) -> None:
        self.daemon, self.figures, self.pulse, self.seed, self.prefix = daemon, figures, pulse, seed, prefix
        self.place = Place(directory / "effects", directory / "pipes")
        self.ledger = Ledger(self.place.effects, prefix)
        self.runs: list[Budgeted] = []
        self.wrong: list[str] = []
        self._lock = threading.Lock()

    def count(self, what: str, by: int = 1) -> None:
        with self._lock:
            self.figures.count(what, by)

    @property
    def calls(self) -> list[Tried]:
        return [one for one in self.ledger.asked if isinstance(one, Tried)]

    # -------------------------------------------------------- while it lives

    def live(self, count: int) -> list[str]:
        """All clients at once, with somebody who kills; then what was told is held against what was done."""
        before, over = calm(self.daemon), threading.Event()
        with ThreadPoolExecutor(CLIENTS + 1) as pool:
            kills = pool.submit(self._kill, over)
            shares = [count // CLIENTS + (at < count % CLIENTS) for at in range(CLIENTS)]
            jobs = [pool.submit(_Asking(self, at).ask, share) for at, share in enumerate(shares)]
            try:
                for job in jobs:
                    job.result()
            finally:
                over.set()
            kills.result()
        with Client(self.daemon.socket) as client:
            self.wrong += self._wrong_told(client)
        after = calm(self.daemon, before._replace(threads=before.threads + THREADS))
        self.wrong += [
            f"{name}: {was} before, {has} after {count} calls"
            for name, was, has in zip(before._fields, before, after, strict=True)
            if has > was + (THREADS if name == "threads" else 0)
        ]
        if "Traceback" in self.daemon.words():
            self.wrong.append(self.daemon.words())
        return self.wrong

    def _kill(self, over: threading.Event) -> None:
        """One helper for so many calls: a machine that is slow must not be kept from ever starting a worker."""
        rng, due = random.Random(f"{self.seed} kills"), CALLS_A_KILL
        while not over.wait(WITHIN_S * rng.random()):
            if len(self.ledger.asked) >= due and (kind := kill_a_helper(self.daemon.pid, rng)):
                due += CALLS_A_KILL
                self.count(f"{kind}s killed")
                self.count("faults")

    def _wrong_told(self, client: Client) -> Iterator[str]:
        done = self.ledger.lines()
        for one in self.calls:
            self.figures.count("effects", done[one.name])
            result = one.result
            if result is None:
                continue  # said already
            self.figures.count("ended as meant", as_meant(one, result))
            if wrong := wrong_end(one, result, done[one.name]):
                yield f"{one.name} ({one.kind.name}): {wrong}"
            yield from self._wrong_reading(client, one)
        for budgeted in self.runs:
            yield from self._wrong_run(client, budgeted, done)

    def _wrong_reading(self, client: Client, one: Tried) -> Iterator[str]:
        """For another reader, as far as it must be known."""
        if one.call is None:
            return
        try:
            again = msgspec.msgpack.encode(client.handle(one.call).wait(ANSWER_S))
        except RequestRefused as refused:
            if one.promised:
                yield f"{one.name} ({one.kind.name}): lost: {refused}"
            return
        if again != one.told:
            yield f"{one.name} ({one.kind.name}): {one.result}, and for another reader {again!r}"

    def _wrong_run(self, client: Client, budgeted: Budgeted, done: Counter[str]) -> Iterator[str]:
        """Its budget holds, by what was really done."""
        stop, times = budgeted.stop, sum(done[one.name] for one in budgeted.calls)
        if stop is None:
            return
        self.figures.count(f"runs {stop.reason}")
        used = stop.budgets["tool_calls"].used
        if not times <= used <= budgeted.limit:
            yield f"run {budgeted.id}: done {times} times, {used} counted, {budgeted.limit} allowed"
        if (again := client.attach_run(budgeted.id).wait()) != stop:
            yield f"run {budgeted.id}: {stop}, and for another reader {again}"

    # -------------------------------------------------------- and dies, and lives again

    def die(self) -> list[str]:
        """kill -9; whoever is alive a second later."""
        self.daemon.kill()
        left = left_after(time.monotonic())
        return [f"alive {GONE_WITHIN_S} s after the daemon: {left}"] if left else []

    def live_again(self) -> list[str]:
        """What the next daemon knows, and what comes of asking for everything again."""
        wrong: list[str] = []
        self.daemon.start()
        with Client(self.daemon.socket) as client:
            for one in self.calls:
                if one.promised:
                    wrong += self._wrong_reading(client, one)
            before = self.ledger.lines()
            with ThreadPoolExecutor(CLIENTS) as pool:
                wrong += [what for what in pool.map(lambda one: self._wrong_again(client, one), self.calls) if what]
            after = self.ledger.lines()
        for one in self.calls:
            if after[one.name] > 1 or (before[one.name] and after[one.name] != before[one.name]):
                wrong.append(f"{one.name} ({one.kind.name}): done {before[one.name]} times, then {after[one.name]}")
        if code := self.daemon.stop():
            wrong.append(f"it exited {code}: {self.daemon.words()}")
        left = [str(process) for process in below_us()]
        left += [one.name for one in self.calls if pipes.is_held(one.pipe)]
        return (
            wrong + [f"left in the end: {left}"] * bool(left) + list(wrong_in_log(self.daemon.state, {}, self.figures))
        )

    def _wrong_again(self, client: Client, one: Tried) -> str:
        told, again = one.result, one.submit(client).wait(ANSWER_S)
        if told is None or not one.promised or _same(told, again):
            return ""
        return f"{one.name} ({one.kind.name}), asked again: {again}, told was {told}"


def _same(told: CallResult, again: CallResult) -> bool:
    """But for the mark that it is told again."""
    return msgspec.structs.replace(told, replayed=False) == msgspec.structs.replace(again, replayed=False)


class _Asking:
    """One client."""

    def __init__(self, lane: _Lane, number: int) -> None:
        self._lane, self._prefix = lane, f"{lane.prefix}c{number}"
        self._rng = random.Random(f"{lane.seed} {number}")
        self._ways = {
            "wait": self._wait,
            "cancel": self._cancel,
            "leave": self._leave,
            "detach": self._leave,
            "twice": self._twice,
        }

    def ask(self, count: int) -> None:
        """So many calls, some of them in runs."""
        number = 0
        with Client(self._lane.daemon.socket) as self._client:
            while number < count:
                name = f"{self._prefix}n{number}"
                most = min(count - number, MOST_OF_A_RUN)
                try:
                    if self._rng.random() < RUN_SHARE:
                        self._in_a_run(name, most)
                        number += most
                    else:
                        self._ask_for(self._drawn(name))
                        number += 1
                except (DeadlinedError, TimeoutError) as error:
                    self._lane.wrong.append(f"{name}: {type(error).__name__}: {error}")
                    number += most

    def _drawn(self, name: str, run: str | None = None) -> Tried:
        kind = self._rng.choices(KINDS, [kind.share for kind in KINDS])[0]
        return tried(kind, name, self._lane.place, self._rng, run)

    def _ask_for(self, one: Tried) -> None:
        self._lane.ledger.enter(one)
        self._lane.count("faults", one.kind.fault)
        one.asked = time.monotonic()
        self._ways[one.kind.way](one)

    def _in_a_run(self, name: str, most: int) -> None:
        """One call more than its budget has, unless something else ends it; then its end."""
        limit = self._rng.randrange(1, MOST_OF_A_RUN)
        run = self._client.open_run(goal=name, session=self._prefix, limits={"tool_calls": limit})
        budgeted = Budgeted(run.id, limit)
        self._lane.runs.append(budgeted)
        for number in range(most):
            budgeted.calls.append(self._drawn(f"{name}r{number}", run.id))
            self._ask_for(budgeted.calls[-1])
        try:
            end = run.finish("done")
        except RunStopped as stopped:
            end = stopped.stop
        budgeted.stop = run.cancel() if not isinstance(end, StopRecord) or end.resumable else end

    # -------------------------------------------------------- ways to ask

    def _wait(self, one: Tried) -> None:
        handle = one.submit(self._client)
        one.call = handle.call
        self._hear(one, handle.wait(ANSWER_S))

    def _cancel(self, one: Tried) -> None:
        handle = one.submit(self._client)
        one.call = handle.call
        time.sleep(self._rng.random() * 0.04)
        handle.cancel()
        self._hear(one, handle.wait(ANSWER_S))

    def _leave(self, one: Tried) -> None:
        """Another connection asks and ends; its call ends with it, unless it is detached. This one hears of it."""
        with Client(self._lane.daemon.socket) as leaver:
            one.call = one.submit(leaver).call
            time.sleep(self._rng.random() * 0.04)
        self._hear(one, self._client.handle(one.call).wait(ANSWER_S))

    def _twice(self, one: Tried) -> None:
        """Two connections deliver the same."""
        with Client(self._lane.daemon.socket) as other:
            handle, second = one.submit(self._client), one.submit(other)
            one.call = handle.call
            self._hear(one, handle.wait(ANSWER_S))
            first, again = handle.wait(), second.wait(ANSWER_S)
        if first.delivery is not Delivery.NOT_DELIVERED and not _same(first, again):  # else it may be tried again
            self._lane.wrong.append(f"{one.name} ({one.kind.name}): delivered twice, {first} and {again}")

    def _hear(self, one: Tried, result: CallResult) -> None:
        """What must hold at this instant."""
        one.heard, held = time.monotonic(), pipes.is_held(one.pipe)
        one.told = msgspec.msgpack.encode(result)
        wrong: list[str] = []
        if held and not may_live(result):
            wrong.append(f"told, and something of it is alive: {result}")
        if (late := self._lane.pulse.too_late(one.asked, one.deadline_ms, one.heard)) > 0:
            wrong.append(f"told {late:.3f} s too late: {result.status} {result.reason} {result.timing}")
        if foreign := {name for name in _NAMES.findall(one.told) if name.decode() != one.name}:
            wrong.append(f"words of {foreign} in it: {result}")
        self._lane.count("kills not confirmed", may_live(result))
        self._lane.wrong += [f"{one.name} ({one.kind.name}): {what}" for what in wrong]


SUITE = Suite(
    passes_when="0 lost, 0 doubled, 0 survivors, none told late or of another, the daemon is as it was (N=3000)",
    push=50,
    long=100_000,
    run=run,
)
