"""What a run costs its calls: the same call outside of any run, and in runs with few and very many calls before it.

Fingerprint, detectors, ledger and journal take the way of every call of a run, so what they add must not grow with the
run. Calls outside and inside take turns on one connection. How often a call waits for the disk is read from SQLite's
own count of commits, from outside: a call with a side effect makes as many in a run as without one.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from bench._daemon import BenchDaemon, open_daemon
from bench._machine import cpu_time_ns
from bench._plan import Plan
from bench._report import Row, Section, Target
from bench._wire import BareClient
from deadlined import Client
from protocol._outcomes import CallResult

_DEADLINE_MS = 60_000
_IN_FLIGHT = 64
_CHANGES_AT = 8
"""In ``-shm``: how many transactions were written (the WAL-index header of SQLite's file format)."""
_NOBODY_WAITS_S = 0.1
"""By then what goes with a later group is written."""

_CLAIM = "added to a read-only call by its run, however long it has been"
_TARGET = Target(p50=150)


class Side:
    """Calls of one tool, outside (``run`` None) or in one run. No two are alike: nothing is to be refused."""

    def __init__(self, client: BareClient, tool: str, run: str | None) -> None:
        self._client, self._tool, self._run = client, tool, run
        self._made = 0
        self.micros: list[list[float]] = []
        self.cpu_micros: list[list[float]] = []

    def age(self, calls: int) -> None:
        """So many calls, as fast as they go."""
        flying = 0
        for left in range(calls, 0, -1):
            self._submit()
            flying += 1
            while flying >= _IN_FLIGHT or (left == 1 and flying):
                flying -= self._hear()

    def round(self, calls: int) -> None:
        """So many, one at a time; each one's time, and the processor time of the daemon's loop for one."""
        samples: list[float] = []
        cpu_ns = cpu_time_ns(self._client.far_pid)
        for _ in range(calls):
            began = time.monotonic_ns()
            self._submit()
            while not self._hear():
                pass
            samples.append((time.monotonic_ns() - began) / 1e3)
        self.micros.append(samples)
        self.cpu_micros.append([(cpu_time_ns(self._client.far_pid) - cpu_ns) / 1e3 / calls])

    def _submit(self) -> None:
        self._made += 1
        self._client.submit(self._tool, f'{{"number":{self._made}}}', deadline_ms=_DEADLINE_MS, run=self._run)

    def _hear(self) -> int:
        answers = self._client.settled()[1]
        for _, result in answers:
            _check(result)
        return len(answers)


def run(plan: Plan) -> Section:
    """See the module."""
    ages = [10, 1_000, plan.of(100_000, 5_000)]
    with _open_client() as (daemon, client, library):
        reads = {"outside": Side(client, "bench_read", None)}
        for age in ages:
            reads[f"after {age:,}"] = side = Side(client, "bench_read", _opened(library))
            side.age(age)
        for _ in range(plan.of(24, 3)):  # short rounds: what else the machine does hits all sides of one alike
            for side in plan.shuffled(reads.values()):
                side.round(100)
    with _open_client() as (daemon, client, library):
        writes = {
            "outside": Side(client, "bench_write", None),
            "in a run": Side(client, "bench_write", _opened(library)),
        }
        commits: dict[str, list[list[float]]] = {name: [] for name in writes}
        for _ in range(plan.of(8, 3)):
            for name, side in plan.shuffled(writes.items()):
                commits[name].append([_commits_of(daemon, side, plan.of(60, 25))])
    outside = reads["outside"].micros
    last = f"after {ages[-1]:,}"
    return Section(
        "what a run costs its calls, one at a time",
        [
            Row("read-only, outside a run", "µs", outside),
            *(Row(f"read-only, in a run, {name} calls", "µs", reads[name].micros, outside) for name in list(reads)[1:]),
            Row("added by a run with 10 calls behind it", "µs", _added(reads["after 10"].micros, outside), (), _TARGET),
            Row("added by the oldest", "µs", _added(reads[last].micros, outside), (), _TARGET, _CLAIM),
            Row("processor time of the loop, outside a run", "µs", reads["outside"].cpu_micros),
            Row("the same, in the oldest run", "µs", reads[last].cpu_micros, reads["outside"].cpu_micros),
            Row("side effect, outside a run", "µs", writes["outside"].micros),
            Row("side effect, in a run", "µs", writes["in a run"].micros, writes["outside"].micros),
            Row("commits of a call with a side effect, outside", "", commits["outside"]),
            Row("commits of a call with a side effect, in a run", "", commits["in a run"], commits["outside"]),
        ],
        ["what is added: the difference of the medians inside each round"],
    )


@contextmanager
def _open_client() -> Iterator[tuple[BenchDaemon, BareClient, Client]]:
    with open_daemon() as daemon, BareClient(daemon.socket) as client, Client(daemon.socket) as library:
        yield daemon, client, library


def _opened(library: Client) -> str:
    return library.open_run(profile="bench", goal="be measured").id


def _commits_of(daemon: BenchDaemon, side: Side, calls: int) -> float:
    """How often a call made the daemon wait for the disk. What nobody waits for goes along, or adds some hundredths."""
    time.sleep(_NOBODY_WAITS_S)
    before = _commits(daemon)
    side.round(calls)
    return (_commits(daemon) - before) / calls


def _commits(daemon: BenchDaemon) -> int:
    (index,) = Path(daemon.directory, "state").glob("*/journal.db-shm")
    with index.open("rb") as file:
        file.seek(_CHANGES_AT)
        count: int = struct.unpack("=I", file.read(4))[0]
    return count


def _added(inside: list[list[float]], outside: list[list[float]]) -> list[list[float]]:
    return [[median(one) - median(other)] for one, other in zip(inside, outside, strict=True)]


def _check(result: CallResult) -> None:
    if result.status != "ok":
        raise RuntimeError(f"a call that was measured did not succeed: {result.summary} {result.error}")
