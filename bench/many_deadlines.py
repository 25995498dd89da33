"""500 calls asleep at once, with 500 deadlines one millisecond apart."""

from __future__ import annotations

import json
import time

from bench._daemon import open_daemon
from bench._oracle import Oracle, alive, open_oracle, watched
from bench._plan import Plan
from bench._report import Count, Line, Row, Section, Target
from bench._wire import BareClient
from protocol._outcomes import CallResult

_FIRST_MS = 4_000
"""The first deadline: by then every worker should be forked and asleep."""
_TRIES = 3


def run(plan: Plan) -> Section:
    """See the module."""
    calls = plan.of(500, 100)
    rounds: list[list[tuple[float, float, float]]] = []
    killed = confirmed = survivors = 0
    asleep_s: list[float] = []
    with (
        open_daemon(in_flight=calls + 12, spares=0, queue=1024) as daemon,
        open_oracle(daemon.directory) as oracle,
        BareClient(daemon.socket) as client,
    ):
        for _ in range(plan.of(2, 1)):
            began_s, lateness, results, alive_then = _wave(client, oracle, calls)
            rounds.append(lateness)
            asleep_s.append(began_s)
            survivors += alive_then
            killed += sum(result.status == "killed" for result in results)
            confirmed += sum(result.kill is not None and result.kill.confirmed for result in results)
    total = len(rounds) * calls
    named = ("SIGKILL sent", "confirmed by the kernel", "answer at the client")
    lines: list[Line] = [
        Row(
            what,
            "ms",
            [[late[index] for late in one] for one in rounds],
            (),
            Target(p50=0.2, p99=1) if not index else None,
        )
        for index, what in enumerate(named)
    ]
    lines += [
        Row("all of them asleep after", "s", [asleep_s]),
        Count("killed at their deadline", killed, total, total, f"{calls} calls, deadlines 1 ms apart: all killed"),
        Count("receipts that say confirmed", confirmed, total, total),
        Count("processes alive when the last was told", survivors, total),
    ]
    return Section(f"{calls} sleeping calls, {calls} deadlines 1 ms apart (ms after each)", lines)


def _wave(
    client: BareClient, oracle: Oracle, calls: int
) -> tuple[float, list[tuple[float, float, float]], list[CallResult], int]:
    """(seconds until all slept, lateness of each, results, survivors); again with later deadlines where some came
    before the last worker was there."""
    first_ms = _FIRST_MS
    for _ in range(_TRIES):
        began = time.monotonic()
        arguments = json.dumps({"report": oracle.path})
        numbers = [client.submit("bench_sleep", arguments, deadline_ms=first_ms + n) for n in range(calls)]
        with watched(oracle.collect(calls, first_ms / 1e3)) as witnesses:
            asleep_s = time.monotonic() - began
            answers, survivors = _land(client, calls), 0
            survivors = len(alive(witnesses))
            # The pool serves in order of submission and deadlines rise in it, so both in order of size belong together.
            deadlines = dict(zip(numbers, sorted(witness.deadline_ns for witness in witnesses), strict=False))
        if len(deadlines) == calls:
            late = [_lateness(result, at, deadlines[number]) for number, (at, result) in answers.items()]
            return asleep_s, late, [result for _, result in answers.values()], survivors
        first_ms *= 2
    raise RuntimeError(f"{calls} workers were not there within {first_ms // 2} ms")


def _land(client: BareClient, calls: int) -> dict[int, tuple[int, CallResult]]:
    answers: dict[int, tuple[int, CallResult]] = {}
    while len(answers) < calls:
        at, came = client.settled()
        answers |= {number: (at, result) for number, result in came}
    return answers


def _lateness(result: CallResult, answered_ns: int, deadline_ns: int) -> tuple[float, float, float]:
    kill = result.kill
    assert kill is not None, result.summary
    assert kill.confirmed_after_ms is not None, result.summary
    return kill.signalled_after_ms, kill.confirmed_after_ms, (answered_ns - deadline_ns) / 1e6
