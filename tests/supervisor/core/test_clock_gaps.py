"""Clocks that go apart are noticed, and blamed on nobody."""

from __future__ import annotations

import pytest

from protocol import Reason, Status
from supervisor.core import call as machine
from supervisor.core.call import CallMachine
from supervisor.core.clock_gaps import Gap, gap_between
from supervisor.core.run import RunMachine

HOURS_8 = 8 * 3_600_000


@pytest.mark.parametrize(
    ("after", "gap"),
    [
        ((1_000, 500), None),
        ((1_900, 500), None),
        ((1_000 + HOURS_8, 500 + HOURS_8), Gap(0, HOURS_8)),
        ((1_000 + HOURS_8, 500), Gap(HOURS_8, 0)),
        ((1_000 - HOURS_8, 500), Gap(-HOURS_8, 0)),
    ],
)
def test_a_step_and_a_sleep_are_told_apart(after: tuple[int, int], gap: Gap | None) -> None:
    assert gap_between((1_000, 500), after) == gap


@pytest.mark.case("B109")
def test_time_that_the_machine_slept_is_charged_to_nobody_and_said() -> None:
    second = 1_000_000_000
    call, run = CallMachine(60 * second), RunMachine(60 * second)
    call.on(machine.Placed(1))
    call.on(machine.Accepted(2))
    awake = 10 * second  # while eight hours went by on the wall
    assert run.next_timer_ns() - awake == 50 * second, "of the deadline nothing is gone but time awake"
    (settle, *_) = call.on(machine.Answered(machine.Ended(1, "ok", content=1, reusable=True), awake))
    assert (settle.status, settle.reason) == (Status.OK, None)
    assert settle.reason is not Reason.TIME_BUDGET
    assert gap_between((0, 0), (HOURS_8, HOURS_8)) == Gap(0, HOURS_8), "and an event says what happened"
