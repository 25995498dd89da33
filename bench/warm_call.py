"""A warm call that does nothing, with its deadline armed: client → daemon → worker → client, one at a time.

The bare client speaks to the daemon and to the blocking relay, so the ratio is the daemon's and the worker's alone;
`deadlined.Client` is what a program of a user's pays.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from bench._daemon import open_daemon
from bench._floors import open_relay_floor
from bench._machine import cpu_time_ns
from bench._plan import Plan
from bench._report import Row, Section, Target
from bench._wire import BareClient
from deadlined import Client

_TOOL, _DEADLINE_MS = "bench_noop", 10_000
_WARM_UP_S = 0.3


class Side:
    """One way to make the call; ``pid``: the process in the middle."""

    def __init__(self, call: Callable[[], object], pid: int) -> None:
        self.call, self.pid = call, pid
        self.micros: list[list[float]] = []
        self.cpu_micros: list[list[float]] = []

    def round(self, seconds: float) -> None:
        """Call for so long; each call's time, and the processor time of the middle for one."""
        samples: list[float] = []
        cpu_ns, until = cpu_time_ns(self.pid), time.monotonic() + seconds
        while time.monotonic() < until:
            began = time.monotonic_ns()
            self.call()
            samples.append((time.monotonic_ns() - began) / 1e3)
        self.micros.append(samples)
        self.cpu_micros.append([(cpu_time_ns(self.pid) - cpu_ns) / 1e3 / len(samples)])

    def forget(self) -> None:
        """Of the warm-up."""
        self.micros, self.cpu_micros = [], []


def run(plan: Plan) -> Section:
    """See the module."""
    with (
        open_daemon() as daemon,
        open_relay_floor(1) as relay,
        BareClient(daemon.socket) as client,
        Client(daemon.socket) as library,
    ):
        floor = Side(lambda: relay.call(_TOOL, deadline_ms=_DEADLINE_MS), relay.far_pid)
        bare = Side(lambda: client.call(_TOOL, deadline_ms=_DEADLINE_MS), daemon.pid)
        public = Side(lambda: library.call(_TOOL, {}, deadline_ms=_DEADLINE_MS), daemon.pid)
        for side in (floor, bare, public):
            side.round(_WARM_UP_S)
            side.forget()
        for _ in range(plan.of(8, 3)):
            for side in plan.shuffled((floor, bare, public)):
                side.round(0.4 if plan.quick else 0.7)
        result = client.call(_TOOL, deadline_ms=_DEADLINE_MS)
    if result.status != "ok":
        raise RuntimeError(f"the call that was measured did not succeed: {result.summary}")
    claim = "warm no-op call, client → worker → client, deadline armed"
    return Section(
        "warm no-op call, one at a time",
        [
            Row("bare client", "µs", bare.micros, floor.micros, Target(p50=150, ratio=2.5), claim, "74–143"),
            Row("deadlined.Client", "µs", public.micros, floor.micros, Target(p50=150)),
            Row("floor: blocking client, relay, worker", "µs", floor.micros),
            Row("processor time of the daemon, a call", "µs", bare.cpu_micros, floor.cpu_micros),
        ],
        ["processor time hardly depends on what else the machine does; its floor is the relay's"],
    )
