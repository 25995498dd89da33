"""Who runs next. Owns the queue, the lanes and the resource locks; knows nothing of workers, tools or clients.

Rules
1. A *lane* is a run, or the call itself when it is outside a run. Lanes are independent of each other.
2. A call that may run side by side shares its lane with others of that kind; any other call is *serial*: while it is in
   its lane, nothing else of the lane is.
3. Within a lane calls enter in the order in which they came. So a side-by-side call never overtakes a waiting serial
   one, and neither kind starves; a side-by-side call that has entered and still waits for its resource is passed.
4. A *resource* is an exclusive lock across the daemon, and so is the name under which a tool in quarantine runs
   ``alone``. They are taken after the lane is entered and before a place in flight, always in this order, so that no
   two calls can wait for each other.
5. At most ``capacity`` calls are in flight. Resources and places go to the call submitted first, whatever its lane.
6. A call that can start at once is granted at once and never touches the queue. At most ``queue`` calls wait; one more
   is refused as ``overloaded`` (retryable: nothing of it ran).
7. Time in the queue counts. A call still waiting at its deadline is overdue and leaves. When several leave at one
   instant, all of them leave before anything they held is handed on, so no overdue call is granted by ``on_time``;
   one whose deadline falls between two timers may be granted late and dies of its armed deadline.
8. Each call submitted gets exactly one of Granted, Refused, Overdue, unless it is cancelled before that. A granted one
   keeps its lane, its resource and its place until ``finished``; a cancel does not free them: its processes still live.
9. The machine is total: an id that is not here any more changes nothing. Submitting an id that is here is a bug of the
   caller.

Every input costs O(log waiting); an uncontended call costs two dictionary entries.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum, auto
from heapq import heapify, heappop, heappush
from typing import TypeAlias

import msgspec

from protocol import Reason

CAPACITY = 64
QUEUE = 256
_DEAD_ENTRIES_KEPT = 64
_Lock: TypeAlias = tuple[int, str]
"""What it is (0 a resource, 1 a tool that runs alone) and its name."""
_KINDS = (0, 1)
_NO_LOCKS: tuple[_Lock, ...] = ()


class Granted(msgspec.Struct, frozen=True, gc=False):
    """Dispatch it: lane, resource and place are its own until ``finished``."""

    call_id: str


class Refused(msgspec.Struct, frozen=True, gc=False):
    """The queue is full; the call is forgotten here."""

    call_id: str
    reason: Reason = Reason.OVERLOADED


class Overdue(msgspec.Struct, frozen=True, gc=False):
    """Its deadline passed in the queue; the call is forgotten here. It was not delivered."""

    call_id: str


Effect: TypeAlias = Granted | Refused | Overdue
Effects: TypeAlias = tuple[Effect, ...]


class _Stage(Enum):
    """What a call waits for; a call passes the stages in this order."""

    LANE = auto()
    RESOURCE = auto()
    PLACE = auto()
    IN_FLIGHT = auto()


class Admission:
    """The machine. Inputs are `submitted`, `cancelled`, `finished`, `on_time`; each returns the effects in order."""

    def __init__(self, capacity: int = CAPACITY, queue: int = QUEUE) -> None:
        """``capacity``: calls in flight, at least 1. ``queue``: calls that may wait, 0 = none. Raises ValueError."""
        if capacity < 1 or queue < 0:
            raise ValueError(f"capacity {capacity} must be at least 1 and queue {queue} at least 0")
        self._capacity, self._queue = capacity, queue
        self._calls: dict[str, _Call] = {}
        self._lanes: dict[str, _Lane] = {}
        self._resources: dict[_Lock, _Resource] = {}
        self._ready = _Pile()
        self._deadlines = _Pile()
        self._submissions = 0
        self.in_flight = 0
        self.waiting = 0

    def submitted(
        self,
        call_id: str,
        lane: str,
        side_by_side: bool,
        resource: str | None,
        deadline_ns: int,
        alone: str | None = None,
    ) -> Effects:
        """A call wants to run: Granted, Refused, or nothing yet. Raises ValueError for an id that is here already."""
        if call_id in self._calls:
            raise ValueError(f"call {call_id} was submitted twice")
        place = self._lanes.get(lane)
        locks = _NO_LOCKS if resource is None and alone is None else _locks(resource, alone)
        starts = (
            self.in_flight < self._capacity
            and (place is None or place.admits(side_by_side))
            and (not locks or self._resources.keys().isdisjoint(locks))
        )
        if not starts and self.waiting >= self._queue:
            return (Refused(call_id),)
        if place is None:
            place = self._lanes[lane] = _Lane(lane)
        self._submissions += 1
        call = _Call(call_id, place, side_by_side, locks, deadline_ns, self._submissions)
        self._calls[call_id] = call
        if starts:
            return self._start_at_once(call)
        self._join_queue(call)
        return ()

    def cancelled(self, call_id: str) -> Effects:
        """A waiting call is withdrawn. One in flight stays until it has `finished`."""
        call = self._calls.get(call_id)
        return () if call is None or call.stage is _Stage.IN_FLIGHT else self._depart([call])

    def finished(self, call_id: str) -> Effects:
        """The call has settled and holds nothing; what it held goes to who waits. A waiting call is withdrawn."""
        call = self._calls.get(call_id)
        if call is None:
            return ()
        if self.waiting:
            return self._depart([call])
        del self._calls[call_id]
        for name in call.locks:
            del self._resources[name]
        self.in_flight -= 1
        self._exit_lane(call.lane)
        return ()

    def next_timer_ns(self) -> int | None:
        """When `on_time` must be called next: the earliest deadline of a waiting call; None while nobody waits."""
        return self._deadlines.first_key()

    def on_time(self, now_ns: int) -> Effects:
        """It is ``now_ns``: every waiting call whose deadline that is, or was, is overdue; then others are granted."""
        late: list[_Call] = []
        while (first := self._deadlines.first_key()) is not None and first <= now_ns:
            late.append(self._deadlines.pop())
        if not late:
            return ()
        return (*(Overdue(call.call_id) for call in late), *self._depart(late))

    # ------------------------------------------------------------------ in

    def _start_at_once(self, call: _Call) -> Effects:
        call.lane.enter(call)
        for name in call.locks:
            self._resources[name] = _Resource(name, call)
        call.taken = len(call.locks)
        call.stage = _Stage.IN_FLIGHT
        self.in_flight += 1
        return (Granted(call.call_id),)

    def _join_queue(self, call: _Call) -> None:
        self.waiting += 1
        self._deadlines.push(call.deadline_ns, call)
        call.lane.queue(call)
        self._let_in(call.lane)

    def _let_in(self, lane: _Lane) -> None:
        while (call := lane.next_in()) is not None:
            self._want_locks(call)

    def _want_locks(self, call: _Call) -> None:
        """Take the rest of them in order, or wait for the first that is held."""
        for name in call.locks[call.taken :]:
            if name in self._resources:
                call.stage = _Stage.RESOURCE
                self._resources[name].queue(call)
                return
            self._resources[name] = _Resource(name, call)
            call.taken += 1
        self._want_place(call)

    def _want_place(self, call: _Call) -> None:
        call.stage = _Stage.PLACE
        self._ready.push(call.number, call)

    def _grant(self) -> list[Effect]:
        effects: list[Effect] = []
        while self.in_flight < self._capacity and self._ready:
            call = self._ready.pop()
            self._leave_queue(call)
            call.stage = _Stage.IN_FLIGHT
            self.in_flight += 1
            effects.append(Granted(call.call_id))
        return effects

    # ------------------------------------------------------------------ out

    def _depart(self, calls: list[_Call]) -> Effects:
        """All leave; then lanes, resources, the names of those alone, and places are handed on, in the order of rule 4,
        so one pass is enough. Each lock is given away when all who want it stand before it: rule 5."""
        for call in calls:
            self._withdraw(call)
        touched = {lock for call in calls for lock in call.locks}
        for call in calls:
            while (entered := call.lane.next_in()) is not None:
                self._line_up(entered, touched)
        for kind in _KINDS:
            for lock in sorted(lock for lock in touched if lock[0] == kind):
                self._hand_on(lock, touched)
        return tuple(self._grant())

    def _line_up(self, call: _Call, touched: set[_Lock]) -> None:
        """Stand before the next lock, be it free or not; with none left, wait for a place."""
        if call.taken == len(call.locks):
            self._want_place(call)
            return
        name = call.locks[call.taken]
        if name not in self._resources:
            self._resources[name] = _Resource(name, None)
        self._resources[name].queue(call)
        call.stage = _Stage.RESOURCE
        touched.add(name)

    def _withdraw(self, call: _Call) -> None:
        del self._calls[call.call_id]
        if call.stage is _Stage.IN_FLIGHT:
            self.in_flight -= 1
        else:
            self._leave_queue(call)
        if call.stage is _Stage.LANE:
            call.lane.forget(call)
            self._drop_if_empty(call.lane)
            return
        if call.stage is _Stage.PLACE:
            self._ready.discard(call)
        self._let_go(call)
        self._exit_lane(call.lane)

    def _let_go(self, call: _Call) -> None:
        for name in call.locks[: call.taken]:
            self._resources[name].holder = None
        if call.stage is _Stage.RESOURCE:
            waiting = self._resources[call.locks[call.taken]].waiting
            assert waiting is not None
            waiting.discard(call)

    def _leave_queue(self, call: _Call) -> None:
        self.waiting -= 1
        self._deadlines.discard(call)

    def _exit_lane(self, lane: _Lane) -> None:
        lane.inside -= 1
        self._drop_if_empty(lane)

    def _drop_if_empty(self, lane: _Lane) -> None:
        if not lane.inside and not lane.waiting:
            del self._lanes[lane.name]

    def _hand_on(self, name: _Lock, touched: set[_Lock]) -> None:
        lock = self._resources.get(name)
        if lock is None or lock.holder is not None:
            return
        if lock.waiting:
            lock.holder = lock.waiting.pop()
            lock.holder.taken += 1
            self._line_up(lock.holder, touched)
        else:
            del self._resources[lock.name]


class _Call(msgspec.Struct, eq=False):
    call_id: str
    lane: _Lane
    side_by_side: bool
    locks: tuple[_Lock, ...]
    deadline_ns: int
    number: int
    taken: int = 0
    """How many of ``locks`` it holds, from the first on."""
    stage: _Stage = _Stage.LANE


def _locks(resource: str | None, alone: str | None) -> tuple[_Lock, ...]:
    """In the order in which they are taken."""
    return tuple((kind, name) for kind, name in enumerate((resource, alone)) if name is not None)


class _Lane(msgspec.Struct, eq=False):
    """``inside``: calls past rule 3, in flight or not. ``serial``: the one inside is a serial one."""

    name: str
    inside: int = 0
    serial: bool = False
    waiting: OrderedDict[int, _Call] | None = None
    """By submission number. An OrderedDict, because a plain dict's head is O(n) to find after removals at the front."""

    def admits(self, side_by_side: bool) -> bool:
        """Whether a new call may enter now."""
        return not self.waiting and self._has_room(side_by_side)

    def enter(self, call: _Call) -> None:
        self.inside += 1
        self.serial = not call.side_by_side

    def queue(self, call: _Call) -> None:
        if self.waiting is None:
            self.waiting = OrderedDict()
        self.waiting[call.number] = call

    def next_in(self) -> _Call | None:
        """The first that waits, entered, if it may."""
        if not self.waiting:
            return None
        call = next(iter(self.waiting.values()))
        if not self._has_room(call.side_by_side):
            return None
        del self.waiting[call.number]
        self.enter(call)
        return call

    def forget(self, call: _Call) -> None:
        if self.waiting is not None:
            del self.waiting[call.number]

    def _has_room(self, side_by_side: bool) -> bool:
        return not self.inside or (side_by_side and not self.serial)


class _Pile:
    """Calls by a key, smallest first. One that leaves early stays in the heap as a dead entry until it surfaces or the
    dead are the majority, so that leaving is O(1) amortised and a client that submits and cancels grows nothing."""

    __slots__ = ("_heap", "_members")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []
        self._members: dict[int, _Call] = {}

    def __bool__(self) -> bool:
        return bool(self._members)

    def push(self, key: int, call: _Call) -> None:
        self._members[call.number] = call
        heappush(self._heap, (key, call.number))

    def discard(self, call: _Call) -> None:
        if self._members.pop(call.number, None) is None:
            return
        if len(self._heap) > 2 * len(self._members) + _DEAD_ENTRIES_KEPT:
            self._heap = [entry for entry in self._heap if entry[1] in self._members]
            heapify(self._heap)

    def first_key(self) -> int | None:
        heap, members = self._heap, self._members
        while heap and heap[0][1] not in members:
            heappop(heap)
        return heap[0][0] if heap else None

    def pop(self) -> _Call:
        """The first; there must be one."""
        self.first_key()
        return self._members.pop(heappop(self._heap)[1])


class _Resource(msgspec.Struct, eq=False):
    """Exists while it is held; ``holder`` is None only inside `_depart`."""

    name: _Lock
    holder: _Call | None
    waiting: _Pile | None = None

    def queue(self, call: _Call) -> None:
        if self.waiting is None:
            self.waiting = _Pile()
        self.waiting.push(call.number, call)
