"""What a run makes of an approved call that comes when the run takes none any more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from supervisor.core.run import State
from supervisor.run_approvals import RunApprovals
from tests.supervisor.test_runs import UID, World


class Judge:
    """Binds what it is asked to."""

    def __init__(self) -> None:
        self.bound: list[object] = []

    def resume(self, _run: object, call: object, _reserved: object) -> object:
        self.bound.append(call)
        return object()


@pytest.mark.parametrize("state", list(State))
def test_an_approved_call_begins_only_in_a_run_that_goes_on_or_waits(state: State) -> None:
    """The person's word was written while the run began to end: nothing of it may be begun, and nothing be bound."""
    world, judge = World(), Judge()
    run = world.open()
    run.machine.state = state
    run.approvals.add("a_1")
    bench: Any = (world.runs, judge, SimpleNamespace())
    approval: Any = SimpleNamespace(id="a_1", checkpoint=SimpleNamespace(run=run.id, uid=UID))
    call: Any = SimpleNamespace(stake=None)
    goes_on = state in (State.RUNNING, State.SUSPENDED)
    held: Any = SimpleNamespace()
    assert RunApprovals(*bench).begin(approval, call, held) is goes_on
    assert judge.bound == ([call] if goes_on else [])
