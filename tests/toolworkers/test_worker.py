"""When a call hears that it is to end. What else a worker does with calls is shown by the contract tests."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from protocol._contracts import Contract
from protocol._deadlines import NS_PER_MS
from protocol._worker_messages import Call
from toolworkers._worker import Settings, Worker

MINUTE_NS = 60_000 * NS_PER_MS
GRACEFUL = Contract(term_grace_ms=10_000)


@pytest.fixture
def worker() -> Iterator[Worker]:
    before = signal.getsignal(signal.SIGTERM)
    nothing: Any = None
    yield Worker(nothing, nothing, Settings(nothing, 0, {}))
    signal.signal(signal.SIGTERM, before)


def hears(worker: Worker, contract: Contract, left_ns: int, meanwhile: Callable[[], None] = lambda: None) -> int:
    """How often a call with so much time is told."""
    told: list[bool] = []
    worker._hear_term(lambda: told.append(True), Call(1, "t", "{}", time.monotonic_ns() + left_ns, ""), contract)
    meanwhile()
    return len(told)


def test_a_call_is_told_when_the_signal_comes(worker: Worker) -> None:
    assert hears(worker, GRACEFUL, MINUTE_NS) == 0
    assert hears(worker, GRACEFUL, MINUTE_NS, lambda: signal.raise_signal(signal.SIGTERM)) == 1


def test_a_signal_that_came_before_anybody_could_hear_it_is_heard_all_the_same(worker: Worker) -> None:
    signal.raise_signal(signal.SIGTERM)
    assert hears(worker, GRACEFUL, MINUTE_NS) == 1


@pytest.mark.parametrize(("contract", "told"), [(GRACEFUL, 1), (Contract(), 0)])
def test_a_call_with_less_time_than_its_grace_is_told_at_once(worker: Worker, contract: Contract, told: int) -> None:
    assert hears(worker, contract, 5_000 * NS_PER_MS) == told
