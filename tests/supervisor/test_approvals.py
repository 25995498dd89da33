"""What the shell of approvals does, with a wall clock, a disk and calls of the test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import trio

from protocol import _client_messages as cm
from protocol._contracts import Contract, Limits, ToolDescription
from protocol._outcomes import CallResult, Reason, Status
from supervisor.approval_book import MOST_PENDING
from supervisor.approvals import Approvals
from supervisor.config_policy import ApprovalSettings
from supervisor.core.approvals import Close, State
from supervisor.core.checkpoints import Asked, Checkpoint, Frame, Obstacle, digest
from supervisor.core.intake import Host, Judged, Refusal, judge
from supervisor.core.policy import Action, Policy, Rule, Ruling
from supervisor.core.tools import Tools
from supervisor.journal import approval_rows
from supervisor.journal.approval_rows import StoredApproval
from supervisor.journal.journal import Entry, joined
from supervisor.journal.store import Change
from supervisor.live_approval import LiveApproval, Prepared
from supervisor.live_call import LiveCall

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}
HOUR_MS = 3_600_000
FINE = '{ "n": 1 }'


class Disk:
    """A journal that takes what it is given, when the test lets it."""

    refuses = False
    trouble = "the disk is full"

    def __init__(self) -> None:
        self.takes: bool | None = True
        """None: it has not answered yet."""
        self.written: list[Change] = []
        self._joining: list[Entry] | None = None
        self._held: list[tuple[tuple[Change, ...], Callable[[bool], None]]] = []

    @contextmanager
    def together(self) -> Iterator[None]:
        self._joining = entries = []
        yield
        self._joining = None
        one = joined(entries)
        self.append(one.changes, one.then)

    def append(self, changes: tuple[Change, ...], then: Any = None, keep: bool = True) -> None:
        if self._joining is not None:
            self._joining.append(Entry(changes, then, keep))
        elif then is None:
            self.written += changes
        elif self.takes is None:
            self._held.append((changes, then))
        else:
            self._answer(changes, then, self.takes)

    def answer(self, durable: bool) -> None:
        held, self._held = self._held, []
        for changes, then in held:
            self._answer(changes, then, durable)

    def _answer(self, changes: tuple[Change, ...], then: Callable[[bool], None], durable: bool) -> None:
        self.written += changes if durable else ()
        then(durable)

    def told(self) -> list[str]:
        return [change.event.kind for change in self.written if change.event is not None]


class Calls:
    """What approvals want of calls; ``begun`` and ``dropped`` in the order in which it happened."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.begun: list[LiveCall] = []
        self.dropped: list[str] = []
        self.refusals: list[tuple[Reason, str]] = []
        self.not_now: Refusal | None = None

    def ask(
        self, call: LiveCall, asked: tuple[Change, ...], text: str, announced: Callable[[], Refusal | None]
    ) -> None:
        self._world.disk.append(asked)
        assert announced() is None
        call.tell(self._result(call, Status.WAITING_FOR_APPROVAL))

    def _result(self, call: LiveCall, status: Status) -> CallResult:
        return CallResult(call.id, call.judged.tool, status, approval=call.approval)

    def approved(self, checkpoint: Checkpoint, edited: str | None, run: Any) -> Prepared:
        if self.not_now is not None:
            raise self.not_now
        judged = self._world.judged(checkpoint.arguments if edited is None else edited)
        return Prepared(LiveCall("c_new", checkpoint.uid, checkpoint.key, judged, 0), (Change("its row"),))

    def begin(self, call: LiveCall) -> None:
        self.begun.append(call)

    def drop(self, call: LiveCall, status: Status, reason: Reason, text: str) -> None:
        self.dropped.append(call.id)

    def answer(self, checkpoint: Checkpoint, status: Status, reason: Reason, text: str) -> str:
        self.refusals.append((reason, text))
        return "c_refusal"


class Runs:
    """What approvals want of runs: one run that has room, or has not."""

    def __init__(self) -> None:
        self.room: Any = object()
        self.lives = True
        self.said: list[Any] = []

    def frame(self, call: LiveCall) -> Frame:
        return Frame("goal", "1.1", 0, 1_000, {})

    def frame_of(self, run: Any, decision: str) -> Frame:
        return Frame("goal", decision, 0, 1_000, {})

    def objection(self, frozen: Checkpoint) -> Refusal | None:
        return None

    def asked(self, approval: LiveApproval) -> None:
        self.said.append(("asked", approval.id))

    def confirmed(self, approval: LiveApproval) -> None:
        self.said.append(("confirmed", approval.machine.note))

    def run_of(self, frozen: Checkpoint) -> Any:
        return self

    def reserve(self, frozen: Checkpoint) -> Any:
        return self.room

    def release(self, reserved: Any) -> None:
        self.said.append("released")

    def begin(self, approval: LiveApproval, call: LiveCall, reserved: Any) -> bool:
        self.said.append(("goes on", call.id))
        return self.lives

    def goes_on(self, frozen: Checkpoint) -> bool:
        return self.lives

    def waits_for(self, approval: LiveApproval) -> bool:
        return self.lives and ("asked", approval.id) in self.said

    def closed(self, approval: LiveApproval, close: Close) -> None:
        self.said.append((close.state, close.obstacle))

    def recalled(self) -> None:
        self.said.append("recalled")


class Person:
    """A connection: who asks, and what it has heard."""

    def __init__(self, uid: int = 7) -> None:
        self.uid = uid
        self.attached: dict[int, LiveCall] = {}
        self.awaited: dict[int, LiveCall] = {}
        self.heard: list[Any] = []

    def say(self, message: cm.FromDaemon) -> None:
        self.heard.append(message)

    def settled(self, request: int, result: CallResult) -> None:
        raise AssertionError("nobody waits here")


class World:
    """One daemon's approvals with all that they stand on."""

    def __init__(self, policy: Policy | None = None, contract: Contract | None = None) -> None:
        self.disk, self.person, self.now_ms, self.numbers = Disk(), Person(), 0, 0
        self.tools = Tools()
        self.tools.serve([ToolDescription("pay", "", contract or Contract(), SCHEMA)], "bare")
        self.settings = ApprovalSettings(expires_ms=HOUR_MS)
        self.policy = policy or Policy()
        self.calls, self.runs = Calls(self), Runs()
        self.approvals = self.made()

    def made(self) -> Approvals:
        disk: Any = self.disk
        made = Approvals("b", self.settings, self.policy, self.tools, disk, wall=lambda: self.now_ms)
        runs: Any = self.runs
        made.calls, made.runs = self.calls, runs
        return made

    def judged(self, arguments: str = FINE, run: str | None = None) -> Judged:
        host = Host("group", "none", Limits())
        return judge(cm.Submit(1, "pay", arguments, run=run), self.tools, host, 0)

    def ask(self, arguments: str = FINE, run: str | None = None) -> str:
        """Ask about one more call; the name of the question."""
        self.numbers += 1
        judged = self.judged(arguments, run)
        call = LiveCall(f"c_{self.numbers}", 7, f"key {self.numbers}", judged, 0)
        call.asks = self.question(judged)
        assert call.asks is not None
        self.approvals.ask(call)
        assert call.approval is not None
        return call.approval

    def confirm(self, arguments: str = '{"answer":"42"}') -> str:
        """Ask about the end of a run; the name of the question."""
        run: Any = SimpleNamespace(id="r", step=3, index=1, spec=SimpleNamespace(uid=7))
        self.approvals.confirm(run, arguments, "is it done?")
        (pending,) = self.approvals.book.pending()
        return pending.id

    def question(self, judged: Judged, uid: int = 7) -> Asked | None:
        """What is to be asked about a call. (Its fingerprint: its arguments without spaces.)"""
        questions, submit = self.approvals.questions, cm.Submit(1, "pay", judged.arguments, run=judged.run)
        return questions.question(submit, judged, uid, questions.ruling(judged), judged.arguments.replace(" ", ""))

    async def decide(self, name: str, decision: Any = "approve", person: Person | None = None, **more: Any) -> Any:
        """Decide; what is heard of it, None when nothing is yet."""
        who = person or self.person
        before = len(who.heard)
        self.approvals.take(who, cm.Decide(before, name, decision, **more))
        await trio.testing.wait_all_tasks_blocked()
        return who.heard[before] if len(who.heard) > before else None

    def state(self, name: str) -> str:
        found = self.approvals.book.get(name, 0)
        assert found is not None
        return str(found.machine.state)


@pytest.fixture
async def world(nursery: trio.Nursery) -> World:
    made = World()
    await nursery.start(made.approvals.run)
    return made


def code(heard: Any) -> str:
    assert isinstance(heard, cm.Failed), heard
    return heard.error.code


@pytest.mark.case("B089")
async def test_time_that_passes_and_clients_that_go_decide_nothing_until_it_expires(world: World) -> None:
    name = world.ask()
    world.now_ms += 600_000
    world.approvals.look_at_the_clock()
    assert world.state(name) == "pending"
    world.now_ms = HOUR_MS - 1
    world.approvals.look_at_the_clock()
    assert world.state(name) == "pending"
    world.now_ms = HOUR_MS
    world.approvals.look_at_the_clock()
    assert world.state(name) == "expired"
    assert code(await world.decide(name)) == "approval_expired"
    assert world.calls.begun == world.calls.refusals == []


async def test_an_answer_after_its_time_is_too_late_though_nobody_has_looked(world: World) -> None:
    name = world.ask()
    world.now_ms = HOUR_MS
    assert code(await world.decide(name)) == "approval_expired"
    assert world.calls.begun == []


async def test_an_approved_call_and_its_approval_are_written_before_it_begins(world: World) -> None:
    name, world.disk.takes = world.ask(), None
    assert await world.decide(name) is None, "nothing is said before the disk has it"
    assert (world.calls.begun, world.state(name)) == ([], "approved")
    late = Person()
    assert await world.decide(name, person=late) is None
    world.disk.answer(durable=True)
    assert [call.id for call in world.calls.begun] == ["c_new"]
    assert [(heard.call, heard.approval.state) for heard in (*world.person.heard, *late.heard)] == [
        ("c_new", "consumed")
    ] * 2
    assert world.disk.told()[-2:] == ["approval_decided", "approval_consumed"]
    assert world.disk.written[-1] == Change("its row")


async def test_a_disk_that_takes_nothing_leaves_the_question_where_it_was(world: World) -> None:
    name, world.disk.takes = world.ask(), False
    assert code(await world.decide(name, arguments='{"n": 2}')) == "store_unavailable"
    assert (world.state(name), world.calls.begun) == ("pending", [])
    world.disk.takes = True
    heard = await world.decide(name)
    assert (heard.call, heard.approval.arguments, heard.approval.version) == ("c_new", FINE, 1)


async def test_a_cancel_while_it_is_written_ends_the_call_at_once(world: World) -> None:
    name, world.disk.takes = world.ask(), None
    await world.decide(name)
    world.approvals.withdraw("c_1", "cancelled")
    world.disk.answer(durable=True)
    assert world.calls.dropped == ["c_new"]


async def test_a_daemon_that_takes_no_call_now_says_so_and_the_question_stands(world: World) -> None:
    name = world.ask()
    world.calls.not_now = Refusal(Reason.SHUTDOWN, "stopping")
    assert code(await world.decide(name)) == "shutdown"
    assert world.state(name) == "pending"


@pytest.mark.behaviour("M094")
async def test_what_was_cancelled_while_it_waited_cannot_be_approved(world: World) -> None:
    name = world.ask()
    world.approvals.withdraw("c_1", "cancelled")
    assert code(await world.decide(name)) == "approval_void"
    assert world.calls.begun == []
    assert world.calls.refusals == [(Reason.OPERATOR, "cancelled")], "which its delivery key answers with from now on"


class Fickle(Policy):
    """Rules that answer once, and fail when they are asked again."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def ruling(self, tool: str, values: Callable[[], dict[str, Any]]) -> Ruling:
        self.asked += 1
        if self.asked > 1:
            raise AssertionError("the rules were asked again")
        return Ruling(Action.ASK, "the rule asks")


@pytest.mark.case("B088")
@pytest.mark.parametrize("decision", ["approve", "reject"])
async def test_the_decision_binds_and_the_rules_are_not_asked_again(nursery: trio.Nursery, decision: str) -> None:
    fickle = Fickle()
    world = World(fickle)
    await nursery.start(world.approvals.run)
    heard = await world.decide(world.ask(), decision)
    assert fickle.asked == 1
    assert heard.call == ("c_new" if decision == "approve" else "c_refusal")
    assert len(world.calls.begun) == (decision == "approve")


async def test_a_person_who_says_no_is_quoted(world: World) -> None:
    name = world.ask()
    heard = await world.decide(name, "reject", note="no money")
    assert (heard.call, heard.approval.state) == ("c_refusal", "rejected")
    assert world.calls.refusals == [(Reason.APPROVAL_REJECTED, f"a person has said no ({name}): no money")]
    assert (await world.decide(name, "reject")).call == "c_refusal"
    assert code(await world.decide(name)) == "approval_rejected"


async def test_others_see_nothing_of_it_and_root_sees_all(world: World) -> None:
    name = world.ask()
    stranger, root = Person(8), Person(0)
    assert code(await world.decide(name, person=stranger)) == "unknown_approval"
    for who in (stranger, root):
        world.approvals.take(who, cm.ListApprovals(9))
    assert stranger.heard[-1].approvals == []
    assert [one.approval for one in root.heard[-1].approvals] == [name]
    assert (await world.decide(name, person=root)).approval.decided_by == 0


async def test_only_so_many_wait(world: World) -> None:
    for _ in range(MOST_PENDING):
        world.ask()
    with pytest.raises(Refusal, match="wait for a person") as refusal:
        world.ask()
    assert refusal.value.reason is Reason.OVERLOADED
    await world.decide("a_b000001", "reject")
    world.ask()


# ------------------------------------------------------------ in a run


@pytest.mark.parametrize(
    ("scope", "same", "other"), [("call", True, True), ("same_args", False, True), ("tool", False, False)]
)
async def test_a_scope_says_what_else_is_not_asked_about_in_the_run(world, scope, same, other):
    await world.decide(world.ask(run="r"), scope=scope)
    for arguments, asked in (('{"n":1}', same), ('{"n":2}', other)):
        judged = world.judged(arguments, "r")
        assert (world.question(judged) is not None) is asked
        assert world.question(world.judged(arguments, "r2")) is not None
        assert world.question(judged, 8) is not None
    world.approvals.void_all(7, "r", "over")
    assert world.question(world.judged(run="r")) is not None


async def test_a_scope_ends_with_the_rules_that_it_was_given_under(world: World) -> None:
    await world.decide(world.ask(run="r"), scope="tool")
    world.approvals.questions._policy = Policy((Rule("other", Action.ASK),))
    assert world.question(world.judged(run="r")) is not None


@pytest.mark.behaviour("M059")
async def test_what_a_person_has_refused_is_refused_in_the_whole_run(world: World) -> None:
    name = world.ask(run="r")
    await world.decide(name, "reject", note="no")
    with pytest.raises(Refusal, match=name) as refusal:
        world.question(world.judged('{"n" : 1}', "r"))
    assert refusal.value.reason is Reason.POLICY_DENIED
    assert world.question(world.judged('{"n": 2}', "r")) is not None


@pytest.mark.behaviour("M094")
async def test_a_run_that_ends_takes_its_questions_with_it(world: World) -> None:
    names = [world.ask(run="r"), world.ask('{"n":2}', run="r")]
    other = world.ask(run="r2")
    world.approvals.void_all(7, "r", "its run was cancelled")
    assert [code(await world.decide(name)) for name in names] == ["approval_void"] * 2
    assert (await world.decide(other)).call == "c_new"


async def test_what_a_call_takes_of_its_run_is_set_aside_first_and_given_back_when_nothing_comes_of_it(
    world: World,
) -> None:
    name, world.disk.takes = world.ask(run="r"), False
    assert code(await world.decide(name)) == "store_unavailable"
    world.disk.takes = True
    assert (await world.decide(name)).call == "c_new"
    assert world.runs.said == [("asked", name), "released", ("goes on", "c_new")]


async def test_a_run_without_room_makes_the_approval_void_and_it_is_not_consumed(world: World) -> None:
    name, world.runs.room = world.ask(run="r"), "no tool calls left"
    assert code(await world.decide(name)) == "budget_exhausted"
    assert (world.state(name), world.calls.begun) == ("void", [])
    assert world.runs.said == [("asked", name), (State.VOID, Obstacle.EXHAUSTED)]
    assert "approval_consumed" not in world.disk.told()


async def test_a_run_that_ends_while_it_is_written_begins_nothing(world: World) -> None:
    name, world.disk.takes = world.ask(run="r"), None
    await world.decide(name)
    world.runs.lives = False
    world.approvals.void_all(7, "r", "its run has ended")
    world.disk.answer(durable=True)
    assert (world.calls.begun, world.calls.dropped) == ([], ["c_new"])
    assert world.runs.said[1:] == ["released"]


# ------------------------------------------------------------ about the end of a run


async def listed(world: World) -> list[Any]:
    world.approvals.take(world.person, cm.ListApprovals(1))
    return list(world.person.heard.pop().approvals)


@pytest.mark.behaviour("M120")
async def test_a_person_sees_the_answer_when_it_is_on_the_disk_and_confirms_it_once(world: World) -> None:
    world.disk.takes = None
    name = world.confirm()
    assert (await listed(world), world.runs.said) == ([], [("asked", name)])
    world.disk.answer(durable=True)
    (view,) = await listed(world)
    assert (view.tool, view.call, view.run, view.arguments) == ("finish", "", "r", '{"answer":"42"}')
    world.disk.takes = None
    assert await world.decide(name, note="fine") is None
    assert world.runs.said == [("asked", name)], "nothing is done before the disk has the word"
    world.disk.answer(durable=True)
    heard = world.person.heard[-1]
    assert (heard.call, heard.approval.state, heard.approval.executed) == (None, "consumed", None)
    assert (await world.decide(name)).approval.state == "consumed"
    assert world.runs.said == [("asked", name), ("confirmed", "fine")]
    assert world.calls.begun == []


async def test_nobody_is_asked_about_an_end_while_the_disk_takes_nothing(world: World) -> None:
    world.disk.refuses = True
    with pytest.raises(Refusal, match="the disk is full"):
        world.confirm()
    assert (world.approvals.book.pending(), world.runs.said) == ([], [])


async def test_a_no_to_the_end_of_a_run_answers_for_no_call(world: World) -> None:
    name = world.confirm()
    heard = await world.decide(name, "reject", note="look again")
    assert (heard.approval.state, heard.approval.note) == ("rejected", "look again")
    assert world.runs.said == [("asked", name), (State.REJECTED, None)]
    assert world.calls.refusals == []


@pytest.mark.parametrize("more", [{"arguments": '{"answer":"43"}'}, {"scope": "tool"}])
async def test_an_answer_is_confirmed_as_it_is_or_not_at_all(world: World, more: dict[str, Any]) -> None:
    name = world.confirm()
    assert code(await world.decide(name, **more)) == "invalid_arguments"
    assert (world.state(name), world.runs.said) == ("pending", [("asked", name)])


async def test_another_policy_takes_no_confirmation_back(world: World) -> None:
    name = world.confirm()
    world.policy.version = "another"
    assert (await world.decide(name)).approval.state == "consumed"


async def test_a_confirmation_that_is_written_while_its_run_is_cancelled_begins_nothing(world: World) -> None:
    name, world.disk.takes = world.confirm(), None
    await world.decide(name)
    world.approvals.void_all(7, "r", "its run was cancelled")
    world.disk.answer(durable=True)
    assert (world.calls.begun, world.calls.dropped) == ([], [])


async def test_a_question_about_an_end_is_there_in_the_next_life_and_answered_there(world: World) -> None:
    name = world.confirm()
    (asked,) = [one for one in world.approvals.book.pending() if one.id == name]
    packed = asked.checkpoint.packed()
    again = world.made()
    again.recall([StoredApproval(name, "pending", packed, None, True)])
    (pending,) = again.book.pending()
    assert pending.told
    assert (pending.view().tool, pending.checkpoint.confirms, again.kept("")) == ("finish", True, None)


# ------------------------------------------------------------ in the next life


def stored(world: World, name: str, state: str = "pending", **changed: Any) -> StoredApproval:
    found = world.approvals.book.get(name, 0)
    assert found is not None
    packed = msgspec.structs.replace(found.checkpoint, **changed).packed()
    return StoredApproval(name, state, packed, None, digest(packed) == digest(found.checkpoint.packed()))


async def test_the_next_life_has_what_waited(world: World) -> None:
    name = world.ask()
    later = World()
    later.approvals.recall([stored(world, name)])
    later.approvals._nursery = world.approvals._nursery
    assert later.state(name) == "pending"
    kept = later.approvals.kept("c_1")
    assert kept is not None
    assert (kept.result.status, kept.result.approval) == ("waiting_for_approval", name)
    assert (await later.decide(name)).call == "c_new"
    assert later.approvals.kept("c_1") is None


@pytest.mark.case("B090")
async def test_the_next_life_finds_what_was_changed_on_the_disk(world: World) -> None:
    name = world.ask()
    later = World()
    later.approvals.recall([stored(world, name, arguments='{"n": 1000}')])
    later.approvals._nursery = world.approvals._nursery
    assert code(await later.decide(name)) == "approval_mismatch"
    assert later.calls.begun == []


async def test_a_question_that_nobody_heard_of_is_void_in_the_next_life(world: World) -> None:
    name = world.ask()
    later = World()
    later.approvals.recall([stored(world, name, approval_rows.ASKING)])
    assert later.state(name) == "void"
    assert later.approvals.kept("c_1") is None
    assert not later.approvals.binds(CallResult("c_1", "pay", Status.UNKNOWN, approval=name))


async def test_a_question_of_a_run_that_ended_with_its_daemon_is_void(world: World) -> None:
    name = world.ask(run="r")
    later = World()
    later.runs.lives = False
    later.approvals.recall([stored(world, name)])
    assert later.state(name) == "void"
    assert later.runs.said == ["recalled"]


async def test_what_is_no_checkpoint_any_more_costs_nobody_the_start(world: World) -> None:
    world.approvals.recall([StoredApproval("a_x", "pending", b"\xff", None, False)])
    assert world.approvals.book.get("a_x", 0) is None
