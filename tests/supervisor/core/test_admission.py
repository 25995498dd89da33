from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from protocol import Reason
from supervisor.core.admission import Admission, Effects, Granted, Overdue, Refused

FAR = 1 << 60


def submit(
    machine: Admission,
    call: str,
    lane: str | None = None,
    *,
    beside: bool = False,
    resource: str | None = None,
    deadline_ns: int = FAR,
    alone: str | None = None,
) -> Effects:
    return machine.submitted(call, lane or call, beside, resource, deadline_ns, alone)


def granted(effects: Effects) -> list[str]:
    assert all(isinstance(effect, Granted) for effect in effects)
    return [effect.call_id for effect in effects]


def test_an_uncontended_call_is_granted_at_once_and_leaves_no_trace() -> None:
    machine = Admission()
    assert submit(machine, "a", resource="db") == (Granted("a"),)
    assert (machine.in_flight, machine.waiting, machine.next_timer_ns()) == (1, 0, None)
    assert machine.finished("a") == ()
    assert (machine.in_flight, machine._calls, machine._lanes, machine._resources) == (0, {}, {}, {})


def test_serial_calls_of_a_run_go_one_after_the_other() -> None:
    machine = Admission()
    assert granted(submit(machine, "a", "run")) == ["a"]
    assert submit(machine, "b", "run") == ()
    assert submit(machine, "c", "run") == ()
    assert granted(machine.finished("a")) == ["b"]
    assert granted(machine.finished("b")) == ["c"]


def test_calls_outside_a_run_do_not_wait_for_each_other() -> None:
    machine = Admission()
    assert granted(submit(machine, "a")) == ["a"]
    assert granted(submit(machine, "b")) == ["b"]


def test_side_by_side_calls_of_a_run_run_together_and_a_serial_one_runs_alone() -> None:
    machine = Admission()
    assert granted(submit(machine, "r1", "run", beside=True)) == ["r1"]
    assert granted(submit(machine, "r2", "run", beside=True)) == ["r2"]
    assert submit(machine, "w", "run") == ()
    machine.finished("r1")
    assert granted(machine.finished("r2")) == ["w"]


def test_a_side_by_side_call_does_not_overtake_a_waiting_serial_one() -> None:
    machine = Admission()
    submit(machine, "r1", "run", beside=True)
    submit(machine, "w", "run")
    assert submit(machine, "r2", "run", beside=True) == ()
    assert submit(machine, "r3", "run", beside=True) == ()
    assert granted(machine.finished("r1")) == ["w"]
    assert granted(machine.finished("w")) == ["r2", "r3"]


def test_withdrawing_the_serial_call_lets_those_behind_it_in() -> None:
    machine = Admission()
    submit(machine, "r1", "run", beside=True)
    submit(machine, "w", "run")
    submit(machine, "r2", "run", beside=True)
    assert granted(machine.cancelled("w")) == ["r2"]


def test_a_resource_has_one_holder_in_the_whole_daemon() -> None:
    machine = Admission()
    submit(machine, "a", resource="db")
    assert submit(machine, "b", resource="db") == ()
    assert submit(machine, "c", "run", beside=True, resource="db") == ()
    assert granted(submit(machine, "d", "run", beside=True)) == ["d"], "waits for no resource, so it passes"
    assert granted(machine.finished("a")) == ["b"]
    assert granted(machine.finished("b")) == ["c"]


def test_a_tool_that_runs_alone_runs_one_call_at_a_time_whatever_their_resources_and_lanes() -> None:
    machine = Admission()
    assert granted(submit(machine, "a", beside=True, resource="db", alone="t")) == ["a"]
    assert submit(machine, "b", beside=True, resource="port", alone="t") == ()
    assert submit(machine, "c", beside=True, resource="port") == ()  # b has the port, and waits for the tool
    assert granted(submit(machine, "d", beside=True)) == ["d"]
    assert granted(machine.finished("a")) == ["b"]
    assert granted(machine.finished("b")) == ["c"]


def test_a_tool_that_runs_alone_and_a_resource_of_the_same_name_do_not_wait_for_each_other() -> None:
    machine = Admission()
    assert granted(submit(machine, "a", resource="t")) == ["a"]
    assert granted(submit(machine, "b", alone="t")) == ["b"]


def test_a_resource_goes_to_the_call_submitted_first_even_when_its_lane_opens_last() -> None:
    machine = Admission()
    submit(machine, "a1", "run", resource="db")
    submit(machine, "a2", "run", resource="db")
    submit(machine, "b", resource="db")
    assert granted(machine.finished("a1")) == ["a2"]


def test_who_runs_alone_next_is_the_call_submitted_first_whichever_way_it_waited() -> None:
    """One end frees a resource and a lane: who waited for the lane came later, and does not come first."""
    machine = Admission()
    assert granted(submit(machine, "a", lane="r", resource="port")) == ["a"]
    assert submit(machine, "b", resource="port", alone="t") == ()
    assert submit(machine, "c", lane="r", alone="t") == ()
    assert granted(machine.finished("a")) == ["b"]
    assert granted(machine.finished("b")) == ["c"]


def test_places_in_flight_go_in_order_of_submission_across_lanes() -> None:
    machine = Admission(capacity=2)
    for call in "abcd":
        submit(machine, call)
    assert granted(machine.finished("b")) == ["c"]
    assert granted(machine.finished("a")) == ["d"]


def test_a_full_queue_refuses_as_overloaded_but_never_a_call_that_can_start() -> None:
    machine = Admission(capacity=2, queue=1)
    submit(machine, "a", "run")
    assert submit(machine, "b", "run") == ()
    assert submit(machine, "c", "run") == (Refused("c", Reason.OVERLOADED),)
    assert granted(submit(machine, "d")) == ["d"]
    assert submit(machine, "e", "other") == (Refused("e", Reason.OVERLOADED),)
    assert "other" not in machine._lanes


def test_a_call_that_waits_past_its_deadline_is_overdue_and_frees_what_it_held() -> None:
    machine = Admission(capacity=1)
    submit(machine, "a")
    submit(machine, "b", deadline_ns=50, resource="db")
    submit(machine, "c", deadline_ns=90, resource="db")
    assert machine.next_timer_ns() == 50
    assert machine.on_time(49) == ()
    assert machine.on_time(50) == (Overdue("b"),)
    assert machine.next_timer_ns() == 90
    assert granted(machine.finished("a")) == ["c"]
    assert machine.next_timer_ns() is None


def test_calls_overdue_at_one_instant_are_never_granted_by_it() -> None:
    machine = Admission(capacity=2)
    submit(machine, "a", "run")
    submit(machine, "x")
    submit(machine, "late1", deadline_ns=10, resource="db")
    submit(machine, "late2", deadline_ns=11, resource="db")
    submit(machine, "good", resource="db")
    machine.finished("a")  # late1 starts; the two others wait for its resource
    assert machine.on_time(20) == (Overdue("late2"),)
    assert granted(machine.finished("late1")) == ["good"]


def test_a_cancel_of_a_call_in_flight_frees_nothing() -> None:
    machine = Admission(capacity=1)
    submit(machine, "a")
    submit(machine, "b")
    assert machine.cancelled("a") == ()
    assert machine.in_flight == 1
    assert granted(machine.finished("a")) == ["b"]


def test_an_id_that_is_not_here_changes_nothing() -> None:
    machine = Admission()
    assert machine.finished("ghost") == machine.cancelled("ghost") == machine.on_time(FAR) == ()


def test_submitting_an_id_twice_is_refused_loudly() -> None:
    machine = Admission()
    submit(machine, "a")
    with pytest.raises(ValueError, match="twice"):
        submit(machine, "a")


@pytest.mark.parametrize(("capacity", "queue"), [(0, 1), (-1, 1), (1, -1)])
def test_a_machine_that_could_never_grant_is_refused(capacity: int, queue: int) -> None:
    with pytest.raises(ValueError, match="capacity"):
        Admission(capacity, queue)


def test_submitting_and_cancelling_for_ever_grows_nothing() -> None:
    machine = Admission(capacity=1)
    submit(machine, "holder", resource="db")
    for number in range(5_000):
        submit(machine, f"c{number}", "run", resource="db", deadline_ns=FAR + number)
        machine.cancelled(f"c{number}")
    assert len(machine._deadlines._heap) < 200
    lock = machine._resources[0, "db"]
    assert lock.waiting is not None
    assert len(lock.waiting._heap) < 200
    assert list(machine._lanes) == ["holder"]


# ------------------------------------------------------------------ against a plain model


@dataclass(eq=False)
class Plain:
    """A call in the model: no queues, no heaps; whoever may go on is found by looking at everybody, oldest first."""

    call: str
    lane: str
    beside: bool
    resource: str | None
    deadline_ns: int
    alone: str | None = None
    entered: bool = False
    has_resource: bool = False
    holds: bool = False
    running: bool = False


@dataclass
class PlainModel:
    capacity: int
    queue: int
    calls: list[Plain] = field(default_factory=list)

    def running(self) -> list[Plain]:
        return [call for call in self.calls if call.running]

    def waiting(self) -> list[Plain]:
        return [call for call in self.calls if not call.running]

    def settle(self) -> set[str]:
        """Give everybody what they can have; the ids that now start."""
        for call in self.calls:
            call.entered = call.entered or self._may_enter(call)
        for call in self.calls:
            call.has_resource = call.has_resource or (call.entered and self._may_hold(call))
            call.holds = call.holds or (call.has_resource and self._may_be_alone(call))
        started = {call.call for call in [c for c in self.waiting() if c.holds][: self.capacity - len(self.running())]}
        for call in self.calls:
            call.running = call.running or call.call in started
        return started

    def _may_enter(self, call: Plain) -> bool:
        lane = [other for other in self.calls if other.lane == call.lane]
        before = lane[: lane.index(call)]
        if any(not other.entered for other in before):
            return False
        inside = [other for other in lane if other.entered]
        return not inside or (call.beside and all(other.beside for other in inside))

    def _may_hold(self, call: Plain) -> bool:
        held = [other.resource for other in self.calls if other.has_resource]
        return call.resource is None or call.resource not in held

    def _may_be_alone(self, call: Plain) -> bool:
        return call.alone is None or call.alone not in [other.alone for other in self.calls if other.holds]


class AgainstThePlainModel(RuleBasedStateMachine):
    ids = Bundle("ids")

    def __init__(self) -> None:
        super().__init__()
        self.machine = Admission(capacity=3, queue=6)
        self.model = PlainModel(capacity=3, queue=6)
        self.submissions = 0
        self.now_ns = 0
        self.fate: dict[str, str] = {}

    @rule(
        target=ids,
        lane=st.sampled_from(["", "run1", "run2"]),
        beside=st.booleans(),
        resource=st.sampled_from([None, None, "db", "port"]),
        patience=st.integers(1, 40),
        alone=st.sampled_from([None, None, "tool"]),
    )
    def submit(self, lane: str, beside: bool, resource: str | None, patience: int, alone: str | None) -> str:
        self.submissions += 1
        name = f"c{self.submissions}"
        call = Plain(name, lane or name, beside, resource, self.now_ns + patience, alone)
        effects = self.machine.submitted(name, call.lane, beside, resource, call.deadline_ns, alone)
        full = len(self.model.waiting()) >= self.model.queue
        self.model.calls.append(call)
        started = self.model.settle()
        if not started and full:
            self.model.calls.remove(call)
            assert effects == (Refused(name),)
            self.note(name, "refused")
            return name
        assert started <= {name}, "a submission starts nobody else"
        self.heard(effects, started)
        return name

    @rule(call=consumes(ids))
    def finish(self, call: str) -> None:
        self.leave(call, self.machine.finished(call))

    @rule(target=ids, call=consumes(ids))
    def cancel(self, call: str) -> object:
        """A cancelled call in flight stays and is finished later."""
        if any(running.call == call for running in self.model.running()):
            assert self.machine.cancelled(call) == ()
            return call
        self.leave(call, self.machine.cancelled(call))
        return multiple()

    @rule(step=st.integers(0, 15))
    def time_passes(self, step: int) -> None:
        self.now_ns += step
        effects = self.machine.on_time(self.now_ns)
        late = [call for call in self.model.waiting() if call.deadline_ns <= self.now_ns]
        for call in late:
            self.model.calls.remove(call)
            self.note(call.call, "overdue")
        assert {e.call_id for e in effects if isinstance(e, Overdue)} == {call.call for call in late}
        self.heard(tuple(e for e in effects if not isinstance(e, Overdue)), self.model.settle())

    def leave(self, name: str, effects: Effects) -> None:
        call = next((call for call in self.model.calls if call.call == name), None)
        if call is None:
            assert effects == ()
            return
        if not call.running:
            self.note(name, "withdrawn")
        self.model.calls.remove(call)
        self.heard(effects, self.model.settle())

    def heard(self, effects: Effects, expected: set[str]) -> None:
        names = granted(effects)
        assert len(names) == len(set(names))
        assert set(names) == expected
        for name in names:
            self.note(name, "granted")

    def note(self, name: str, fate: str) -> None:
        assert name not in self.fate, "a call has one fate"
        self.fate[name] = fate

    @invariant()
    def the_counts_agree_and_capacity_holds(self) -> None:
        assert self.machine.in_flight == len(self.model.running()) <= self.model.capacity
        assert self.machine.waiting == len(self.model.waiting()) <= self.model.queue

    @invariant()
    def nobody_shares_what_is_exclusive(self) -> None:
        running = self.model.running()
        for call in running:
            beside = [other for other in running if other is not call and other.lane == call.lane]
            assert call.beside or not beside, "a serial call is alone in its lane"
            assert call.resource is None or sum(other.resource == call.resource for other in running) == 1
            assert call.alone is None or sum(other.alone == call.alone for other in running) == 1

    @invariant()
    def the_timer_is_the_earliest_deadline_of_the_waiting(self) -> None:
        assert self.machine.next_timer_ns() == min((call.deadline_ns for call in self.model.waiting()), default=None)

    def teardown(self) -> None:
        """Nobody is lost: finishing whoever runs, again and again, gives each call its fate and empties the machine."""
        while running := self.model.running():
            self.leave(running[0].call, self.machine.finished(running[0].call))
        assert not self.model.calls, "the machine stands still while calls wait"
        assert len(self.fate) == self.submissions
        machine = self.machine
        assert (machine.in_flight, machine.waiting, machine.next_timer_ns()) == (0, 0, None)
        assert (machine._calls, machine._lanes, machine._resources) == ({}, {}, {})


AgainstThePlainModel.TestCase.settings = settings(max_examples=300, stateful_step_count=50, deadline=None)
TestTheMachineIsThePlainModel = AgainstThePlainModel.TestCase
