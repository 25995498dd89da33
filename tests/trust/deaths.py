"""Named points of a daemon's life at which it can be made to die, by patching functions of the product: before they are
called, or when they have returned.

The points of a call: its intent is not, is being, is on the disk; its frame has left; its worker has said that it
begins; its result is not, is being, is on the disk; it has been told. Of an approval: the question is not, is on the
disk, its run waits, it has been told; the answer has come, room is set aside, it is written, nothing has begun, the run
goes on, the call has begun; or it is closed. Of a run: its opening, its rounds, what its models and calls are charged,
its suspension, its going on, its settlement. Of a start and of a stop: each of their steps.
"""

from __future__ import annotations

import importlib
import os
import signal
from collections.abc import Callable
from typing import Any, NamedTuple


class Point(NamedTuple):
    """``where``: "module:Class.function". ``before``: at its call, else at its return."""

    where: str
    before: bool


OF_A_CALL = {
    "before_intent": Point("supervisor.intents:Intents.claim", True),
    "before_plan": Point("supervisor.intents:Intents.plan", True),
    "before_planned_is_said": Point("supervisor.live_call:LiveCall.tell_planned", True),
    "after_planned_is_said": Point("supervisor.live_call:LiveCall.tell_planned", False),
    "before_a_commit": Point("supervisor.journal.store:Store.commit", True),
    "inside_a_commit": Point("supervisor.journal.store:link", False),
    "after_a_commit": Point("supervisor.journal.store:Store.commit", False),
    "after_intent": Point("supervisor.placement:Placement.grant", True),
    "before_frame": Point("supervisor.calls:Calls._dispatch", True),
    "after_frame": Point("supervisor.calls:Calls._dispatch", False),
    "after_accepted": Point("supervisor.intents:Intents.advanced", False),
    "before_result": Point("supervisor.intents:Intents.settled", True),
    "after_result_commit": Point("supervisor.settlement:Settlement._tell", True),
    "after_tell": Point("supervisor.live_call:LiveCall.tell", False),
    "after_all": Point("supervisor.settlement:Settlement._keep", False),
}
OF_AN_APPROVAL = {
    "before_question": Point("supervisor.approvals:Approvals._ask", True),
    "after_question": Point("supervisor.approvals:Approvals._ask", False),
    "after_question_commit": Point("supervisor.run_approvals:RunApprovals.asked", True),
    "after_run_waits": Point("supervisor.run_approvals:RunApprovals.asked", False),
    "after_question_is_told": Point("supervisor.approvals:Approvals._told", False),
    "before_room": Point("supervisor.approvals:Approvals._prepare", True),
    "after_room": Point("supervisor.approvals:Approvals._prepare", False),
    "before_decision": Point("supervisor.approvals:Approvals._write", True),
    "after_decision": Point("supervisor.approvals:Approvals._write", False),
    "after_decision_commit": Point("supervisor.approvals:Approvals._start", True),
    "before_run_begins_it": Point("supervisor.run_approvals:RunApprovals.begin", True),
    "after_run_begins_it": Point("supervisor.run_approvals:RunApprovals.begin", False),
    "before_begin": Point("supervisor.calls:Calls.begin", True),
    "after_begin": Point("supervisor.calls:Calls.begin", False),
    "before_decision_is_told": Point("supervisor.approvals:Approvals._answer", True),
    "after_decision_is_told": Point("supervisor.approvals:Approvals._answer", False),
    "before_close": Point("supervisor.approvals:Approvals._close", True),
    "after_close": Point("supervisor.approvals:Approvals._close", False),
    "after_close_commit": Point("supervisor.approvals:Approvals._closed", True),
}
OF_A_RUN = {
    "before_open": Point("supervisor.runs:Runs.open", True),
    "after_open": Point("supervisor.runs:Runs.open", False),
    "after_open_commit": Point("supervisor.runs:Runs._keep_time", True),
    "before_step": Point("supervisor.rounds:Rounds.begin_step", True),
    "after_step": Point("supervisor.rounds:Rounds.begin_step", False),
    "before_reservation": Point("supervisor.rounds:Rounds.reserve_model", True),
    "after_reservation": Point("supervisor.rounds:Rounds.reserve_model", False),
    "before_usage": Point("supervisor.rounds:Rounds.settle_model", True),
    "after_usage": Point("supervisor.rounds:Rounds.settle_model", False),
    "before_binding": Point("supervisor.judgement:Judgement._bound", True),
    "after_binding": Point("supervisor.judgement:Judgement._bound", False),
    "before_payment": Point("supervisor.judgement:Judgement._pay", True),
    "after_payment": Point("supervisor.judgement:Judgement._pay", False),
    "before_suspension": Point("supervisor.runs:Runs._suspend", True),
    "after_suspension": Point("supervisor.runs:Runs._suspend", False),
    "before_resumption": Point("supervisor.runs:Runs._resume", True),
    "after_resumption": Point("supervisor.runs:Runs._resume", False),
    "before_settlement": Point("supervisor.runs:Runs._settle", True),
    "after_settlement": Point("supervisor.runs:Runs._settle", False),
    "before_stop_is_told": Point("supervisor.live_run:LiveRun.tell", True),
    "after_stop_is_told": Point("supervisor.live_run:LiveRun.tell", False),
}
OF_A_START = {
    "before_state": Point("supervisor.runtime:StateDirectory.open", True),
    "after_state": Point("supervisor.runtime:StateDirectory.open", False),
    "after_journal_opens": Point("supervisor.journal.store:Store.open", False),
    "before_recovery": Point("supervisor.revival:recover", True),
    "inside_recovery": Point("supervisor.journal.store:link", False),
    "after_recovery": Point("supervisor.revival:recover", False),
    "after_revival": Point("supervisor.daemon:revive", False),
    "before_runs_return": Point("supervisor.daemon:recall_runs", True),
    "after_runs_return": Point("supervisor.daemon:recall_runs", False),
    "after_questions_return": Point("supervisor.approvals:Approvals.recall", False),
    "after_groups": Point("supervisor.containment.cgroups:ControlGroups.open", False),
    "before_workers": Point("supervisor.daemon:start_workforce", True),
    "with_a_worker": Point("supervisor.lives:LifeRecords.spawned", False),
    "before_ready": Point("supervisor.daemon:Daemon._say_ready", True),
    "after_ready": Point("supervisor.daemon:Daemon._say_ready", False),
}
OF_A_STOP = {
    "before_drain": Point("supervisor.daemon:Daemon._drain", True),
    "before_close": Point("supervisor.daemon:Daemon._close", True),
    "before_journal_closes": Point("supervisor.journal.journal:Journal.close", True),
    "after_journal_closes": Point("supervisor.journal.store:Store.close", False),
    "before_state_goes": Point("supervisor.runtime:StateDirectory.close", True),
    "after_state_went": Point("supervisor.runtime:StateDirectory.close", False),
}
POINTS = {**OF_A_CALL, **OF_AN_APPROVAL, **OF_A_RUN, **OF_A_START, **OF_A_STOP}


class _Death:
    """Counts arrivals once it is armed; the last one is the end."""

    def __init__(self, arrivals: int, armed: bool) -> None:
        self._left, self.armed = arrivals, armed

    def arrive(self) -> None:
        if self.armed:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def rig(words: str) -> None:
    """``POINT:N``. A point of a start counts at once, any other after SIGUSR1."""
    name, _, count = words.partition(":")
    death = _Death(int(count), armed=name in OF_A_START)
    signal.signal(signal.SIGUSR1, lambda *_: setattr(death, "armed", True))
    _patch(POINTS[name], death.arrive)


def find(point: Point) -> tuple[Any, str, Callable[..., Any]]:
    """Who holds the function, its name there, and itself. Raises AttributeError when the product has it no more: a
    point that is nowhere proves nothing."""
    module, _, path = point.where.partition(":")
    holder: Any = importlib.import_module(module)
    *outer, name = path.split(".")
    for part in outer:
        holder = getattr(holder, part)
    return holder, name, getattr(holder, name)


def _patch(point: Point, arrive: Callable[[], None]) -> None:
    holder, name, real = find(point)

    def patched(*given: Any, **named: Any) -> Any:
        if point.before:
            arrive()
        got = real(*given, **named)
        if not point.before:
            arrive()
        return got

    setattr(holder, name, patched)
