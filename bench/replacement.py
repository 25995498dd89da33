"""From a kill to the worker that stands in for the dead one.

Without spares and with one worker at a time, a call that waits behind the killed one can only be served by a worker
that is forked after the death was confirmed; its tool returns the instant at which it ran. With a spare, the next call
finds a warm worker.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Any

from bench._daemon import open_daemon
from bench._floors import KillFloor, open_kill_floor
from bench._oracle import Oracle, open_oracle, watched
from bench._plan import Plan
from bench._report import Row, Section, Target
from bench._wire import BareClient

_DEADLINE_MS = 60


def run(plan: Plan) -> Section:
    """See the module."""
    cold: list[list[float]] = []
    warm: list[list[float]] = []
    floors: list[list[float]] = []
    with ExitStack() as stack:
        no_spares = _open(stack, 0)
        spares = _open(stack, 2)
        floor = stack.enter_context(open_kill_floor())
        for _ in range(plan.of(5, 2)):
            sides = [(cold, no_spares), (warm, spares)]
            for samples, (client, oracle) in plan.shuffled(sides):
                samples.append([_kill_to_next(client, oracle) for _ in range(plan.of(12, 6))])
            floors.append([_floor_figure(floor) for _ in range(plan.of(12, 6))])
    return Section(
        "kill → the next call is in tool code (ms after the kill was due)",
        [
            Row(
                "no spare: dead, told, forked, ready, called",
                "ms",
                cold,
                floors,
                Target(p50=3),
                "kill → replacement ready",
                "1.7",
            ),
            Row("a warm spare", "ms", warm),
            Row("floor: SIGKILL → dead → forked → first byte", "ms", floors),
        ],
    )


def _open(stack: ExitStack, spares: int) -> tuple[BareClient, Oracle]:
    daemon = stack.enter_context(open_daemon(in_flight=1, spares=spares))
    oracle = stack.enter_context(open_oracle(daemon.directory))
    return stack.enter_context(BareClient(daemon.socket)), oracle


def _kill_to_next(client: BareClient, oracle: Oracle) -> float:
    """Milliseconds from the instant the kill was due to the first tool code of the call behind it."""
    client.submit("bench_sleep", json.dumps({"report": oracle.path}), deadline_ms=_DEADLINE_MS)
    client.submit("bench_clock", deadline_ms=10_000)
    contents: list[Any] = []
    with watched(oracle.collect(1, 10.0)) as witnesses:
        while len(contents) < 2:
            contents += [result.content for _, result in client.settled()[1]]
        in_tool_ns = next(content for content in contents if isinstance(content, int))
        return (in_tool_ns - witnesses[0].deadline_ns) / 1e6


def _floor_figure(floor: KillFloor) -> float:
    return floor.kill("sleep", 5.0)[2] / 1e6
