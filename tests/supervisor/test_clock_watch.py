"""A jump of a clock is an event, once, and nobody's fault."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from protocol._worker_messages import Ended
from supervisor.clock import ClockOffsets
from supervisor.clock_watch import ClockWatch
from supervisor.core import call as machine
from supervisor.core.call import CallMachine

HOURS_8 = 8 * 3_600_000


@pytest.mark.case("B109")
def test_time_that_the_machine_slept_is_an_event_and_charged_to_no_call() -> None:
    second = 1_000_000_000
    clocks: Iterator[ClockOffsets] = iter([ClockOffsets(5, 0), *[ClockOffsets(5 + HOURS_8, HOURS_8)] * 2])
    noted: list[tuple[str, dict[str, Any]]] = []
    watch = ClockWatch(lambda kind, **data: noted.append((kind, data)), lambda: next(clocks))
    call = CallMachine(60 * second)
    call.on(machine.Placed(1))
    call.on(machine.Accepted(2))
    watch.look()
    watch.look()
    (settle, *_) = call.on(machine.Answered(Ended(1, "ok", content=1, reusable=True), 10 * second))
    assert isinstance(settle, machine.Settle)
    assert (settle.status, settle.reason) == ("ok", None)
    assert noted == [("clock_jumped", {"stepped_ms": 0, "slept_ms": HOURS_8})]
