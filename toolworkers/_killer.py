"""The killer: the small process that holds every deadline outside the daemon's loop and kills on time.

It owns: reading the shared table of deadlines (`protocol/_slots.py`), SIGTERM and SIGKILL to the registered workers,
and the words ``killed_ns`` and ``seen`` of each slot. It leaves to others: which deadline holds (the daemon), that a
process is dead (whoever polls its pidfd), what to tell the caller.

Rules
1. Only a registered pair (slot, generation) is ever signalled, through its pidfd: a number can be reused, a pidfd not.
2. A round signals what is due, publishes when the next look will be, and looks once more before it sleeps.
3. One worker is killed once; ``term_ns`` of one value brings one SIGTERM.
4. When the control socket ends, the daemon is gone: everything registered is killed and the killer ends.
5. A worker that a guard holds (no namespace) is killed by its guard: the guard is woken, should somebody have stopped
   it, and its bell is rung. One that is still there `_slots.GUARD_NS` later is killed itself, and the zygote ends
   what it leaves. It is a kill of rule 3 all the same, at the instant the bell was rung.

Why no wake is lost. The daemon stores a deadline and then loads NEXT_WAKE; the killer stores NEXT_WAKE and then loads
the deadlines. On both sides a full barrier stands between the store and the load (here the lock inside
timerfd_settime(2), there the one that the daemon's table takes), so at least one of the two sees the other's store:
either the killer's second look finds the new deadline, or the daemon finds a NEXT_WAKE that is too late and rings the
bell (the eventfd), which the coming poll(2) returns at once. Without the second look a deadline stored between the
first look and the publication would sleep until the next unrelated wake.

Standard library, `protocol._slots`, `_syscalls` and `_datagrams` only: this process must start fast, stay small enough
to be locked in memory, and never wait for a collector.
"""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import resource
import select
import signal
import socket
import struct
import sys
import time

from protocol import _slots
from toolworkers import _syscalls as sys_
from toolworkers._datagrams import receive_datagram

REGISTRATION = struct.Struct("<IQ")
"""(slot, generation) of a register, an unregister (generation 0), and of each ack. With a register come the worker's
pidfd (of a guarded one: the guard's, and its bell), and the write end of its cgroup.kill where it has one."""
COUNT_LIMIT = 64
COUNT_BUDGET_NS = 150_000
"""How many processes are counted for a receipt, and how long a kill that nobody saw coming may wait for that."""
COUNT_AHEAD_NS = 600_000
"""How long before a deadline its processes are counted, so that the figure costs the kill no time. Half of it is the
budget of one round."""
_DEADLINES = slice(_slots.HEADER_WORDS + _slots.DEADLINE, None, _slots.WORDS_PER_SLOT)
_TERMS = slice(_slots.HEADER_WORDS + _slots.TERM, None, _slots.WORDS_PER_SLOT)
_SINGLE = 3
"""Links of a task directory with one thread in it: itself, its entry above, the thread."""
_IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)


class Watched:
    """One registered worker. ``group``: the write end of its cgroup.kill, where it has one. ``bell``: its guard's; then
    ``pidfd`` is the guard's as well, who has ``patience_ns`` once it was rung."""

    __slots__ = (
        "base",
        "bell",
        "counted_for_ns",
        "done",
        "generation",
        "group",
        "patience_ns",
        "pid",
        "pidfd",
        "seen",
        "termed_ns",
    )

    def __init__(
        self,
        slot: int,
        generation: int,
        pidfd: int,
        group: int | None,
        bell: int | None = None,
        patience_ns: int = _slots.GUARD_NS,
    ) -> None:
        self.base = _slots.slot_base(slot)
        self.generation = generation
        self.pidfd = pidfd
        self.group, self.bell, self.patience_ns = group, bell, patience_ns
        self.pid = _pid_of(pidfd)
        self.termed_ns = 0
        self.counted_for_ns, self.seen = 0, 1
        self.done = False

    def close(self) -> None:
        """Let go of the descriptors."""
        for descriptor in (self.pidfd, self.group, self.bell):
            if descriptor is not None:
                os.close(descriptor)


class Killer:
    """The loop over one table. ``control`` is the daemon's socket, ``bell`` its eventfd."""

    def __init__(self, control: socket.socket, table: memoryview, bell: int) -> None:
        self._control, self._table, self._bell = control, table, bell
        self._timer = sys_.open_timer()
        self._watched: dict[int, Watched] = {}
        self._rung: dict[Watched, int] = {}
        self._poll = select.poll()
        for descriptor in (control.fileno(), bell, self._timer):
            self._poll.register(descriptor, select.POLLIN)

    def run(self) -> None:
        """Serve until the daemon is gone, then kill everything that is registered."""
        self._round()
        while self._wait():
            self._round()
        for watched in self._watched.values():
            self._signal(watched)
        while self._rung:  # their guards have a little time left
            time.sleep(_slots.GUARD_NS / 1e9)
            self._strike_guards(time.monotonic_ns())

    def _round(self) -> None:
        """Rule 2. The module's docstring says why the second look is needed."""
        wake = self.strike()
        while True:
            self._table[_slots.NEXT_WAKE] = wake
            sys_.set_timer(self._timer, 0 if wake == _slots.NEVER else wake)
            earlier = self.strike()
            if earlier >= wake:
                break
            wake = earlier
        self._table[_slots.HEARTBEAT] += 1

    def strike(self) -> int:
        """Signal whatever is due now; when to look again, NEVER when nothing is armed.

        Who is due in a moment is counted after everybody who is due now has been signalled. The columns of the table
        are read at C speed (10 µs for 500 slots) and only the slots that are near are looked at one by one: a loop over
        all of them made 500 deadlines ten times as late as one.
        """
        now = time.monotonic_ns()
        horizon = now + COUNT_AHEAD_NS
        deadlines = self._table[_DEADLINES].tolist()
        far = [deadline for deadline in deadlines if deadline > horizon]
        wake = min(far) - COUNT_AHEAD_NS if far else _slots.NEVER
        soon: list[Watched] = []
        for slot in [slot for slot, deadline in enumerate(deadlines) if 0 < deadline <= horizon]:
            wake = min(wake, self._near(slot, deadlines[slot], now, soon))
        if any(self._table[_TERMS].tolist()):
            wake = min(wake, *(self._terminate_if_due(watched, now) for watched in self._watched.values()), wake)
        for watched in soon:
            watched.seen = _count(watched, now + COUNT_AHEAD_NS // 2)
        return min(wake, self._strike_guards(now)) if self._rung else wake

    def _strike_guards(self, now: int) -> int:
        """Rule 5 for the guards that were rung and should be gone; when the next one should be."""
        for watched in [watched for watched, until in self._rung.items() if until <= now]:
            del self._rung[watched]
            with contextlib.suppress(OSError):  # it is gone, as it should be; or even its registration is
                signal.pidfd_send_signal(watched.pidfd, signal.SIGKILL)
        return min(self._rung.values(), default=_slots.NEVER)

    def _near(self, slot: int, deadline: int, now: int, soon: list[Watched]) -> int:
        """A slot whose deadline is past, or within the time in which its processes are counted; when to look again."""
        watched = self._watched.get(slot)
        if watched is None or watched.done or self._table[watched.base + _slots.GENERATION] != watched.generation:
            return _slots.NEVER
        if deadline <= now:
            self._kill(watched, deadline, now + COUNT_BUDGET_NS)
            return _slots.NEVER
        if deadline != watched.counted_for_ns:
            watched.counted_for_ns = deadline
            soon.append(watched)
        return deadline

    def _kill(self, watched: Watched, deadline: int, count_until: int) -> None:
        """Tell, and kill: told first, because its death may be seen before our next line runs, and would be taken for
        a crash. ``killed_ns`` last, because whoever sees it may read ``seen``."""
        if watched.counted_for_ns != deadline:  # a kill that nobody saw coming: a cancel, or a late registration
            watched.seen = _count(watched, count_until)
        watched.done = True
        self._table[watched.base + _slots.SEEN] = watched.seen
        self._table[watched.base + _slots.KILLED] = time.monotonic_ns()
        if not self._signal(watched):
            self._table[watched.base + _slots.KILLED] = 0  # nobody was killed: the second line is to try, and to say so

    def _signal(self, watched: Watched) -> bool:
        """SIGKILL, to the cgroup first (one act ends even a fork bomb). False: neither could be done; it is gone and
        reaped, or may not be signalled. Whatever becomes of this one, the next is killed on time."""
        done = False
        if watched.group is not None:
            with contextlib.suppress(OSError):  # ENODEV: the daemon has removed the cgroup, so it was empty
                done = os.write(watched.group, b"1") > 0
        with contextlib.suppress(OSError):  # it is gone and reaped, perhaps by the line above; or it is not ours
            if watched.bell is None:
                signal.pidfd_send_signal(watched.pidfd, signal.SIGKILL)
            else:
                self._ring(watched, watched.bell)
            done = True
        return done

    def _ring(self, watched: Watched, bell: int) -> None:
        """Rule 5. Raises OSError."""
        signal.pidfd_send_signal(watched.pidfd, signal.SIGCONT)
        os.eventfd_write(bell, 1)
        self._rung[watched] = time.monotonic_ns() + watched.patience_ns

    def _terminate_if_due(self, watched: Watched, now: int) -> int:
        """Rule 3 for SIGTERM; when it is due, if it still has to go."""
        term = self._table[watched.base + _slots.TERM]
        stale = watched.done or self._table[watched.base + _slots.GENERATION] != watched.generation
        if stale or not term or term == watched.termed_ns:
            return _slots.NEVER
        if term > now:
            return term
        watched.termed_ns = term
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(watched.pidfd, signal.SIGTERM)
        return _slots.NEVER

    def _wait(self) -> bool:
        """Sleep until the timer, the bell or the daemon says something; False: the daemon is gone.

        The timer is not read: timerfd_settime(2) of the next round takes back its expirations.
        """
        for descriptor, _ in self._poll.poll():
            if descriptor == self._bell:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._bell, 8)
            elif descriptor != self._timer and not self._hear():
                return False
        return True

    def _hear(self) -> bool:
        """Take every registration that has arrived; False at the end of the daemon's socket."""
        while True:
            try:
                datagram, descriptors = receive_datagram(self._control, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return True
            except ConnectionError:
                return False
            if not datagram:
                return False
            self._take(datagram, descriptors)

    def _take(self, datagram: bytes, descriptors: list[int]) -> None:
        """Register or unregister, then acknowledge; what is neither gets no ack and costs its descriptors."""
        word, generation = REGISTRATION.unpack(datagram) if len(datagram) == REGISTRATION.size else (-1, 0)
        slot, guarded = word & ~(_slots.GUARDED | _slots.PATIENTLY), bool(word & _slots.GUARDED)
        fits = 0 <= slot < _slots.slots_in(self._table) and (
            0 < len(descriptors) - guarded < 3 if generation else not descriptors
        )
        if not fits:
            print(f"killer: a registration with {len(descriptors)} descriptors was refused", file=sys.stderr)  # noqa: T201  # the daemon's log
            for descriptor in descriptors:
                os.close(descriptor)
            return
        previous = self._watched.pop(slot, None)
        if previous is not None:
            self._rung.pop(previous, None)
            previous.close()
        if generation:
            bell = descriptors.pop(1) if guarded else None
            patience_ns = _slots.PATIENT_NS if word & _slots.PATIENTLY else _slots.GUARD_NS
            self._watched[slot] = Watched(slot, generation, descriptors[0], (*descriptors, None)[1], bell, patience_ns)
        # Never blocks: acks wait for a stopped daemon in the socket, and deadlines do not wait for acks.
        with contextlib.suppress(BlockingIOError, ConnectionError):
            self._control.send(datagram, socket.MSG_DONTWAIT)


def _count(watched: Watched, until_ns: int) -> int:
    """Without the guard, which is none of the call's."""
    return max(1, count_processes(watched.pid, until_ns) - (watched.bell is not None))


def count_processes(pid: int, until_ns: int) -> int:
    """Processes alive in the tree under ``pid``, itself included: at least 1, a lower bound when limit or time run out.

    The children files are read and not cgroup.procs, which this process may not have; they show this host's pids.
    """
    seen, queue = 1, [pid]
    while queue and pid > 0 and seen < COUNT_LIMIT and time.monotonic_ns() < until_ns:
        children = _children(queue.pop())
        seen += len(children)
        queue += children
    return min(seen, COUNT_LIMIT)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):  # it may die at any moment
        threads = f"/proc/{pid}/task"
        single = os.stat(threads).st_nlink == _SINGLE  # a third of the price of listing them
        for thread in (str(pid),) if single else os.listdir(threads):
            descriptor = os.open(f"{threads}/{thread}/children", os.O_RDONLY | os.O_CLOEXEC)
            try:
                found += map(int, os.read(descriptor, 4096).split())
            finally:
                os.close(descriptor)
    return found


def _pid_of(pidfd: int) -> int:
    """The process a pidfd names, as a pid of ours; -1 when it is dead. For counting only, never for signalling."""
    with open(f"/proc/self/fdinfo/{pidfd}") as lines:
        return next((int(line[4:]) for line in lines if line.startswith("Pid:")), -1)


def _settle_in() -> None:
    """Become hard to delay and hard to end by accident. Each step is a wish: a plain uid gets few of them."""
    for number in _IGNORED:  # a Ctrl-C or a service stop reaches the whole group; rule 4 is the way to end us
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.setsid()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, -19)
    # Under a limit the lock may succeed and a later allocation fail: all or nothing.
    if _unlimited_lock():
        with contextlib.suppress(OSError):
            sys_.lock_memory()
    gc.collect()
    gc.freeze()
    gc.disable()


def _unlimited_lock() -> bool:
    if resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] == resource.RLIM_INFINITY:
        return True
    with open("/proc/self/status", encoding="ascii", errors="replace") as lines:
        capabilities = next((int(line[7:], 16) for line in lines if line.startswith("CapEff:")), 0)
    return bool(capabilities >> sys_.CAPABILITIES.index("ipc_lock") & 1)


def main(control: int, table: int, bell: int) -> int:
    """Serve the table in descriptor ``table`` until the socket ``control`` ends. Returns the exit code."""
    os.set_blocking(bell, False)
    memory = memoryview(mmap.mmap(table, 0)).cast("Q")
    for descriptor in (control, table, bell):
        os.set_inheritable(descriptor, False)
    killer = Killer(socket.socket(fileno=control), memory, bell)
    _settle_in()
    killer.run()
    return 0
