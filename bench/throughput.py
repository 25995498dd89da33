"""Calls per second with 64 in flight on one connection, over two workers and over 64."""

from __future__ import annotations

import time
from contextlib import ExitStack

from bench._daemon import open_daemon
from bench._floors import open_relay_floor
from bench._plan import Plan
from bench._report import Row, Section, Target
from bench._wire import BareClient

_TOOL, _DEADLINE_MS, _IN_FLIGHT = "bench_noop", 20_000, 64
_WARM_UP_S = 0.3


def run(plan: Plan) -> Section:
    """See the module."""
    rounds, seconds = plan.of(5, 2), 0.8 if not plan.quick else 0.5
    with ExitStack() as stack:
        clients = {
            "floor 2": stack.enter_context(open_relay_floor(2)),
            "2": _client_of_daemon(stack, 2),
            "64": _client_of_daemon(stack, 64),
            "floor 64": stack.enter_context(open_relay_floor(64)),
        }
        rates: dict[str, list[list[float]]] = {name: [] for name in clients}
        for client in clients.values():
            _rate(client, _WARM_UP_S)
        for _ in range(rounds):
            for name, client in plan.shuffled(clients.items()):
                rates[name].append([_rate(client, seconds)])
    claim = "throughput, 64 in flight, 2 workers"
    return Section(
        "throughput, 64 in flight on one connection",
        [
            Row("2 workers", "calls/s", rates["2"], rates["floor 2"], Target(least=10_000), claim, "11–26 k"),
            Row("64 workers", "calls/s", rates["64"], rates["floor 64"]),
            Row("floor: polling relay, 2 workers", "calls/s", rates["floor 2"]),
            Row("floor: polling relay, 64 workers", "calls/s", rates["floor 64"]),
        ],
        ["each sample is one stretch of calls; more is better, so the floor is above and its ratio below 1"],
    )


def _client_of_daemon(stack: ExitStack, workers: int) -> BareClient:
    daemon = stack.enter_context(open_daemon(in_flight=workers, spares=0))
    return stack.enter_context(BareClient(daemon.socket))


def _rate(client: BareClient, seconds: float) -> float:
    """Keep the flight full for so long, then let it land; settled calls per second."""
    began = time.monotonic()
    client.submit_many(_TOOL, _IN_FLIGHT, deadline_ms=_DEADLINE_MS)
    flying, settled = _IN_FLIGHT, 0
    while flying:
        answers = client.settled()[1]
        if any(result.status != "ok" for _, result in answers):
            raise RuntimeError("a call that was measured did not succeed")
        settled += len(answers)
        if time.monotonic() - began < seconds:
            client.submit_many(_TOOL, len(answers), deadline_ms=_DEADLINE_MS)
        else:
            flying -= len(answers)
    return settled / (time.monotonic() - began)
