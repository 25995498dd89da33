"""What a run makes of its questions, with the machine of a run and everything else of the test's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from protocol._runs import RunReason, RunStatus
from supervisor.core import run as machine
from supervisor.core.approvals import Close, State
from supervisor.core.budget import Level, Node, Refused
from supervisor.core.checkpoints import Obstacle
from supervisor.core.intake import Refusal
from supervisor.core.run import RunMachine
from supervisor.core.run import State as RunState
from supervisor.run_approvals import RunApprovals
from supervisor.runs import RunRefusal

HOUR_NS = 3_600_000_000_000
REJECTED = Close(State.REJECTED, "no")


class World:
    """One run, with calls in flight as the test says, and what it was told."""

    def __init__(self) -> None:
        self.machine = RunMachine(1 << 62)
        self.run: Any = SimpleNamespace(
            id="r", spec=SimpleNamespace(uid=7), machine=self.machine, approvals=set(), asked_people=0, stop=None
        )
        self.run.node = Node(Level.RUN, "r")
        self.run.settled = False
        self.effects: list[str] = []
        self.stops: list[tuple[RunStatus, RunReason]] = []
        self.let_go = 0
        self.room: Any = "reserved"
        self.voided: list[str] = []
        self.standing: list[Any] = []
        self.on_stop: list[Any] = []
        self.ledger = SimpleNamespace(
            reserve=lambda _node, _amounts, aside: self.room, can=lambda _node, _amounts: self.room
        )
        world: Any = self
        self.approvals: Any = SimpleNamespace(
            void_all=lambda uid, run, why: self.voided.append(run),
            withdraw=lambda call, why: self.voided.append(call),
            book=SimpleNamespace(of_run=lambda uid, run: self.standing),
        )
        self.bridge = RunApprovals(world, world, self.approvals)

    # what runs are to the bridge

    def find(self, name: str, uid: int) -> Any:
        if name != "r":
            raise RunRefusal("unknown_run", "no")
        return self.run

    def going_on(self) -> list[Any]:
        return [self.run]

    def feed(self, run: Any, given: Any) -> None:
        self.effects += [type(effect).__name__ for effect in self.machine.on(given)]

    def stop(self, run: Any, status: RunStatus, reason: RunReason, detail: str = "") -> None:
        self.stops.append((status, reason))

    def refused(self, run: Any, refused: Any) -> None:
        self.stops.append((RunStatus.BUDGET_EXHAUSTED, RunReason.TOOL_CALL_BUDGET))

    # what judgement is to it

    def resume(self, run: Any, call: Any, reserved: Any) -> Any:
        self.feed(run, machine.Began())
        return reserved

    def let_go_of(self, run: Any) -> None:
        self.let_go += 1


def question(name: str, run: str = "r") -> Any:
    checkpoint = SimpleNamespace(
        approval=name, call=f"c_{name}", uid=7, run=run, tool="pay", reason="why", confirms=False
    )
    return SimpleNamespace(id=name, checkpoint=checkpoint, pending=True)


@pytest.fixture
def world() -> World:
    made = World()
    made.bridge._judgement = SimpleNamespace(resume=made.resume, let_go=made.let_go_of)  # type: ignore[assignment]  # a part
    return made


def call() -> Any:
    return SimpleNamespace(stake=None)


def test_a_run_waits_when_nothing_else_of_it_is_in_flight(world: World) -> None:
    world.feed(world.run, machine.Began())
    world.bridge.asked(question("a_1"))
    assert (world.machine.state, world.run.approvals, world.run.asked_people) == (RunState.RUNNING, {"a_1"}, 1)
    world.feed(world.run, machine.Ended(5))
    assert (world.machine.state, world.effects) == (RunState.SUSPENDED, ["Suspend"])


def test_a_run_goes_on_with_the_first_yes_and_waits_again_for_the_rest(world: World) -> None:
    one, other = question("a_1"), question("a_2")
    world.bridge.asked(one)
    world.bridge.asked(other)
    approved = call()
    assert world.bridge.begin(one, approved, "reserved")  # type: ignore[arg-type]  # whatever the ledger gave
    assert (approved.stake, world.machine.state, world.machine.in_flight) == ("reserved", RunState.RUNNING, 1)
    world.feed(world.run, machine.Ended(5))
    assert (world.machine.state, world.run.approvals) == (RunState.SUSPENDED, {"a_2"})
    assert world.bridge.begin(other, call(), "reserved")  # type: ignore[arg-type]  # likewise
    world.feed(world.run, machine.Ended(6))
    assert (world.machine.state, world.run.approvals) == (RunState.RUNNING, set())


def test_a_no_to_one_of_two_leaves_the_run_waiting_for_the_other(world: World) -> None:
    one, other = question("a_1"), question("a_2")
    world.bridge.asked(one)
    world.bridge.asked(other)
    world.bridge.closed(one, REJECTED)
    assert world.machine.state is RunState.SUSPENDED
    world.bridge.closed(other, REJECTED)
    assert (world.machine.state, world.let_go) == (RunState.RUNNING, 2)


def test_a_no_before_the_run_was_suspended_leaves_it_running(world: World) -> None:
    world.feed(world.run, machine.Began())
    world.bridge.asked(question("a_1"))
    world.bridge.closed(question("a_1"), REJECTED)
    world.feed(world.run, machine.Ended(5))
    assert world.machine.state is RunState.RUNNING


@pytest.mark.parametrize(
    ("close", "stop", "state"),
    [
        (REJECTED, [], RunState.RUNNING),
        (Close(State.VOID, "cancelled"), [], RunState.RUNNING),
        (Close(State.VOID, "x", Obstacle.MISMATCH), [], RunState.RUNNING),
        (Close(State.VOID, "x", Obstacle.STRICTER), [], RunState.SUSPENDED),
        (
            Close(State.REJECTED, "no", then="stop"),
            [(RunStatus.BLOCKED, RunReason.APPROVAL_REJECTED)],
            RunState.SUSPENDED,
        ),
        (Close(State.EXPIRED, "late"), [(RunStatus.BLOCKED, RunReason.APPROVAL_EXPIRED)], RunState.SUSPENDED),
        (
            Close(State.VOID, "x", Obstacle.DENIED),
            [(RunStatus.BLOCKED, RunReason.POLICY_DENIED)],
            RunState.SUSPENDED,
        ),
        (
            Close(State.VOID, "x", Obstacle.EXHAUSTED),
            [(RunStatus.BUDGET_EXHAUSTED, RunReason.TOOL_CALL_BUDGET)],
            RunState.SUSPENDED,
        ),
    ],
)
def test_how_a_question_ends_says_whether_its_run_goes_on(world: World, close: Close, stop: Any, state: Any) -> None:
    world.bridge.asked(question("a_1"))
    world.bridge.closed(question("a_1"), close)
    assert (world.stops, world.machine.state) == (stop, state)


def test_a_run_that_has_ended_takes_its_questions_with_it_and_begins_nothing(world: World) -> None:
    (hear,) = world.on_stop
    hear(world.run)
    assert world.voided == ["r"]
    world.run.settled = True
    assert not world.bridge.begin(question("a_1"), call(), "reserved")  # type: ignore[arg-type]  # likewise
    assert not world.bridge.goes_on(question("a_1").checkpoint)
    assert not world.bridge.goes_on(question("a_1", "r_unknown").checkpoint)
    world.bridge.asked(question("a_2"))
    assert world.voided == ["r", "c_a_2"], "one that was on its way then is void too"


def test_a_run_that_is_stopping_takes_no_approved_call(world: World) -> None:
    world.feed(world.run, machine.Began())
    world.feed(world.run, machine.StopAsked(RunStatus.CANCELLED, RunReason.CLIENT, 1))
    with pytest.raises(Refusal, match="stopping"):
        world.bridge.reserve(question("a_1").checkpoint)


def test_no_room_for_good_is_said_and_no_room_just_now_is_refused(world: World) -> None:
    node = world.run.node
    assert world.bridge.reserve(question("a_1").checkpoint) == "reserved"
    world.room = Refused(node, "tool_calls", 1, 1, 0, 1)
    assert isinstance(world.bridge.reserve(question("a_1").checkpoint), str)
    world.room = Refused(node, "branches", 1, 0, 1, 1)
    with pytest.raises(Refusal):
        world.bridge.reserve(question("a_1").checkpoint)


def test_a_run_whose_questions_were_all_answered_when_its_daemon_died_goes_on(world: World) -> None:
    world.bridge.asked(question("a_1"))
    world.run.stop = SimpleNamespace(reason=RunReason.APPROVAL_REQUIRED)
    world.standing = [question("a_1")]
    world.bridge.recalled()
    assert (world.machine.state, world.run.approvals) == (RunState.SUSPENDED, {"a_1"})
    world.standing[0].pending = False
    world.bridge.recalled()
    assert (world.machine.state, world.run.approvals) == (RunState.RUNNING, set())


def confirmation(world: World, name: str = "a_1", checks: int = 1) -> Any:
    """A run with checks asks a person to confirm its answer; the question."""
    world.machine.checks = checks
    world.feed(world.run, machine.FinishAsked("42", 1))
    asked = question(name)
    asked.checkpoint.confirms = True
    asked.machine = SimpleNamespace(state=State.PENDING, note="")
    world.bridge.asked(asked)
    assert world.machine.state is RunState.SUSPENDED
    return asked


@pytest.mark.behaviour("M120")
def test_a_confirmed_answer_ends_its_run_when_no_check_is_left(world: World) -> None:
    asked = confirmation(world, checks=2)
    world.bridge.confirmed(asked)
    assert (world.effects[-2:], world.machine.state) == (["Resume", "Check"], RunState.CHECKING)
    assert world.run.approvals == set()
    world.feed(world.run, machine.CheckEnded(None, 9))
    assert world.machine.state is RunState.SETTLED


@pytest.mark.parametrize(
    ("close", "refusals"),
    [(REJECTED, 1), (Close(State.VOID, "it was changed", Obstacle.MISMATCH), 0), (Close(State.VOID, "cancelled"), 0)],
)
def test_whatever_else_becomes_of_the_question_is_no_yes(world: World, close: Close, refusals: int) -> None:
    asked = confirmation(world)
    world.bridge.closed(asked, close)
    assert (world.effects[-2:], world.machine.state) == (["Resume", "RefuseFinish"], RunState.RUNNING)
    assert (world.machine.refusals, world.stops) == (refusals, [])


def test_an_answer_that_nobody_confirms_in_time_blocks_its_run(world: World) -> None:
    asked = confirmation(world)
    world.bridge.closed(asked, Close(State.EXPIRED, "late"))
    assert world.stops == [(RunStatus.BLOCKED, RunReason.APPROVAL_EXPIRED)]


@pytest.mark.parametrize("state", list(State))
def test_in_the_next_life_only_a_yes_that_was_written_confirms(world: World, state: State) -> None:
    asked = confirmation(world)
    world.run.stop = SimpleNamespace(reason=RunReason.APPROVAL_REQUIRED)
    asked.pending, asked.machine.state = state is State.PENDING, state
    world.standing = [asked]
    world.bridge.recalled()
    wanted = {State.PENDING: RunState.SUSPENDED, State.CONSUMED: RunState.SETTLED}
    assert world.machine.state is wanted.get(state, RunState.RUNNING)


def test_in_the_next_life_a_question_that_is_lost_confirms_nothing(world: World) -> None:
    asked = confirmation(world)
    world.run.stop = SimpleNamespace(reason=RunReason.APPROVAL_REQUIRED)
    earlier = question("a_0")
    earlier.pending, earlier.machine = False, SimpleNamespace(state=State.CONSUMED)
    world.standing = [earlier]
    world.bridge.recalled()
    assert (world.machine.state, world.machine.refusals) == (RunState.RUNNING, 0)
    assert asked.id not in world.run.approvals


@pytest.mark.parametrize("state", list(RunState))
def test_an_approved_call_begins_only_in_a_run_that_goes_on_or_waits(world: World, state: RunState) -> None:
    """The person's word was being written while the run began to end: nothing of it may begin any more."""
    world.run.approvals.add("a_1")
    world.machine.state = state
    goes_on = state in (RunState.RUNNING, RunState.SUSPENDED)
    assert world.bridge.begin(question("a_1"), call(), "reserved") is goes_on  # type: ignore[arg-type]  # whatever the ledger gave
    assert world.machine.in_flight == (1 if goes_on else 0)
