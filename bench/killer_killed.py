"""The killer is SIGKILLed between the deadlines of calls that sleep: the second line holds them, a new killer is
started, and other calls go on meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from dataclasses import dataclass, field

from bench._daemon import BenchDaemon, open_daemon
from bench._oracle import Oracle, alive, open_oracle, watched
from bench._plan import Plan
from bench._report import Count, Row, Section, Target
from bench._wire import BareClient
from protocol._outcomes import CallResult

_CALLS = 20
_FIRST_MS, _STEP_MS = 600, 10
_SHOT_AFTER_MS = _FIRST_MS + _STEP_MS * _CALLS // 2 - 1
"""A millisecond before one of the deadlines in the middle: nobody has time to start another killer."""


@dataclass(slots=True)
class Found:
    """What came of all rounds. Lateness in ms after each deadline, of the calls due before and after the shot."""

    before: list[float] = field(default_factory=list)
    after: list[float] = field(default_factory=list)
    answered: list[float] = field(default_factory=list)
    gaps_ms: list[float] = field(default_factory=list)
    calls: int = 0
    killed: int = 0
    survivors: int = 0
    other: int = 0
    other_ok: int = 0


def run(plan: Plan) -> Section:
    """See the module."""
    found, rounds = Found(), plan.of(8, 3)
    with open_daemon(in_flight=_CALLS + 4) as daemon, open_oracle(daemon.directory) as oracle:
        for _ in range(rounds):
            _round(daemon, oracle, found)
    return Section(
        f"killer SIGKILLed between {_CALLS} deadlines (ms after each)",
        [
            Row("SIGKILL sent, due before the shot", "ms", [found.before]),
            Row("SIGKILL sent, due after it", "ms", [found.after], (), Target(most=11)),
            Row("answer at the client", "ms", [found.answered], (), Target(p99=25)),
            Row("longest pause of other calls", "ms", [found.gaps_ms]),
            Count(
                "calls killed at their deadline",
                found.killed,
                found.calls,
                found.calls,
                "killer SIGKILLed: deadlines hold, calls go on",
            ),
            Count("processes alive when the last was told", found.survivors, found.calls),
            Count("other calls that went well meanwhile", found.other_ok, found.other, found.other),
        ],
        ["the second line kills at the deadline itself once the loss is known, 10 ms after it before that"],
    )


def _round(daemon: BenchDaemon, oracle: Oracle, found: Found) -> None:
    arguments = json.dumps({"report": oracle.path})
    with BareClient(daemon.socket) as sleeping, BareClient(daemon.socket) as others:
        numbers = [
            sleeping.submit("bench_sleep", arguments, deadline_ms=_FIRST_MS + _STEP_MS * n) for n in range(_CALLS)
        ]
        with watched(oracle.collect(_CALLS, _FIRST_MS / 1e3)) as witnesses:
            if len(witnesses) < _CALLS:
                raise RuntimeError("this machine is too loaded: the calls were not asleep in time")
            deadlines = dict(zip(numbers, sorted(witness.deadline_ns for witness in witnesses), strict=True))
            shot_ns = deadlines[numbers[0]] + (_SHOT_AFTER_MS - _FIRST_MS) * 1_000_000
            _watch(daemon, sleeping, others, deadlines, shot_ns, found)
            found.survivors += len(alive(witnesses))


def _watch(
    daemon: BenchDaemon,
    sleeping: BareClient,
    others: BareClient,
    deadlines: dict[int, int],
    shot_ns: int,
    found: Found,
) -> None:
    """Run no-op calls without a pause until all sleepers were told; shoot the killer on the way."""
    poll = select.poll()
    for client in (sleeping, others):
        poll.register(client.fileno(), select.POLLIN)
    left, flying, shot = len(deadlines), True, False
    others.submit("bench_noop", deadline_ms=5_000)
    last_ns, longest_ns = time.monotonic_ns(), 0
    killer = _pidfd_of_killer(daemon)
    while left or flying:
        now = time.monotonic_ns()
        if not shot and now >= shot_ns:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(killer, signal.SIGKILL)
            os.close(killer)
            shot = True
        wait_ms = max(0.0, (shot_ns - now) / 1e6) if not shot else 5_000
        ready = {descriptor for descriptor, _ in poll.poll(wait_ms)}
        if sleeping.fileno() in ready:
            at, answers = sleeping.settled()
            for number, result in answers:
                _note(found, number, result, at, deadlines, shot_ns)
                left -= 1
        if others.fileno() in ready:
            at, answers = others.settled()
            longest_ns, last_ns = max(longest_ns, at - last_ns), at
            found.other += len(answers)
            found.other_ok += sum(result.status == "ok" for _, result in answers)
            flying = left > 0
            if flying and answers:
                others.submit("bench_noop", deadline_ms=5_000)
    found.gaps_ms.append(longest_ns / 1e6)


def _note(found: Found, number: int, result: CallResult, at: int, deadlines: dict[int, int], shot_ns: int) -> None:
    deadline_ns = deadlines[number]
    found.calls += 1
    found.killed += result.status == "killed" and result.kill is not None
    if result.kill is not None:
        (found.before if deadline_ns < shot_ns else found.after).append(result.kill.signalled_after_ms)
    found.answered.append((at - deadline_ns) / 1e6)


def _pidfd_of_killer(daemon: BenchDaemon) -> int:
    killer = daemon.killer()
    if killer is None:
        raise RuntimeError("the daemon has no killer")
    return os.pidfd_open(killer.pid)
