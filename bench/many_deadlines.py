"""500 calls asleep at once, with 500 deadlines one millisecond apart."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field

from bench._daemon import open_daemon
from bench._oracle import Oracle, alive, open_oracle, watched
from bench._plan import Plan
from bench._report import Count, Line, Row, Section, Target
from bench._wire import BareClient
from protocol._outcomes import CallResult

_FIRST_MS = 1_500
"""The first deadline: by then every call should be dispatched and asleep. The workers are there before."""
_TRIES = 4
_WORKERS_WITHIN_S = 60.0
_CONFIRM_MS = 20_000
"""So long a daemon waits for a death before it calls it unconfirmed: here every death is to be timed."""


@dataclass(slots=True)
class Wave:
    """One flight of calls. Lateness in ms after each deadline: signal, confirmation, answer."""

    warm_s: float
    late: list[tuple[float, float, float]] = field(default_factory=list)
    killed: int = 0
    confirmed: int = 0
    survivors: int = 0


def run(plan: Plan) -> Section:
    """See the module."""
    calls = plan.of(500, 100)
    with (
        open_daemon(in_flight=calls + 12, spares=0, queue=1024, confirm_budget_ms=_CONFIRM_MS) as daemon,
        open_oracle(daemon.directory) as oracle,
        BareClient(daemon.socket) as client,
    ):
        waves = [_wave(client, oracle, calls) for _ in range(plan.of(2, 1))]
    total = len(waves) * calls
    named = ("SIGKILL sent", "confirmed by the kernel", "answer at the client")
    lines: list[Line] = [
        Row(what, "ms", [[late[index] for late in wave.late] for wave in waves], (), target)
        for index, (what, target) in enumerate(zip(named, (Target(p50=0.2, p99=1), None, None), strict=True))
    ]
    lines += [
        Row(f"{calls} workers forked and serving after", "s", [[wave.warm_s for wave in waves]]),
        Count(
            "killed at their deadline",
            sum(wave.killed for wave in waves),
            total,
            total,
            f"{calls} calls, deadlines 1 ms apart: all killed",
        ),
        Count("receipts that say confirmed", sum(wave.confirmed for wave in waves), total, total),
        Count("processes alive when the last was told", sum(wave.survivors for wave in waves), total),
    ]
    return Section(f"{calls} sleeping calls, {calls} deadlines 1 ms apart (ms after each)", lines)


def _wave(client: BareClient, oracle: Oracle, calls: int) -> Wave:
    """Again with later deadlines where some came before the last call slept."""
    arguments = json.dumps({"report": oracle.path})
    for attempt in range(_TRIES):
        wave = Wave(_warm_up(client, oracle, calls))
        first_ms = _FIRST_MS << attempt
        numbers = [client.submit("bench_sleep", arguments, deadline_ms=first_ms + n) for n in range(calls)]
        with watched(oracle.collect(calls, first_ms / 1e3)) as witnesses:
            answers = _land(client, calls)
            wave.survivors = len(alive(witnesses))
            # Deadlines rise in the order of submission, so the two in order belong together.
            deadlines = dict(zip(numbers, sorted(witness.deadline_ns for witness in witnesses), strict=False))
        if len(deadlines) == calls:
            for number, (at, result) in answers.items():
                _note(wave, result, at, deadlines[number])
            return wave
    raise RuntimeError(f"{calls} calls were not asleep within {first_ms} ms")


def _warm_up(client: BareClient, oracle: Oracle, calls: int) -> float:
    """Have as many workers as there will be calls; seconds until the last of them was in tool code."""
    began = time.monotonic()
    for _ in range(calls):
        client.submit("bench_hold", json.dumps({"report": oracle.path}), deadline_ms=60_000)
    lines = oracle.gather(calls, _WORKERS_WITHIN_S)
    warm_s = time.monotonic() - began
    for line in lines:
        line.close()
    _land(client, calls)
    return warm_s


def _land(client: BareClient, calls: int) -> dict[int, tuple[int, CallResult]]:
    answers: dict[int, tuple[int, CallResult]] = {}
    while len(answers) < calls:
        at, came = client.settled()
        answers |= {number: (at, result) for number, result in came}
    return answers


def _note(wave: Wave, result: CallResult, answered_ns: int, deadline_ns: int) -> None:
    kill = result.kill
    wave.killed += result.status == "killed" and kill is not None
    if kill is not None and kill.confirmed_after_ms is not None:
        wave.confirmed += 1
        late = (kill.signalled_after_ms, kill.confirmed_after_ms, (answered_ns - deadline_ns) / 1e6)
        wave.late.append(late)
