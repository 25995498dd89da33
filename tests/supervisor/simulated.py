"""A daemon without processes, threads and a loop: the product's own parts, wired by its own `assemble`, spoken to in
the messages of the wire. Its disk is a journal in memory that syncs when it is told to, its workers are objects that do
what they are told, and a crash leaves nothing but what was synced and what the tools have done.

Two lives share the `World`: the journal's file, what the tools did, what clients were told.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import apsw
import msgspec

from protocol import _client_messages as cm
from protocol._contracts import Approval, Contract, Retry, ToolDescription
from protocol._outcomes import CallResult, Isolation
from protocol._worker_messages import Accepted, Call, Ended
from supervisor import assembly
from supervisor.assembly import Parts
from supervisor.clock import now_ns, wall_ms
from supervisor.config import Config
from supervisor.containment.cgroups import ControlGroups
from supervisor.core.detector_sets import SETS
from supervisor.core.policy import Policy, Rule
from supervisor.core.profiles import Budgets, Tenant, resolve
from supervisor.core.quarantine import QuarantineSettings
from supervisor.journal.approval_rows import read as read_approvals
from supervisor.journal.recovery import Clocks, recover
from supervisor.journal.store import NoRoomError, Store
from supervisor.run_recovery import read_runs, recall_runs
from supervisor.runtime import StateDirectory

UID = 7
TTL_MS = 3_600_000
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
_NEVER = Contract(approval=Approval.NEVER)
CONTRACTS = {
    "look": Contract(read_only=True, concurrency_safe=True, approval=Approval.NEVER),
    "pay": _NEVER,
    "book": Contract(approval=Approval.NEVER, retry=Retry(3, ("worker_lost", "transient_tool"))),
    "send": Contract(approval=Approval.ALWAYS),
}
_FILES = itertools.count(1)
_OBSERVING = msgspec.structs.replace(SETS["default"], observe=True)
"""Detectors have tests of their own."""


def immediately(function: Callable[..., Coroutine[Any, Any, None]], *values: Any) -> None:
    """What a nursery would start: none of it waits for anything here."""
    try:
        function(*values).send(None)
    except StopIteration:
        return
    raise AssertionError(f"{function} waits for something")


class Worker:
    """Serves one call after the other; ``frame``: what it was sent. Does nothing unless it is told to."""

    def __init__(self, number: int, flavour: str) -> None:
        self.number, self.slot, self.flavour = number, number, flavour
        self.call: Any = None
        self.frame: Call | None = None
        self.ended_for: Any = None
        self.renew_output, self.reaped = False, None
        self.calls_served = self.signalled_ns = self.seen = self.gone_ns = self.due_ns = 0
        self.group = SimpleNamespace(out_of_memory=lambda: False, kill=0)
        nothing = SimpleNamespace(output_bytes=lambda: 0, output_on_disk=lambda: 0)
        self.scratch = SimpleNamespace(work_is_empty=lambda: True, work_touched=lambda: False, **vars(nothing))

    def send(self, frame: Call, _descriptors: list[int]) -> bool:
        self.frame = frame
        return True

    def disarm(self) -> None:
        self.due_ns = 0


class Pool:
    """As many workers as anybody wants, each new. ``killed``: those that somebody wants dead."""

    containment, healthy, cramped, unconfirmed = "group", True, False, 0
    isolation = Isolation("none", "none")

    def __init__(self, flavour: str) -> None:
        self.flavour = flavour
        self.settings = SimpleNamespace(most=64)
        self.mechanism: list[str] = []
        self.idle: list[Worker] = []
        self.alive: dict[int, Worker] = {}
        self._numbers = itertools.count(1)

    def take(self) -> Worker:
        return Worker(next(self._numbers), self.flavour)

    def end_at(self, worker: Worker, at_ns: int, _term_ns: int = 0) -> None:
        worker.due_ns = at_ns

    def keep(self, worker: Worker) -> None: ...

    def want(self, number: int) -> None: ...

    def finished(self, worker: Worker) -> None: ...

    def retire(self, worker: Worker, cause: Any) -> None: ...


class Person:
    """A connection. ``answers``: what each request has heard last."""

    def __init__(self, world: World) -> None:
        self.uid = UID
        self.attached: dict[int, Any] = {}
        self.awaited: dict[int, Any] = {}
        self.answers: dict[int, list[Any]] = {}
        self._world = world

    def say(self, message: Any) -> None:
        self.answers.setdefault(message.id, []).append(message)

    def settled(self, request: int, result: CallResult) -> None:
        self.attached.pop(request, None)
        self.awaited.pop(request, None)
        self._world.hear(result)
        self.say(cm.Settled(request, result))


class World:
    """What stays when a daemon dies. ``limits``: of the tenant, of each session, of each run."""

    def __init__(self, tenant: int | None = None, session: int | None = None) -> None:
        self.file = f"/core{next(_FILES)}"
        self._anchor = apsw.Connection(self.file, vfs="memdb")  # the file is there as long as one has it open
        self.budgets = Budgets(
            resolve({}),
            {
                "acme": Tenant(
                    "acme", (UID,), limits={"tool_calls": tenant}, session_limits={"tool_calls": session, "branches": 3}
                )
            },
        )
        self.done: Counter[int] = Counter()
        """How often each thing was done by a tool, by its number."""
        self.did: list[Call] = []
        self.told: dict[str, CallResult] = {}
        """Of each call the result that somebody heard first."""
        self.contradictions: list[str] = []
        self.policy: tuple[Rule, ...] = ()
        self.contracts = dict(CONTRACTS)
        self.ahead_ms = 0
        """How far the wall clock has gone ahead."""
        self.lives = 0

    def close(self) -> None:
        self._anchor.close()

    def hear(self, result: CallResult) -> None:
        """Somebody is told what became of a call: everybody hears the same, for good."""
        plain = _without(result)
        before = self.told.setdefault(result.call, plain)
        if before != plain:
            self.contradictions.append(f"{result.call} was {before.status}, then {plain.status}")


def _without(result: CallResult) -> CallResult:
    return msgspec.structs.replace(result, replayed=False)


class Daemon:
    """One life."""

    def __init__(self, world: World) -> None:
        self.world, self.person = world, Person(world)
        self.requests = itertools.count(1)
        self._together = 0
        world.lives += 1
        self.store = store = Store(world.file, "memdb")
        assert store.open() is None, "the chain of events is broken"
        state = StateDirectory("/nonexistent", "0" * 16)
        recovered = recover(store, state.outputs, TTL_MS, Clocks(now_ns(), wall_ms()))
        runs, approvals = read_runs(store), list(read_approvals(store))
        quarantine = QuarantineSettings(poison_losses=None, warn_keys=None, serial_keys=None, breaker_keys=None)
        observing = {"default": _OBSERVING}
        config = Config(budgets=world.budgets, policy=world.policy, quarantine=quarantine, detectors=observing)
        unasked = {"product_version": lambda: "0", "_effective": lambda _config, _socket: ({}, {})}
        with patch.multiple(assembly, **unasked):  # ten milliseconds for what nobody asks here
            self.parts: Parts = assembly.assemble(config, "/nonexistent/socket", state, ControlGroups(), store)
        self._stand_in()
        self.calls, self.runs, self.approvals = self.parts.calls, self.parts.runs, self.parts.approvals
        self.desk = self.parts.doors.unix._desk
        self.ledger = self.runs.ledger
        self.calls.recall(recovered)
        recall_runs(self.runs, runs)
        self.approvals.recall(approvals)

    def _stand_in(self) -> None:
        """For what has a process, a thread or a clock of its own."""
        parts: Any = self.parts
        now = SimpleNamespace(start_soon=immediately)
        parts.killer.armed = True
        parts.calls._nursery = parts.approvals._nursery = now
        parts.approvals._wall = parts.approvals.questions._wall = self.wall_ms
        for flavour in list(parts.pools):
            parts.pools[flavour] = Pool(flavour)
        (self.flavour,) = parts.pools
        self.serve()

    def serve(self) -> None:
        """The tools as the world has them."""
        tools: Any = self.parts.tools
        tools._by_name.clear()
        described = [ToolDescription(name, "", contract, SCHEMA) for name, contract in self.world.contracts.items()]
        tools.serve(described, self.flavour)

    def rule(self) -> None:
        """The policy as the world has it."""
        questions: Any = self.approvals.questions
        questions._policy = Policy(self.world.policy)

    def wall_ms(self) -> int:
        return wall_ms() + self.world.ahead_ms

    def crash(self) -> None:
        """Nothing is left of it but its file. A result that was told without the disk says so itself: nobody knows what
        the next life finds."""
        for call in [call for call, result in self.world.told.items() if result.durable is False]:
            del self.world.told[call]
        self.store.close()
        self.parts.table.close()

    # -------------------------------------------------------- clients

    def ask(self, kind: Callable[..., Any], *values: Any, **more: Any) -> list[Any]:
        """Send a message; what is heard of it, now and later."""
        request = next(self.requests)
        heard = self.person.answers.setdefault(request, [])
        self.desk.take(self.person, kind(request, *values, **more))
        return heard

    def submit(self, tool: str, number: int, **more: Any) -> list[Any]:
        return self.ask(cm.Submit, tool, json.dumps({"n": number}), announce=True, **more)

    # -------------------------------------------------------- the disk

    @property
    def unsynced(self) -> int:
        journal: Any = self.parts.journal
        return len(journal._pending)

    def sync(self, entries: int | None = None, room: bool = True) -> None:
        """Commit what waits, or its first few entries, as if the others had come meanwhile; without ``room`` the disk
        refuses them. What it has refused once goes together from then on, with what was said of that."""
        journal: Any = self.parts.journal
        waiting = journal._pending
        first = waiting if entries is None else waiting[: max(entries, self._together)]
        rest = waiting[len(first) :]
        journal._pending = first
        commit = self.store.commit
        if not room:
            self.store.commit = _full  # type: ignore[method-assign]  # a disk that takes nothing
        journal._write()
        self.store.commit = commit  # type: ignore[method-assign]  # and one that does
        journal._pending = rest
        journal._see_to_group()
        self._together = 0 if room else len(journal._pending)

    def settle_down(self) -> None:
        """Until nothing waits: the disk takes all, workers end what they have, and what is to die is dead."""
        for _ in range(200):
            if not self.unsynced and not self.busy():
                return
            self.sync()
            for worker in self.busy():
                self.work(worker, "answer")
                if worker.call is not None:
                    self.lose(worker, killed=True)
        raise AssertionError("it does not settle down")

    # -------------------------------------------------------- workers

    def busy(self) -> list[Worker]:
        workers: list[Any] = [call.worker for call in self.calls.live.values() if call.worker is not None]
        return [worker for worker in workers if worker.call is not None and not worker.gone_ns]

    def work(self, worker: Any, until: str) -> None:
        """It begins (``accept``), does its work (``do``), answers (``answer``)."""
        frame = worker.frame
        for stage in ("accept", "do", "answer")[: ("accept", "do", "answer").index(until) + 1]:
            if worker.call is None or worker.frame is not frame:
                return
            if stage in worker.__dict__.setdefault("past", set()):
                continue
            worker.past.add(stage)
            self._work(worker, frame, stage)

    def _work(self, worker: Any, frame: Call, stage: str) -> None:
        if stage == "accept" and frame.accepts:
            self.calls.heard(worker, Accepted(frame.nonce))
        elif stage == "do":
            self.world.did.append(frame)
            if frame.tool != "look":
                self.world.done[json.loads(frame.arguments)["n"]] += 1
        elif stage == "answer":
            self.calls.heard(worker, Ended(frame.nonce, "ok", content=json.loads(frame.arguments), reusable=True))

    def lose(self, worker: Any, killed: bool) -> None:
        """It is dead: by the killer's hand, or of itself."""
        worker.gone_ns = now_ns()
        worker.signalled_ns = worker.gone_ns if killed else 0
        self.calls.gone(worker)


def _full(_changes: Any) -> int:
    raise NoRoomError("no room")
