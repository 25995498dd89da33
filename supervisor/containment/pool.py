"""Workers ready to serve: spawned before they are needed, given out one call at a time, replaced when they end.

Owns the number of workers of each flavour and their lives from spawn to removal. Whether a spawn may happen now is the
respawn machine's decision; what a call makes of its worker's end is `calls.py`'s.

Longer than a page: a worker's life is one story, and its parts (give out, start, listen, bury) share all of the state.
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol

import msgspec
import trio

from protocol._contracts import IsolationLevel, Limits, ToolDescription
from protocol._deadlines import NS_PER_MS, remaining_ms
from protocol._errors import ProtocolError
from protocol._outcomes import Isolation
from protocol._quantities import say_duration
from protocol._worker_messages import FromWorker, Reaped, Spawn, WorkerReady
from supervisor.clock import now_ns
from supervisor.containment import census
from supervisor.containment.cgroups import ControlGroups, WorkerGroup
from supervisor.containment.guard import GuardEnds
from supervisor.containment.killer import KillerLink
from supervisor.containment.scratch import Scratch
from supervisor.containment.second_line import SecondLine
from supervisor.containment.slots import Slots
from supervisor.containment.table import DeadlineTable
from supervisor.containment.workers import Worker
from supervisor.containment.zygote import SpawnError, ZygoteLink
from supervisor.core.levels import Ground, ground_of, mechanism_of
from supervisor.core.respawn import Cause, Respawn

_SPAWN_BUDGET_NS = 10_000 * NS_PER_MS
_REAPED_BUDGET_S = 0.05
_STARTING_AT_ONCE = 8
_DYING_S = 0.2


class Audience(Protocol):
    """Who hears of workers: `calls.Calls`."""

    def heard(self, worker: Worker, message: FromWorker) -> None:
        """A frame of a worker that serves a call."""

    def broken(self, worker: Worker, why: str) -> None:
        """The worker broke its link; its end has been ordered."""

    def gone(self, worker: Worker) -> None:
        """The kernel has confirmed the end; everything the worker wrote has been heard."""

    def spawned(self, worker: Worker) -> None:
        """A worker has a process."""

    def ended(self, worker: Worker, cause: Cause) -> None:
        """Why a worker ended that is about to be told as gone."""

    def idle(self, worker: Worker) -> None:
        """A worker is free: place a call on it, or leave it in the pool (`Pool.keep`)."""


@dataclass(slots=True)
class PoolSettings:
    """Numbers of the pool. ``most``: workers alive at once, spares included."""

    most: int
    spares: int
    idle_ms: int
    frame_limit: int
    limits: Limits
    processes_of_uid: int | None


class Pool:
    """All workers of one flavour."""

    def __init__(
        self,
        flavour: str,
        settings: PoolSettings,
        zygote: ZygoteLink,
        killer: KillerLink,
        table: DeadlineTable,
        second_line: SecondLine,
        groups: ControlGroups,
        scratch_parent: str,
        numbers: Iterator[int],
        slots: Slots,
        respawn: Respawn,
        audience: Audience,
        wanted: IsolationLevel = "contain",
    ) -> None:
        self.flavour, self.settings = flavour, settings
        self.zygote, self._killer, self._table, self._second_line = zygote, killer, table, second_line
        self._groups, self._scratch_parent = groups, scratch_parent
        self._numbers, self._slots = numbers, slots
        slots.on_free.append(self._refill)
        self._respawn, self._audience = respawn, audience
        self._nursery: trio.Nursery | None = None
        self._need = trio.Event()
        self.alive: dict[int, Worker] = {}
        self.idle: list[Worker] = []
        self.starting = 0
        self.wanted = 0
        self.closing = False
        self._looking = False
        self.tools: list[ToolDescription] = []
        self.wanted_isolation = wanted
        self.isolation = Isolation(wanted, wanted)
        self.containment, self.mechanism = "", [""]
        self.replacements = 0

    # ------------------------------------------------------------ giving out

    def take(self) -> Worker | None:
        """A ready worker, or None (one is then on its way: `Audience.idle` will tell)."""
        while self.idle:
            worker = self.idle.pop()
            if not worker.ended_for:
                self._refill()
                return worker
        return None

    def want(self, calls: int) -> None:
        """So many calls wait for a worker of this flavour."""
        self.wanted = calls
        self._slots.claim(self.flavour, calls)
        self._refill()

    def keep(self, worker: Worker) -> None:
        """A worker with nothing to do goes back to the ready ones."""
        worker.call = None
        self.idle.append(worker)

    def retire(self, worker: Worker, cause: Cause) -> None:
        """End a worker that serves nobody. The same act as every other end: its deadline is now."""
        worker.ended_for = worker.ended_for or cause
        self.end_at(worker, now_ns())  # again, if its end was decided before: an answer may have disarmed it since

    @property
    def ground(self) -> Ground:
        """What its workers stand on; holds once the zygote has been started."""
        ready = self.zygote.ready
        reaps = ready is not None and ready.subreaper
        return ground_of(self.zygote.held_by, self.wanted_isolation, reaps, self._groups.can_kill)

    @property
    def cramped(self) -> bool:
        """Whether calls wait for workers that cannot be started, because others have every slot."""
        return self.wanted > self.starting and not self._slots.open_to(self.flavour) and not self.idle

    def give_up_one(self) -> None:
        """End the longest idle worker, if there is one: another flavour's call needs its slot."""
        if self.idle:
            self.retire(self.idle.pop(0), Cause.PLANNED)

    def end_at(self, worker: Worker, at_ns: int, term_ns: int = 0) -> None:
        """Let the killer end a worker at an instant; the second line stands behind it."""
        self._table.arm(worker.slot, at_ns, term_ns)
        self._second_line.poke(at_ns)

    def reaped(self, message: Reaped) -> None:
        """The zygote's word on a wait status."""
        worker = self.alive.get(message.worker)
        if worker is not None:
            worker.reaped = worker.reaped or message  # a guard's receipt knows the worker's own
            worker.was_reaped.set()

    def zygote_lost(self) -> None:
        """The zygote died, and with it all its workers: one loss, which it answers for itself, and not one of each."""
        self.idle.clear()
        for worker in self.alive.values():
            worker.ended_for = worker.ended_for or Cause.PLANNED

    @property
    def unconfirmed(self) -> int:
        """Workers whose death the kernel has not confirmed in time and has not since."""
        return sum(worker.ended_for is Cause.KILL_UNCONFIRMED for worker in self.alive.values())

    @property
    def healthy(self) -> bool:
        """Whether workers of this flavour can be started."""
        return self._respawn.healthy

    def trouble(self) -> str | None:
        """Why workers are not being started, while that is so."""
        if self.healthy:
            return None
        left = say_duration(remaining_ms(self.blocked_until_ns or 0, now_ns()))
        return (
            f"workers of flavour {self.flavour} end or fail too often: none is started for another {left}, then one to"
            " try; calls are refused as pool_unhealthy"
        )

    @property
    def blocked_until_ns(self) -> int | None:
        """When a worker may be started again, while none may."""
        return self._respawn.next_timer_ns()

    def finished(self, worker: Worker) -> None:
        """A worker has finished a call: one that lives long enough is the proof that workers can be had."""
        now = now_ns()
        self._respawn.on_finished(now, now - worker.born_ns)

    # ------------------------------------------------------------ life

    async def run(self, describe: bool, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the pool filled until cancelled. With ``describe``: reports started once a first worker has told its
        tools."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            if describe:
                await nursery.start(self._live, self._slots.take(), True)
            nursery.start_soon(self._retire_idle)
            task_status.started()
            while True:
                self._start_some()
                await self._need.wait()
                self._need = trio.Event()

    async def close(self) -> None:
        """End every worker and wait until the kernel has confirmed each. No new one starts."""
        self.closing = True
        self.idle.clear()
        for worker in list(self.alive.values()):
            self.retire(worker, Cause.PLANNED)
        while self.alive or self.starting:
            await trio.sleep(0.002)

    def _refill(self) -> None:
        enough = len(self.idle) + self.starting >= self.settings.spares + self.wanted  # the common case, in one look
        if not enough and self._short() > 0:
            self._need.set()

    def _short(self) -> int:
        """How many more workers should be on their way."""
        if self.closing:
            return 0
        target = min(self.settings.most, len(self.alive) - len(self.idle) + self.wanted + self.settings.spares)
        return min(
            target - len(self.alive) - self.starting,
            _STARTING_AT_ONCE - self.starting,
            self._slots.open_to(self.flavour),
        )

    def _start_some(self) -> None:
        assert self._nursery is not None
        for _ in range(max(0, self._short())):
            if not self._respawn.may_spawn(now_ns()):
                if not self._looking:  # one is enough, however many calls come meanwhile
                    self._looking = True
                    self._nursery.start_soon(self._look_again)
                return
            # Counted and given its slot before the task runs, or the next round would start the same one again.
            self._nursery.start_soon(self._live, self._slots.take(), False)
            self.starting += 1

    async def _look_again(self) -> None:
        """Wait until the respawn machine may answer otherwise."""
        at = self._respawn.next_timer_ns()
        await trio.sleep(max(0, (at or 0) - now_ns()) / 1e9)
        self._looking = False
        self._need.set()

    async def _live(
        self, slot: int, describe: bool, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """One worker's life, from spawn to the removal of its last trace."""
        self.starting += describe
        try:
            worker = await self._spawn(slot, describe)
        except SpawnError:
            self._slots.give(slot)
            if describe:
                raise
            self._ended(Cause.START_FAILURE)
            return
        finally:
            self.starting -= 1
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._listen, worker, task_status if describe else trio.TASK_STATUS_IGNORED)
            await worker.wait_gone()
            await self._tell_gone(worker)  # first of all: a caller waits for this
            nursery.cancel_scope.cancel()
        await self._bury(worker)
        if describe and worker.ready is None:
            raise SpawnError("start_failure", "the first worker ended before it was ready; its reason stands above")

    async def _spawn(self, slot: int, describe: bool) -> Worker:
        """A worker that is on its way. Raises SpawnError, and then nothing of it is left but the slot."""
        number, group, scratch = next(self._numbers), WorkerGroup(), None
        held = ExitStack()
        try:
            ours, theirs = map(held.enter_context, socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM))
            with theirs:
                group = self._groups.group_for(number, self._bounds())
                scratch = Scratch(self._scratch_parent, number)
                request = self._request(number, scratch, group, describe)
                guard = self._guard(held)
                passed = guard.passed() if guard else ()
                _pid, pidfd = await self.zygote.spawn(request, [theirs.fileno(), *group.joins, *passed])
            held.callback(os.close, pidfd)  # closed with the socket: a worker that nobody knows ends by itself
            ours.setblocking(False)
            if guard is not None:
                guard.handed_over()
            worker = Worker(
                number, slot, self.flavour, ours, pidfd, group, scratch, self._table, self.settings.frame_limit, guard
            )
            held.pop_all()
        except (SpawnError, OSError) as error:
            held.close()
            await self._clean(group, scratch)
            if isinstance(error, OSError):
                raise SpawnError("start_failure", str(error)) from error
            raise
        finally:
            group.close_joins()
        self.alive[number] = worker
        self._audience.spawned(worker)
        if self.closing:
            worker.ended_for = Cause.PLANNED
        self._table.open_slot(slot, number)
        # A worker that never gets ready ends like any other; one that came too late for a closing pool at once.
        self.end_at(worker, now_ns() + (0 if self.closing else _SPAWN_BUDGET_NS))
        return worker

    def _bounds(self) -> Limits:
        """What the worker's control group keeps: nothing at isolation ``none``, where it is there for the kill."""
        limits = self.settings.limits
        if self.wanted_isolation != "none":
            return limits
        return msgspec.structs.replace(limits, memory_bytes=None, pids=None)

    def _guard(self, held: ExitStack) -> GuardEnds | None:
        if self.zygote.held_by == "namespaces":
            return None
        guard = GuardEnds(self.zygote.ready is None or self.zygote.ready.subreaper)
        held.callback(guard.close)
        return guard

    def _request(self, number: int, scratch: Scratch, group: WorkerGroup, describe: bool) -> Spawn:
        return Spawn(
            number,
            scratch.path,
            cgroups=len(group.joins),
            describe=describe,
            isolation=self.wanted_isolation,
            limits=self.settings.limits,
            processes_of_uid=self._processes_of_uid(),
        )

    def _processes_of_uid(self) -> int | None:
        """RLIMIT_NPROC counts a uid's processes in its user namespace: without one those of the whole host."""
        most = self.settings.processes_of_uid
        if most is None or self.zygote.held_by == "namespaces":
            return most
        return most + census.tasks_of(os.getuid())

    async def _listen(self, worker: Worker, task_status: trio.TaskStatus[None]) -> None:
        guard = worker.guard
        told = (None, False) if guard is None else (guard.bell, not guard.orphans_come_home)
        await self._killer.register(worker.slot, worker.number, worker.pidfd, worker.group.kill, *told)
        try:
            where = await worker.listen(lambda _, message: self._heard(worker, message, task_status))
        except ProtocolError as error:
            self._broke(worker, str(error))
            return
        # End of file is not exit: a worker that dies closes its socket a little before the kernel confirms its death.
        await trio.sleep(_DYING_S)
        self._broke(worker, f"the worker closed its socket {where} and lives on")

    def _broke(self, worker: Worker, why: str) -> None:
        """The worker broke the rules of its link. One that was killed is excused: its last bytes are torn."""
        if worker.signalled_ns or worker.gone():
            return
        if worker in self.idle:
            self.idle.remove(worker)
        self.end_at(worker, now_ns())
        worker.ended_for = worker.ended_for or Cause.PROTOCOL_ERROR
        self._audience.broken(worker, why)

    def _heard(self, worker: Worker, message: FromWorker, task_status: trio.TaskStatus[None]) -> None:
        if not isinstance(message, WorkerReady):
            self._audience.heard(worker, message)
            return
        worker.ready = message
        if worker.ended_for:  # it is being ended already: to disarm it now would let it live
            return
        self._respawn.on_ready(now_ns())
        self._table.disarm(worker.slot)
        self._stand_on(self.ground, message.missing)
        if message.tools is not None:
            self.tools = message.tools
        task_status.started()
        self._audience.idle(worker)

    def _stand_on(self, ground: Ground, missing: list[str]) -> None:
        """What results say of calls from now on. The same objects while that is the same: results hold them."""
        isolation = Isolation(self.wanted_isolation, ground.isolation, missing)
        if (ground.containment, isolation) != (self.containment, self.isolation):
            self.containment, self.isolation = ground.containment, isolation
            self.mechanism = mechanism_of(ground.containment)

    # ------------------------------------------------------------ end

    async def _tell_gone(self, worker: Worker) -> None:
        """The kernel has spoken: read the rest, learn the wait status, tell."""
        worker.drain(lambda _, message: self._audience.heard(worker, message) if worker.call else None)
        with trio.move_on_after(_REAPED_BUDGET_S):
            await worker.was_reaped.wait()
        if worker in self.idle:
            self.idle.remove(worker)
        del self.alive[worker.number]
        self._audience.gone(worker)  # first: it knows whether the worker had begun its call, or died idle under it
        self._respawned(worker)

    def _respawned(self, worker: Worker) -> None:
        cause = worker.ended_for or self._why(worker)
        self._audience.ended(worker, cause)
        self._ended(cause, worker.calls_served, now_ns() - worker.born_ns, serving=worker.call is not None)

    async def _bury(self, worker: Worker) -> None:
        """Nobody needs it any more: slot, descriptors, groups and directories go."""
        self._killer.unregister(worker.slot)
        self._table.close_slot(worker.slot)
        self._slots.give(worker.slot)
        worker.close()
        await self._clean(worker.group, worker.scratch)

    def _why(self, worker: Worker) -> Cause:
        if worker.ready is None:
            return Cause.START_FAILURE
        if worker.signalled_ns:
            return Cause.DEADLINE_KILL
        if worker.group.out_of_memory():
            return Cause.OOM
        return Cause.CRASH if worker.call is not None else Cause.IDLE_DEATH

    def _ended(self, cause: Cause, served: int = 0, lived_ns: int = 0, serving: bool = False) -> None:
        draw = random.random()  # noqa: S311  # jitter, not a secret
        self._respawn.on_ended(cause, now_ns(), draw, served, lived_ns, serving)
        self.replacements += 1
        self._need.set()

    async def _clean(self, group: WorkerGroup, scratch: Scratch | None) -> None:
        """Remove groups (EBUSY for a moment after a kill) and directories; shielded, bounded. What will not go is left
        to the next start's sweep."""
        with trio.CancelScope(shield=True):
            for wait_ms in (0, 1, 2, 5, 10, 20, 50, 100, 200):
                await trio.sleep(wait_ms / 1_000)
                if group.remove():
                    break
            if scratch is not None:
                await trio.to_thread.run_sync(scratch.remove)

    async def _retire_idle(self) -> None:
        """Workers over the spares that nobody has used for ``idle_ms`` end, the longest idle first."""
        while True:
            await trio.sleep(self.settings.idle_ms / 1_000)
            for worker in self.idle[: max(0, len(self.idle) - self.settings.spares)]:
                self.idle.remove(worker)
                self.retire(worker, Cause.PLANNED)
