"""A fork bomb at full speed, at most 100 processes of it, runs into its deadline.

Where nothing bounds the number of processes it is not run at all: the bound is read from outside, and the bomb starts
only when the bench has seen it.
"""

from __future__ import annotations

import json
import os
import time

from bench._daemon import BenchDaemon, open_daemon
from bench._floors import HAS_NAMESPACES, open_kill_floor
from bench._oracle import Oracle, Witness, deaths, in_namespace_of, members, open_oracle, pids_limit, watched
from bench._plan import Plan
from bench._report import Count, Row, Section, Target
from bench._wire import BareClient

_CAP = 100
_DEADLINE_MS = 600
_COUNT_BEFORE_S = 0.1
"""How long before the deadline they are counted: a look at each of 100 busy processes takes its time."""
_PATIENCE_S = 5.0


class NotBoundedError(Exception):
    """Nothing outside the tool says how many processes it may have."""


def run(plan: Plan) -> Section:
    """See the module."""
    title = f"fork bomb at full speed, {_CAP} processes (ms after the deadline)"
    rows: list[tuple[float, float, float]] = []
    seen: list[int] = []
    floors: list[float] = []
    survivors = 0
    with (
        open_daemon({"pids": _CAP}) as daemon,
        open_kill_floor() as floor,
        open_oracle(daemon.directory) as oracle,
        BareClient(daemon.socket) as client,
    ):
        for number in range(plan.of(20, 5)):
            try:
                figures, most, left = _explode(daemon, client, oracle, number)
            except NotBoundedError as error:
                return Section(title, notes=[f"not run: {error}"])
            rows.append(figures)
            seen.append(most)
            survivors += left
            if HAS_NAMESPACES:
                floors.append(floor.kill("hundred")[1] / 1e6)
    signalled, gone, answered = zip(*rows, strict=True)
    return Section(
        title,
        [
            Row("SIGKILL sent", "ms", [signalled]),
            Row("all gone", "ms", [gone], [floors], Target(p99=100), f"fork bomb, cap {_CAP}, all gone", "27"),
            Row("answer at the client", "ms", [answered]),
            Row("processes 0.1 s before the deadline", "", [seen]),
            Count("processes alive when the client was told", survivors, sum(seen)),
        ],
        [f"the floor: {_CAP} forks of a Python that sleep, in one namespace, and a blocking parent that kills it"],
    )


def _explode(
    daemon: BenchDaemon, client: BareClient, oracle: Oracle, number: int
) -> tuple[tuple[float, float, float], int, int]:
    """(signalled, gone, answered), processes seen before the deadline, processes left after the answer."""
    go = daemon.directory / f"go-{number}"
    client.submit("bench_bomb", json.dumps({"report": oracle.path, "go": str(go)}), deadline_ms=_DEADLINE_MS)
    with watched(oracle.collect(1, _PATIENCE_S)) as witnesses:
        (worker,) = witnesses
        namespace = _bounded(worker)
        go.touch()
        time.sleep(max(0.0, (worker.deadline_ns - time.monotonic_ns()) / 1e9 - _COUNT_BEFORE_S))
        most = len(members(namespace))
        dead = deaths(witnesses, _PATIENCE_S)
        answered_ns, answers = client.settled()
        left = len(members(namespace))
        result = answers[0][1]
        assert result.kill is not None, result.summary
        gone_ms = (dead.get(worker.pid, answered_ns) - worker.deadline_ns) / 1e6
        return (result.kill.signalled_after_ms, gone_ms, (answered_ns - worker.deadline_ns) / 1e6), most, left


def _bounded(worker: Witness) -> int:
    """The bomb's pid namespace, once a bound on its processes was seen."""
    limit, namespace = pids_limit(worker.pid), in_namespace_of(worker.pid)
    if namespace is None or namespace == in_namespace_of(os.getpid()):
        raise NotBoundedError("its namespace cannot be seen from here")
    if limit is None or limit > _CAP:
        raise NotBoundedError("this host has no pids controller that bounds a worker")
    return namespace
