"""kill -9 of the daemon, at random and at named points of a call, an approval, a run, a start and a stop; then the next
one.

Several daemons side by side, each in a process of this suite that is the reaper of all its orphans: whatever outlives a
daemon becomes that process's child, so the witness of survivors asks neither the daemon nor any mark. Passes when

* nothing that a daemon started is alive a second after it;
* the next daemon starts, without a person;
* every result that was acknowledged is there, byte for byte (one of an attached read-only call may be gone, not other);
* whoever was promised a detached call finds it; each call has at most one terminal record, a recorded call exactly one;
* when everything is asked for again under its key, nothing has been done twice, what succeeded once, and what came to
  nothing not at all until then;
* runs and what they ask a person are as `next_life` says, and go on;
* the whole log verifies at the end and adds up (`whole_log`), and 10 000 calls of a former life are recovered in less
  than a second.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import msgspec

from deadlined._errors import DeadlinedError, RequestRefused
from deadlined.client import Client
from protocol._outcomes import CallResult, Reason, Status
from tests.trust.daemons import READY_WITHIN_S, NotReady, SuiteDaemon
from tests.trust.deaths import OF_A_CALL, OF_A_RUN, OF_A_START, OF_A_STOP, OF_AN_APPROVAL
from tests.trust.ledger import LINGER, Asked, Ledger, ask_until_it_dies, contradiction
from tests.trust.next_life import NextLife
from tests.trust.orphans import GONE_WITHIN_S, adopt_orphans, left_after
from tests.trust.registry import Figures, Suite
from tests.trust.steering import SESSION_CALLS, Books, steer_until_it_dies
from tests.trust.whole_log import wrong_in_log
from tests.trust.yesterday import seconds_to_recover

LANES = 4
CLIENTS = 2
"""Beside one that steers runs, and a person."""
MOST_CALLS = 60
LEAST_POINTS = 10
"""Of fewer nobody says that too many were missed."""
REACHED_WITHIN_S = 3.0
RECOVERED = 10_000
RECOVERED_WITHIN_S = 1.0
TRIES = 6
SETTINGS = {"spares": 2, "shutdown_drain_ms": 100}
LIMITS = {"session": {"tool_calls": SESSION_CALLS}}
POINTS = {"call": OF_A_CALL, "approval": OF_AN_APPROVAL, "run": OF_A_RUN, "start": OF_A_START, "stop": OF_A_STOP}
SHARES = {"at random": 0.2, "call": 0.25, "approval": 0.2, "run": 0.2, "start": 0.1, "stop": 0.05}
ARRIVALS = {"call": 12, "approval": 4, "run": 6}
"""A daemon dies at one of so many first arrivals at its point."""


def run(count: int, seed: int) -> Figures:
    """Kill ``count`` daemons. The points, and when a random kill comes, are the seed's; what runs then is not."""
    figures = Figures()
    each = [count // LANES + (lane < count % LANES) for lane in range(LANES)]
    with ProcessPoolExecutor(LANES, get_context("spawn"), adopt_orphans) as pool:
        for found in pool.map(lane, range(LANES), each, [seed] * LANES):
            figures.add(found)
    _look_at_points(figures)
    seconds = _least_to_recover()
    figures.counts[f"milliseconds to recover {RECOVERED:,} calls"] = round(1_000 * seconds)
    if seconds > RECOVERED_WITHIN_S:
        figures.fail(f"{RECOVERED:,} calls of a former life took {seconds:.2f} s")
    return figures


def _look_at_points(figures: Figures) -> None:
    """A suite that kills at random where it means to kill at a point shows nothing of the points."""
    meant = sum(count for what, count in figures.counts.items() if what.startswith("at a point of"))
    missed = figures.counts.get("points not reached", 0)
    if meant >= LEAST_POINTS and 2 * missed > meant:
        figures.fail(f"{missed} of {meant} points were not reached")


def _least_to_recover() -> float:
    """What it takes, not what else the machine does."""
    taken = [seconds_to_recover(RECOVERED)]
    while len(taken) < TRIES and min(taken) > RECOVERED_WITHIN_S / 2:
        taken.append(seconds_to_recover(RECOVERED))
    return min(taken)


class Plan(NamedTuple):
    """How one daemon dies. ``phase``: at random, or at a point of a call, an approval, a run, a stop, a start (the next
    daemon's)."""

    phase: str
    point: str
    arrival: int

    @property
    def rig(self) -> str:
        """What the daemon that dies is started with."""
        return f"dies={self.point}:{self.arrival}" if self.point and self.phase != "start" else ""


def plan(rng: random.Random) -> Plan:
    """Any of them."""
    phase = rng.choices(list(SHARES), list(SHARES.values()))[0]
    points = POINTS.get(phase, {})
    return Plan(phase, rng.choice(sorted(points)) if points else "", 1 + rng.randrange(ARRIVALS.get(phase, 1)))


def lane(number: int, count: int, seed: int) -> Figures:
    """So many deaths in one place, one after the other: each daemon goes on with what the last one left."""
    directory = Path(tempfile.mkdtemp(prefix="dl-"))
    figures = Figures()
    rng = random.Random(f"{seed} {number}")
    plans, since = [plan(rng) for _ in range(count)], 0
    books, tables = Books(directory), {f"tenant.default.{of}_limits": limits for of, limits in LIMITS.items()}
    try:
        with SuiteDaemon(directory, SETTINGS, **tables) as daemon:
            for turn, (now, then) in enumerate(itertools.pairwise([*plans, Plan("", "", 0)])):
                where = f"lane {number}, death {turn} of seed {seed}"
                if daemon.process is None and not _started(daemon, now.rig, figures, where):
                    continue
                ledger = Ledger(directory / f"effects{turn}", f"t{turn}")
                since = _Round(daemon, ledger, books, rng, figures, now, since).play(where, then.rig)
            if daemon.process is not None:
                daemon.stop()
            for wrong in wrong_in_log(daemon.state, LIMITS, figures):
                figures.fail(f"lane {number} of seed {seed}: {wrong}")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return figures


def _started(daemon: SuiteDaemon, rig: str, figures: Figures, where: str) -> bool:
    try:
        daemon.start(rig)
    except NotReady as error:
        figures.tried += 1
        figures.fail(f"{where}: it did not start: {error}")
        return False
    return True


class _Round:
    """One daemon's life, its death and what the next one makes of it."""

    def __init__(
        self,
        daemon: SuiteDaemon,
        ledger: Ledger,
        books: Books,
        rng: random.Random,
        figures: Figures,
        plan: Plan,
        since: int,
    ) -> None:
        """``since``: the last event that was there before."""
        self.daemon, self.ledger, self.books, self.rng = daemon, ledger, books, rng
        self.figures, self.since = figures, since
        self.phase, self.point, _ = self.plan = plan
        self.wrong: list[str] = []

    def play(self, where: str, next_rig: str) -> int:
        """The last event that is there now."""
        self.figures.tried += 1
        self.figures.count(f"at a point of: {self.phase}" if self.point else self.phase)
        try:
            self._live_and_die()
            self._look_for_survivors()
            if self.phase == "start":
                self._die_at_the_start()
            self.daemon.start(next_rig)
            with Client(self.daemon.socket) as client:
                self._check(client)
        except (NotReady, DeadlinedError, TimeoutError, subprocess.TimeoutExpired) as error:
            self._fail(f"{type(error).__name__}: {error}")
        if self.wrong:
            more = f" (and {len(self.wrong) - 1} more)" if self.wrong[1:] else ""
            self.figures.fail(f"{where} ({' '.join(map(str, self.plan))}): {self.wrong[0]}{more}")
        return self.since

    def _fail(self, what: str) -> None:
        self.wrong.append(what)

    # -------------------------------------------------------- death

    def _live_and_die(self) -> None:
        with Client(self.daemon.socket) as client:
            client.submit("script", {"text": LINGER + "wait"}, detach=True, deadline_ms=60_000)
        threading.Thread(target=self._kill, daemon=True).start()
        if self.plan.rig:
            os.kill(self.daemon.pid, signal.SIGUSR1)
        with ThreadPoolExecutor(1) as pool:
            steers = pool.submit(self._steer, random.Random(self.rng.random()))
            ask_until_it_dies(self.daemon.socket, self.ledger, CLIENTS, MOST_CALLS, self.rng)
            steers.result()
        self.died = time.monotonic()
        if self.daemon.reap(READY_WITHIN_S) != -signal.SIGKILL:
            self._fail(f"the daemon ended otherwise: {self.daemon.words()}")

    def _steer(self, rng: random.Random) -> None:
        steer_until_it_dies(self.daemon.socket, self.books, self.ledger, MOST_CALLS, rng)

    def _kill(self) -> None:
        """From outside: at a random moment, or when a point is not reached in time; for a stop the SIGTERM first."""
        process = self.daemon.process
        assert process is not None
        if self.phase == "stop":
            time.sleep(self.rng.random() * 0.3)
            process.terminate()
        patience_s = REACHED_WITHIN_S if self.plan.rig else 0.05 + self.rng.random() * 0.4
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self.figures.count("points not reached", bool(self.plan.rig))
            process.kill()

    def _look_for_survivors(self) -> None:
        if left := left_after(self.died):
            self._fail(f"alive {GONE_WITHIN_S} s later: {left}")
        self.figures.peak("ms until all was gone", round(1_000 * (time.monotonic() - self.died)))

    def _die_at_the_start(self) -> None:
        self.daemon.begin(f"dies={self.point}:1")
        if self.daemon.wait_ready() and self.point != "after_ready":
            self.figures.count("points not reached")
            self.daemon.kill()
        else:
            self.daemon.reap(READY_WITHIN_S)
        self.died = time.monotonic()
        self._look_for_survivors()

    # -------------------------------------------------------- and after

    def _check(self, client: Client) -> None:
        before = self.ledger.lines()
        events = list(client.events(after=self.since))
        self.since = events[-1].seq
        ended = Counter(event.call for event in events if event.kind == "call_ended" and event.call)
        for asked in self.ledger.asked:
            if wrong := self._wrong_now(client, asked, before[asked.name], ended):
                self._fail(f"{asked.name} ({asked.call}, {asked.tool}): {wrong}")
        life = NextLife(client, self.books, self.ledger, self.figures, self._fail, stopped=self.phase == "stop")
        life.check()
        life.go_on(self.rng)
        results = {asked.name: asked.submit(client).wait() for asked in self.ledger.asked}
        after = self.ledger.lines()
        for asked in self.ledger.asked:
            if wrong := _wrong_again(asked, results[asked.name], before[asked.name], after[asked.name]):
                self._fail(f"{asked.name} ({asked.call}, {asked.tool}), asked again: {wrong}")
        self.figures.count("calls", len(self.ledger.asked))
        self.figures.count("acknowledged", sum(asked.told is not None for asked in self.ledger.asked))
        told = [asked for asked in self.ledger.asked if asked.told is not None]
        self.figures.count("told without the disk", sum(not asked.binds for asked in told))
        self.figures.count("effects", sum(after.values()))
        self.figures.count("unknown", sum(result.status is Status.UNKNOWN for result in results.values()))

    def _wrong_now(self, client: Client, asked: Asked, done: int, ended: Counter[str]) -> str:
        """Before anything is asked for again."""
        if asked.call is None:
            return "" if done <= 1 else f"done {done} times"
        found = _result_of(client, asked.call)
        if found is None:
            return "it is not known any more" if asked.promised or done else ""
        if asked.binds and msgspec.msgpack.encode(found) != asked.told:
            return f"another result than was acknowledged: {found.status}, {asked.result}"
        if ended[asked.call] != 1:
            return f"{ended[asked.call]} terminal records"
        return _after_restart(found, done) if asked.effect else ""


def _after_restart(result: CallResult, done: int) -> str:
    if result.status is Status.UNKNOWN and result.reason is not Reason.DAEMON_RESTARTED:
        return f"unknown because of {result.reason}"
    return contradiction(result, done)


def _wrong_again(asked: Asked, result: CallResult, before: int, after: int) -> str:
    """When it has been asked for again under its key."""
    if asked.told is not None and asked.promised:
        told = msgspec.structs.replace(msgspec.msgpack.decode(asked.told, type=CallResult), replayed=True)
        if result != told:
            return f"another result than was acknowledged, or not said to be told again: {result}"
    if not asked.effect:
        return ""
    if after > 1 or (before and after != before):
        return f"done {before} times before, {after} after"
    return _after_restart(result, after)


def _result_of(client: Client, call: str) -> CallResult | None:
    try:
        return client.handle(call).wait(10)
    except RequestRefused:
        return None


SUITE = Suite(
    passes_when="0 acknowledged lost, 0 effects doubled, 0 survivors, one end each, the log adds up; recovery < 1 s",
    push=50,
    long=5_000,
    run=run,
)
