"""One daemon after the other against a plain model: clients that ask again and again, people who decide twice or too
late, workers that die, disks that refuse, rules and tools that change, and a crash between any two steps.

The daemon is `simulated`: the product's own parts without processes, threads and time. The model is counters: what
each thing was done, and how much of each limit that is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from protocol import _client_messages as cm
from protocol._contracts import Approval, Contract
from protocol._outcomes import Delivery, Reason
from supervisor.core.budget import Level, Node
from supervisor.core.policy import Action, Rule
from tests.supervisor.simulated import CONTRACTS, UID, Daemon, World
from tests.trust.whole_log import contradictions

ASK, DENY = (Rule("send", Action.ASK),), (Rule("send", Action.DENY),)
OTHER = {"send": Contract(approval=Approval.ALWAYS, timeout_ms=9_000)}
NOT_NOW = ("unknown_approval", "store_unavailable", "budget", "run_settled", "invalid_arguments", "policy_denied")
"""A person hears these, and the question may stand all the same."""

BRANCHES = 3
T = TypeVar("T")
TENANT, SESSION = "the tenant", "the session"
NODES = {TENANT: Node(Level.TENANT, "acme"), SESSION: Node(Level.SESSION, f"{UID}/s")}
anyone = st.integers(0, 30)
few = st.integers(1, 3)
STAGES = ("", "accept", "do", "answer")
stages = st.sampled_from(STAGES)


@dataclass
class Thing:
    """Something that is to be done once at most, by whatever name it goes (``numbers``)."""

    tool: str
    run: str | None
    key: str | None
    detach: bool
    numbers: list[int]
    approved: int = 0


@dataclass
class Question:
    """What a person was asked, how things were then, what was answered and what each answer has heard."""

    thing: Thing
    call: str
    policy: tuple[Rule, ...]
    contract: Contract
    expires_ms: int
    answer: str = ""
    heard: list[list[Any]] = field(default_factory=list)

    @property
    def decided(self) -> cm.Decided | None:
        """What was acknowledged."""
        return next((one for heard in self.heard for one in heard if isinstance(one, cm.Decided)), None)


class LivesOfADaemon(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.things: list[Thing] = []
        self.numbers = 0
        self.of_call: dict[str, Thing] = {}
        self.questions: dict[str, Question] = {}
        self.limits: dict[str, int | None] = {}
        """Of a run, of the session and of the tenant; ``parents``: what each is below."""
        self.parents: dict[str, str] = {SESSION: TENANT}
        self.entered: Counter[str] = Counter()
        """By the same names: calls that were let in, at most so many."""
        self.used: Counter[str] = Counter()
        """And at least so many that are used up for good."""
        self.counted: set[str] = set()

    @initialize(tenant=st.sampled_from((None, 4, 9)), session=st.sampled_from((None, 3, 7)))
    def begin(self, tenant: int | None, session: int | None) -> None:
        self.limits |= {TENANT: tenant, SESSION: session}
        self.world = World(tenant, session)
        self.daemon = Daemon(self.world)

    # -------------------------------------------------------- what clients ask

    @rule(limit=st.integers(0, 4), below=anyone, child=st.booleans())
    def open_run(self, limit: int, below: int, child: bool) -> None:
        going = self.going()
        if len(going) > 3:
            return
        parent = going[below % len(going)] if child and going else None
        limits: Any = {"tool_calls": limit}
        heard = self.daemon.ask(cm.OpenRun, limits=limits, session="s", parent=parent, on_disconnect="keep")
        self.daemon.sync()
        if isinstance(heard[0], cm.RunOpened):
            name = heard[0].run.run
            self.limits[name], self.parents[name] = limit, parent or SESSION

    @rule(tool=st.sampled_from(tuple(CONTRACTS)), run=anyone, keyed=st.booleans(), detach=st.booleans())
    def submit(self, tool: str, run: int, keyed: bool, detach: bool) -> None:
        going = [None, *self.going()]
        thing = Thing(tool, going[run % len(going)], f"k{len(self.things)}" if keyed else None, detach, [])
        self.things.append(thing)
        self.deliver(thing, self.number(thing))

    @rule(which=anyone, times=st.sampled_from((1, 2, 50)))
    def deliver_again(self, which: int, times: int) -> None:
        if thing := chosen([thing for thing in self.things if thing.key], which):
            for _ in range(times):
                self.deliver(thing, thing.numbers[0])

    @rule(which=anyone)
    def ask_for_something_else_under_the_same_key(self, which: int) -> None:
        if thing := chosen([thing for thing in self.things if thing.key], which):
            self.deliver(thing, self.number(thing))

    @rule(which=anyone)
    def cancel_call(self, which: int) -> None:
        if call := chosen(list(self.of_call), which):
            self.daemon.ask(cm.Cancel, call=call)
            self.withdraw(lambda question: question.call == call)

    @rule(which=anyone)
    def cancel_run(self, which: int) -> None:
        if run := chosen(self.going(), which):
            self.daemon.ask(cm.CancelRun, run)
            self.withdraw(lambda question: run in self.chain(question.thing.run))

    def withdraw(self, meant: Callable[[Question], bool]) -> None:
        """Nobody wants these any more; those that were approved before are ended otherwise."""
        for question in self.questions.values():
            if not question.answer and meant(question):
                question.answer = "cancelled"

    def number(self, thing: Thing) -> int:
        self.numbers += 1
        thing.numbers.append(self.numbers)
        return self.numbers

    def deliver(self, thing: Thing, number: int) -> None:
        live = self.daemon.calls.live
        before = set(live)
        heard = self.daemon.submit(thing.tool, number, run=thing.run, key=thing.key, detach=thing.detach)
        for call in set(live) - before:
            self.of_call[call] = thing
            if live[call].stake is not None:
                self.let_in(thing.run)
        result = heard[0].result if heard and isinstance(heard[0], cm.Settled) else None
        if result is not None and result.reason is Reason.BUDGET:
            assert self.is_full(thing.run), f"refused with room left: {result.summary}"

    # -------------------------------------------------------- budgets

    def chain(self, run: str | None) -> list[str]:
        """A run, and all above it."""
        return [] if run is None else [run, *self.chain(self.parents.get(run))]

    def let_in(self, run: str | None) -> None:
        for node in self.chain(run):
            limit = self.limits[node]
            assert limit is None or self.used[node] < limit, f"{node} has {limit}, and one more was let in"
            self.entered[node] += 1

    def is_used_up(self, run: str | None) -> bool:
        limited = [(node, limit) for node in self.chain(run) if (limit := self.limits[node]) is not None]
        return any(self.let_in_now(node) >= limit for node, limit in limited)

    def let_in_now(self, name: str) -> int:
        """By the books; that they lie between what is used for good and what was ever let in is looked at elsewhere.
        What was let in may be out again: by a disk without room, or a crash before its run went on."""
        node = NODES.get(name) or Node(Level.RUN, name)
        if node not in self.daemon.ledger:
            return self.entered[name]
        stands = self.daemon.ledger.view(node)["tool_calls"]
        return stands.used + stands.reserved

    def is_full(self, run: str | None) -> bool:
        return self.is_used_up(run) or self.running() >= BRANCHES

    def running(self) -> int:
        return sum(call.stake is not None for call in self.daemon.calls.live.values())

    # -------------------------------------------------------- what people decide

    @rule(which=anyone, decision=st.sampled_from(("approve", "approve", "approve", "reject", "edit")))
    def decide(self, which: int, decision: str) -> None:
        name = chosen(list(self.questions), which)
        if name is None:
            return
        question = self.questions[name]
        if decision == "reject":
            heard = self.daemon.ask(cm.Decide, name, "reject")
            question.answer = question.answer or "reject"
        else:
            heard = self.approve(name, question, decision == "edit")
        question.heard.append(heard)

    def approve(self, name: str, question: Question, edited: bool) -> list[Any]:
        """The first person's word counts, while what was asked for is still what would run."""
        thing = question.thing
        counts = not question.answer and self.fits(question, edited) and not self.is_used_up(thing.run)
        arguments = f'{{"n": {self.number(thing)}}}' if edited else None
        heard = self.daemon.ask(cm.Decide, name, "approve", arguments=arguments)
        if heard and isinstance(heard[0], cm.Failed):
            if heard[0].error.code not in NOT_NOW:
                question.answer = question.answer or heard[0].error.code
        elif counts:
            question.answer, thing.approved = "approve", thing.approved + 1
            if thing.run is not None:
                self.let_in(thing.run)
        elif not question.answer:  # it changes nothing, which is told when that is on the disk
            question.answer = "void"
        else:
            assert question.answer in ("approve", "void"), f"{name} was {question.answer}"
        return heard

    def fits(self, question: Question, edited: bool) -> bool:
        if self.world.contracts["send"] != question.contract or self.daemon.wall_ms() >= question.expires_ms:
            return False
        if self.world.policy == DENY:
            return False
        return edited or (self.world.policy, question.policy) != (ASK, ())

    @rule()
    def days_pass(self) -> None:
        self.world.ahead_ms += 86_400_000
        self.daemon.approvals.look_at_the_clock()

    @rule(policy=st.sampled_from(((), ASK, DENY)), other=st.booleans())
    def somebody_changes_the_rules_or_the_tool(self, policy: tuple[Rule, ...], other: bool) -> None:
        self.world.policy = policy
        self.world.contracts = {**CONTRACTS, **(OTHER if other else {})}
        self.daemon.rule()
        self.daemon.serve()

    # -------------------------------------------------------- workers and the disk

    @rule(which=anyone, until=st.sampled_from(("accept", "do", "answer", "answer")))
    def a_worker_goes_on(self, which: int, until: str) -> None:
        if worker := chosen(self.daemon.busy(), which):
            self.daemon.work(worker, until)

    @rule(which=anyone, killed=st.booleans())
    def a_worker_dies(self, which: int, killed: bool) -> None:
        if worker := chosen(self.daemon.busy(), which):
            self.daemon.lose(worker, killed)

    @rule()
    def the_disk_takes_all(self) -> None:
        self.daemon.sync()

    @rule(entries=few)
    def the_disk_takes_some(self, entries: int) -> None:
        self.daemon.sync(entries)

    @rule(entries=few)
    def the_disk_takes_nothing(self, entries: int) -> None:
        self.daemon.sync(entries, room=False)

    @rule()
    def all_goes_well(self) -> None:
        self.daemon.settle_down()

    # -------------------------------------------------------- a crash

    @rule()
    def crash(self) -> None:
        self.look()
        waiting = self.waiting()
        asked = {name for name, one in self.asked().items() if one.run in (None, *waiting) and self.is_promised(one)}
        self.daemon.crash()
        self.daemon = Daemon(self.world)
        self.forget_what_was_not_said()
        for run, view in waiting.items():
            assert self.view(run).stop == view.stop, f"{run} waits no more"
            budgets = self.view(run).budgets
            for name, was in view.budgets.items():  # what a part of it had in flight is paid for
                used = budgets[name].used if name in budgets else 0
                assert was.used <= used <= was.used + was.reserved, f"{run} has used other {name}"
        assert asked <= set(self.asked()), "asked, and forgotten"
        for name, question in self.questions.items():
            if (decided := question.decided) is not None:
                now = self.asked(all_of_them=True)[name]
                assert (now.state, now.executed) == (decided.approval.state, decided.call), f"{name} was decided"
        for call, result in list(self.world.told.items()):
            found = self.daemon.ask(cm.Wait, call)
            assert isinstance(found[0], cm.Settled) or not result.durable, f"{call} was told, and is not known any more"

    @rule()
    def crash_and_count(self) -> None:
        """What went on has ended with the crash: what its runs' events say is what each account stands at."""
        self.crash()
        self.daemon.sync()
        wrong = list(contradictions(self.daemon.store, {}))
        assert not wrong, wrong

    @rule(tool=st.sampled_from(tuple(CONTRACTS)), run=anyone, until=stages, entries=st.integers(0, 3))
    def a_call_on_its_way_when_it_crashes(self, tool: str, run: int, until: str, entries: int) -> None:
        self.submit(tool, run, keyed=True, detach=entries > 1)
        self.go_on_and_crash(until, entries)

    @rule(run=anyone, asked=anyone, until=stages, entries=st.integers(0, 3))
    def a_decision_on_its_way_when_it_crashes(self, run: int, asked: int, until: str, entries: int) -> None:
        self.submit("send", run, keyed=True, detach=False)
        self.daemon.sync()
        self.daemon.sync()
        self.look()
        self.decide(asked if asked % 2 else len(self.questions) - 1, "approve")
        self.go_on_and_crash(until, entries)

    @rule(run=anyone)
    def a_run_that_waits_when_it_crashes(self, run: int) -> None:
        for tool in ("pay", "send"):
            self.submit(tool, run, keyed=True, detach=False)
            self.daemon.settle_down()
        self.crash()

    def go_on_and_crash(self, until: str, entries: int) -> None:
        """The last thing that was asked for, up to some point; and after the crash again, as nobody knows better."""
        if until:
            for _ in range(3):
                if not self.daemon.busy():
                    self.daemon.sync()
            for worker in self.daemon.busy()[-1:]:
                self.daemon.work(worker, until)
        for _ in range(entries):
            self.daemon.sync(1)
        self.everything_is_as_it_should_be()
        self.crash()
        self.deliver(self.things[-1], self.things[-1].numbers[0])

    def is_promised(self, view: Any) -> bool:
        """Whoever was told that it waits was told that this is on the disk."""
        told = self.world.told.get(view.call)
        return told is not None and bool(told.durable)

    def forget_what_was_not_said(self) -> None:
        """What was decided or called off may be lost until somebody was told that it is on the disk; effects in runs
        are in the books of all above the run."""
        for question in (self.questions[name] for name in self.asked()):
            assert question.decided is None, "somebody was told of a decision that is not on the disk"
            question.thing.approved -= question.answer == "approve"
            question.answer, question.heard = "", []
        lost = sum(self.world.done[number] for one in self.things if one.run for number in one.numbers)
        self.used[SESSION] = self.used[TENANT] = lost
        self.counted.update(self.of_call)

    # -------------------------------------------------------- looking

    def going(self) -> list[str]:
        """Runs that have not settled."""
        return [row.run for row in self.daemon.ask(cm.ListRuns)[0].runs]

    def waiting(self) -> dict[str, Any]:
        """Runs that wait for a person who has not answered, with all that they are part of: a crash changes nothing of
        that."""
        questions = {one.run for one in self.asked().values()}
        views = {run: view for run in self.going() if (view := self.view(run)).stop is not None and run in questions}
        return {run: view for run, view in views.items() if {*self.chain(run)} <= {*views, *NODES}}

    def view(self, run: str) -> Any:
        return self.daemon.ask(cm.ShowRun, run)[0].run

    def asked(self, all_of_them: bool = False) -> dict[str, Any]:
        found = self.daemon.ask(cm.ListApprovals, all=all_of_them)[0].approvals
        return {one.approval: one for one in found}

    def look(self) -> None:
        """What has been heard since, and questions that have come up."""
        for question in self.questions.values():
            decided = question.decided
            assert decided is None or question.answer != "void", "what had changed was approved"
            if decided is not None and decided.call is not None and decided.call not in self.of_call:
                self.of_call[decided.call] = question.thing
                self.daemon.ask(cm.Wait, decided.call)
        for one in self.daemon.approvals.book.pending():
            if one.id not in self.questions:
                thing = self.thing_of(one.checkpoint.arguments)
                world, expires_ms = self.world, one.checkpoint.expires_at_ms
                question = Question(thing, one.checkpoint.call, world.policy, world.contracts["send"], expires_ms)
                self.questions[one.id] = question
        for call, result in self.world.told.items():
            if call in self.of_call and call not in self.counted:
                self.counted.add(call)
                if result.delivery is not Delivery.NOT_DELIVERED:
                    self.used.update(self.chain(self.of_call[call].run))

    def thing_of(self, arguments: str) -> Thing:
        number = msgspec.json.decode(arguments)["n"]
        return next(thing for thing in self.things if number in thing.numbers)

    # -------------------------------------------------------- what holds at any time

    @invariant()
    def everything_is_as_it_should_be(self) -> None:
        if not hasattr(self, "daemon"):
            return
        self.look()
        assert not self.world.contradictions, self.world.contradictions
        for thing in self.things:
            times = sum(self.world.done[number] for number in thing.numbers)
            assert times <= 1, f"{thing} was done {times} times"
            assert thing.tool != "send" or times <= thing.approved, f"{thing} was done, and nobody wanted that"
        for name in (*self.going(), SESSION, TENANT):
            node = NODES.get(name) or Node(Level.RUN, name)
            if node in self.daemon.ledger and (limit := self.limits[name]) is not None:
                stands = self.daemon.ledger.view(node)["tool_calls"]
                assert stands.used + stands.reserved <= limit, f"{name} has {limit}: {stands}"
                assert self.used[name] <= stands.used + stands.reserved <= self.entered[name], f"{name}: {stands}"

    def teardown(self) -> None:
        if not hasattr(self, "daemon"):
            return
        for _ in range(2):
            self.daemon.settle_down()
            self.everything_is_as_it_should_be()
            self.crash()
            for thing in self.things:
                if thing.key:
                    self.deliver(thing, thing.numbers[0])
        self.daemon.settle_down()
        self.everything_is_as_it_should_be()
        self.the_log_is_whole()
        self.daemon.crash()
        self.world.close()

    def the_log_is_whole(self) -> None:
        """One end of each call, one use of each approval, and the numbers within a run without a gap."""
        events = self.daemon.store.events(0, 100_000)
        once = {"call_ended": "call", "approval_consumed": "call", "run_settled": "run"}
        seen = Counter((event.kind, getattr(event, once[event.kind])) for event in events if event.kind in once)
        assert max(seen.values(), default=0) <= 1, f"{seen.most_common(1)}"
        numbers: dict[str, list[int]] = {}
        for event in events:
            if event.run is not None:
                numbers.setdefault(event.run, []).append(event.data["run_seq"])
        assert all(of == list(range(1, len(of) + 1)) for of in numbers.values())


def chosen(some: list[T], which: int) -> T | None:
    return some[which % len(some)] if some else None


def test_what_a_part_spends_while_the_run_above_it_waits_is_not_forgotten_by_a_crash() -> None:
    lives = LivesOfADaemon()
    lives.begin(session=None, tenant=None)
    try:
        lives.a_run_that_waits_when_it_crashes(run=0)
        lives.open_run(below=0, child=False, limit=3)
        lives.a_decision_on_its_way_when_it_crashes(run=5, asked=23, until="", entries=1)
        lives.open_run(below=15, child=True, limit=4)
        lives.open_run(below=10, child=True, limit=1)
        (above,) = (lives.view(run) for run in lives.waiting())
        lives.a_decision_on_its_way_when_it_crashes(run=5, asked=16, until="do", entries=0)
        assert lives.view(above.run).budgets["steps"].used == above.budgets["steps"].used + 1
    finally:
        lives.teardown()


# Shortening what fails takes minutes: let it, by the phase `shrink`, when you look for why.
LivesOfADaemon.TestCase.settings = settings(
    max_examples=20,
    stateful_step_count=40,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    report_multiple_bugs=False,
)
TestLivesOfADaemon = LivesOfADaemon.TestCase


@pytest.fixture
def lives() -> Iterator[LivesOfADaemon]:
    """A daemon with a run that goes on; what must hold is looked at in the end."""
    made = LivesOfADaemon()
    made.begin(9, 9)
    made.open_run(4, 0, child=False)
    yield made
    made.teardown()


@pytest.mark.parametrize("entries", [0, 1, 3])
@pytest.mark.parametrize("until", STAGES)
@pytest.mark.parametrize("run", [0, 1])
@pytest.mark.parametrize("tool", ["pay", "book"])
def test_a_crash_at_any_point_of_a_call_loses_nothing_that_was_told_and_does_nothing_twice(
    lives: LivesOfADaemon, tool: str, run: int, until: str, entries: int
) -> None:
    lives.a_call_on_its_way_when_it_crashes(tool, run, until, entries)
    lives.open_run(4, 0, child=False)


@pytest.mark.parametrize("entries", [0, 1, 3])
@pytest.mark.parametrize("until", STAGES)
@pytest.mark.parametrize("run", [0, 1])
def test_a_crash_at_any_point_of_an_approval_keeps_it_or_uses_it_up_and_never_both(
    lives: LivesOfADaemon, run: int, until: str, entries: int
) -> None:
    lives.a_decision_on_its_way_when_it_crashes(run, 0, until, entries)
    lives.open_run(4, 0, child=False)


@pytest.mark.behaviour("M125")
@pytest.mark.parametrize("run", [0, 1])
def test_what_waits_for_a_person_waits_through_a_crash_with_what_its_run_has_used(
    lives: LivesOfADaemon, run: int
) -> None:
    lives.a_run_that_waits_when_it_crashes(run)
    lives.decide(0, "approve")
    lives.daemon.settle_down()
    assert lives.world.done == {1: 1, 2: 1}


def test_a_run_waits_on_the_disk_before_anybody_hears_that_it_does(lives: LivesOfADaemon) -> None:
    lives.submit("send", 1, keyed=True, detach=False)
    while not lives.asked():
        assert lives.daemon.unsynced
        lives.daemon.sync(1)
    (question,) = lives.asked().values()
    assert list(lives.waiting()) == [question.run]
    lives.crash()
    assert list(lives.asked()) == [question.approval]


@pytest.mark.parametrize("run", [0, 1])
def test_a_question_that_is_asked_again_is_named_when_it_is_on_the_disk(lives: LivesOfADaemon, run: int) -> None:
    lives.a_run_that_waits_when_it_crashes(run)
    (first,) = lives.asked()
    lives.somebody_changes_the_rules_or_the_tool(ASK, other=False)
    unheard = lives.daemon.ask(cm.Decide, first, "approve")
    lives.questions[first].answer = "void"
    assert not unheard
    lives.crash()
    assert list(lives.asked()) == [first], "and before that it never was"
    heard = lives.daemon.ask(cm.Decide, first, "approve")
    lives.questions[first].answer = "void"
    lives.daemon.sync()
    (second,) = lives.asked()
    assert heard[0].error.code == "policy_changed"
    assert second in heard[0].error.message
    lives.crash()
    assert list(lives.asked()) == [second]


@pytest.mark.parametrize("entries", [0, 1, 2, 3, 4])
def test_what_is_set_aside_for_an_approval_is_in_no_account_before_its_call_is_announced(
    lives: LivesOfADaemon, entries: int
) -> None:
    lives.a_run_that_waits_when_it_crashes(1)
    lives.open_run(4, 0, child=False)
    (waiting,) = lives.waiting()
    (other,) = set(lives.going()) - {waiting}
    lives.decide(0, "approve")
    lives.daemon.ask(cm.CancelRun, other)
    for _ in range(entries):
        lives.daemon.sync(1)
    lives.crash_and_count()


def test_a_question_that_expires_ends_its_run_with_it_or_not_at_all(lives: LivesOfADaemon) -> None:
    lives.a_run_that_waits_when_it_crashes(1)
    (run,) = lives.waiting()
    lives.days_pass()
    for question in lives.questions.values():
        question.answer = "expired"
    lives.daemon.sync(1)
    lives.daemon.crash()
    lives.daemon = Daemon(lives.world)
    assert lives.view(run).stop.reason == "approval_expired"
