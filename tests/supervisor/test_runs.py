"""The shell of runs with a disk of the test's own: what opens, what is part of what, what is over, and that it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from protocol._client_messages import OpenRun
from protocol._runs import OpenEffect, RunReason, RunStatus
from supervisor import runs as shell
from supervisor.accounts import Accounts
from supervisor.core import run as machine
from supervisor.core.detector_sets import SETS
from supervisor.core.detectors import Detectors
from supervisor.core.profiles import Budgets, Tenant, resolve
from supervisor.core.run import State
from supervisor.journal import run_rows
from supervisor.journal.store import Change
from supervisor.live_run import LiveRun
from supervisor.run_recovery import RecoveredRuns, recall_runs
from supervisor.run_views import EFFECTS_LISTED
from supervisor.runs import RunRefusal, Runs

UID = 1000


class Disk:
    """A journal that answers when the test lets it."""

    refuses = False
    trouble: str | None = None

    def __init__(self) -> None:
        self.holds = False
        self.written: list[Change] = []
        self.held: list[Callable[[bool], None]] = []

    @contextmanager
    def together(self) -> Iterator[None]:
        """The order is all that is looked at here."""
        yield

    def append(self, changes: tuple[Change, ...], then: Any = None, keep: bool = True) -> None:
        self.written += changes
        if then is not None and self.holds:
            self.held.append(then)
        elif then is not None:
            then(True)

    def note(self, *_event: object, **_data: object) -> None:
        pass

    def answer(self, durable: bool) -> None:
        held, self.held = self.held, []
        for then in held:
            then(durable)

    def told(self) -> list[str]:
        return [change.event.kind for change in self.written if change.event is not None]


class World:
    """Runs with their disk, and what their openers heard."""

    def __init__(self) -> None:
        self.disk = Disk()
        budgets = Budgets(resolve({}), {"default": Tenant(session_limits={"steps": 100})})
        accounts = Accounts(budgets)
        journal: Any = self.disk
        self.runs = Runs("b", journal, accounts, lambda name: Detectors(SETS[name]), pauses=True)
        self.lost = 0
        self.ended: list[str] = []
        self.runs.end_call = lambda call, *_why: self.ended.append(call.id)

    def open(self, **fields: Any) -> LiveRun:
        told: list[LiveRun] = []
        self.runs.open(OpenRun(1, **fields), UID, told.append, self._lose)
        return told[0]

    def _lose(self) -> None:
        self.lost += 1

    def ask(self, **fields: Any) -> list[LiveRun]:
        """Open, and wait for the disk."""
        told: list[LiveRun] = []
        self.runs.open(OpenRun(1, **fields), UID, told.append, self._lose)
        return told

    @property
    def accounts(self) -> int:
        """How many accounts are open: those of tenant, user and sessions stay."""
        return len(self.runs.ledger)

    def cancel(self, run: LiveRun) -> None:
        self.runs.stop(run, RunStatus.CANCELLED, RunReason.CLIENT, ends_calls=True)


@pytest.fixture
def world() -> World:
    return World()


def stop_of(run: LiveRun) -> tuple[str, str]:
    assert run.stop is not None
    return run.stop.status, run.stop.reason


def test_nobody_hears_of_a_run_before_the_disk_has_it(world: World) -> None:
    world.disk.holds = True
    told = world.ask()
    assert (told, world.runs.listed(UID, True)) == ([], [])
    (run,) = world.runs.going_on()
    with pytest.raises(RunRefusal):
        world.runs.find(run.id, UID)
    world.disk.answer(True)
    assert told == [run] == world.runs.listed(UID, False)
    assert world.runs.find(run.id, UID) is run


@pytest.mark.parametrize("durable", [True, False])
def test_a_run_whose_parent_ends_while_the_disk_takes_it_ends_once(world: World, durable: bool) -> None:
    parent = world.open()
    accounts = world.accounts - 1
    world.disk.holds = True
    told = world.ask(parent=parent.id)
    world.cancel(parent)
    world.disk.answer(durable)
    assert (len(told), world.lost) == ((1, 0) if durable else (0, 1))
    assert world.runs.going_on() == []
    assert world.accounts == accounts, "nothing of either is bound any more"
    assert len(world.runs.listed(UID, True)) == (2 if durable else 1)


def test_a_run_that_the_disk_did_not_take_never_was(world: World) -> None:
    accounts = world.accounts
    world.disk.holds = True
    world.ask()
    world.disk.answer(False)
    assert (world.lost, world.runs.going_on(), world.runs.listed(UID, True)) == (1, [], [])
    assert world.accounts == accounts + 2, "its tenant and its user are known from now on"


@pytest.mark.parametrize("first", ["parent", "child", "grandchild"])
def test_runs_that_are_part_of_others_end_with_them_and_close_in_any_order(world: World, first: str) -> None:
    runs = {"parent": world.open()}
    accounts = world.accounts - 1
    runs["child"] = world.open(parent=runs["parent"].id)
    runs["grandchild"] = world.open(parent=runs["child"].id)
    for run in runs.values():
        run.machine.on(machine.Began())
    world.cancel(runs[first])
    for name in ("parent", "grandchild", "child"):  # of each a call was in flight, and ends now
        world.runs.feed(runs[name], machine.Ended(0))
    left = world.runs.going_on()
    assert left == {"parent": [], "child": [runs["parent"]], "grandchild": [runs["parent"], runs["child"]]}[first]
    for run in left:
        world.cancel(run)
    assert (world.runs.going_on(), world.accounts) == ([], accounts)


def test_what_is_part_of_a_run_belongs_to_its_session(world: World) -> None:
    parent = world.open(session="s")
    assert world.open(parent=parent.id).spec.session == "s"
    with pytest.raises(RunRefusal, match="session 't' is not that of"):
        world.open(parent=parent.id, session="t")


def test_a_run_that_wraps_up_begins_no_other(world: World) -> None:
    run = world.open()
    run.machine.state = State.WRAPPING
    with pytest.raises(RunRefusal) as caught:
        world.open(parent=run.id)
    assert caught.value.code == "wrapping_up"


def test_who_asked_for_the_end_hears_that_the_checks_were_cut_off_and_may_conclude(world: World) -> None:
    run = world.open(checks=["true"], wrapup=True)
    heard: list[str] = []
    run.finishers.append((world, 1))
    world.runs.refusers[world, 1] = lambda feedback, _refusals: heard.append(feedback)
    world.runs.check = lambda _run, _number: None
    world.runs.feed(run, machine.FinishAsked("done", 1))
    world.runs.feed(run, machine.Began())
    world.runs.stop(run, RunStatus.BUDGET_EXHAUSTED, RunReason.TIME_BUDGET)
    assert heard == []
    world.runs.feed(run, machine.Ended(2))
    assert run.machine.state is State.WRAPPING
    assert len(heard) == 1
    world.runs.feed(run, machine.FinishAsked("what is known", 3))
    assert run.stop is not None
    assert (stop_of(run), run.stop.answer) == (("budget_exhausted", "time_budget"), "what is known")


def test_one_uid_has_so_many_runs_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "MOST_RUNS", 2)
    first, _second = world.open(), world.open()
    with pytest.raises(RunRefusal) as caught:
        world.open()
    assert caught.value.code == "overloaded"
    world.cancel(first)
    world.open()
    world.runs.open(OpenRun(1), UID + 1, lambda _run: None, lambda: None)


def test_a_daemon_that_stops_opens_no_run(world: World) -> None:
    run = world.open()
    world.runs.shut_down()
    assert stop_of(run) == ("cancelled", "shutdown")
    with pytest.raises(RunRefusal) as caught:
        world.open()
    assert caught.value.code == "shutdown"


def test_a_stop_lists_the_newest_effects_and_counts_the_others(world: World) -> None:
    effects = [OpenEffect(f"c_{n}", "t", "r", UID, "k", n) for n in range(EFFECTS_LISTED + 7)]
    world.runs.open_effects = lambda _run: effects
    run = world.open()
    world.runs.stop(run, RunStatus.STUCK, RunReason.BREAKER, "x" * 10_000)
    assert run.stop is not None
    assert (run.stop.unresolved_effects, run.stop.effects_left_out) == (effects[7:], 7)
    assert len(run.stop.detail) < 5_000


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("waits", [True, False])
def test_a_stop_that_the_disk_has_not_taken_says_so(world: World, waits: bool, durable: bool) -> None:
    run = world.open()
    world.disk.holds = True
    if waits:
        world.runs.feed(run, machine.Waited(RunStatus.NEEDS_INPUT, RunReason.NO_NEW_EVIDENCE, 0))
    else:
        world.cancel(run)
    assert run.stop is None, "and nobody hears of it before the disk has answered"
    world.disk.answer(durable)
    assert run.stop is not None
    assert run.stop.durable is durable


def test_a_run_that_is_over_holds_nobody(world: World) -> None:
    run = world.open()
    run.opener = asker = object()
    run.finishers.append((asker, 1))
    world.cancel(run)
    assert (run.opener, run.finishers, run.watchers) == (None, [], {})


# ---------------------------------------------------------------- another life


def suspended(world: World, **fields: Any) -> LiveRun:
    run = world.open(**fields)
    waited = machine.Waited(RunStatus.NEEDS_INPUT, RunReason.MISSING_PARAMETER, 0)
    world.runs.feed(run, waited)
    return run


def row(run: LiveRun, world: World) -> run_rows.RunRow:
    """As the disk has it."""
    spec = {**run.spec._asdict(), "secret_key": run.spec.secret_key.hex()}
    waits = run.stop is not None
    snapshot = None
    if waits:
        effect = machine.Suspend(RunStatus.NEEDS_INPUT, RunReason.MISSING_PARAMETER, "", 1_000_000)
        snapshot = shell.snapshot_of(run, world.runs.ledger, effect)
    state = run_rows.WAITING if waits else run_rows.OPEN
    return run_rows.RunRow(run.id, UID, state, spec, snapshot, run.stop, run.spec.opened_ms)


def another_life(*rows: run_rows.RunRow) -> World:
    world = World()
    recall_runs(world.runs, RecoveredRuns(list(rows), [], {}, {}, {}))
    return world


def test_what_waits_in_another_life_is_still_part_of_the_run_that_waits_too() -> None:
    before = World()
    parent = before.open(session="s")
    part = suspended(before, parent=parent.id)
    before.runs.feed(parent, machine.Waited(RunStatus.NEEDS_INPUT, RunReason.MISSING_PARAMETER, 0))
    after = another_life(row(part, before), row(parent, before))  # the disk has no order
    assert {run.id for run in after.runs.going_on()} == {parent.id, part.id}
    after.runs.ledger.spend(after.runs.find(part.id, UID).node, {"steps": 3})
    assert after.runs.ledger.view(after.runs.find(parent.id, UID).node)["steps"].used == 3
    after.cancel(after.runs.find(parent.id, UID))
    assert stop_of(after.runs.find(part.id, UID)) == ("cancelled", "parent")


def test_the_end_of_a_lost_run_says_what_its_models_have_cost() -> None:
    before, after = World(), World()
    run = before.open()
    charges = [run_rows.Charge(1, {"cost_micros": 900, "tokens_in": 800}), run_rows.Charge(2, {"tokens_in": -100})]
    recall_runs(after.runs, RecoveredRuns([row(run, before)], [], {run.id: charges}, {}, {}))
    (end,) = [change.event for change in after.disk.written if change.event is not None]
    assert end.kind == "run_settled"
    told = msgspec.json.decode(end.data)
    assert (told["cost_micros"], told["tokens_in"], told["tokens_out"]) == (900, 700, 0)


def test_what_waits_is_cancelled_when_the_run_it_was_part_of_is_lost() -> None:
    before = World()
    parent = before.open()
    part = suspended(before, parent=parent.id)
    after = another_life(row(part, before), row(parent, before))
    assert after.runs.going_on() == []
    assert stop_of(after.runs.find(part.id, UID)) == ("cancelled", "parent")
    assert stop_of(after.runs.find(parent.id, UID)) == ("internal_error", "recovered_after_crash")
