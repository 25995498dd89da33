"""The journal on a disk that refuses: every n-th write or sync fails (full, input/output error, cut short, failed
sync), for a moment or for long, and then the disk is well again.

Passes when everybody who waited is told once; what was told durable is there, after a power cut at the end too; an
intent that was refused is not there and what was to be kept comes later; nothing is written after a failed sync; the
journal takes no more while there is trouble, says so, and takes more when there is room again; and nothing but
StoreError comes out.
"""

from __future__ import annotations

import random
import sys
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing import get_context

import apsw
import structlog
import trio

from protocol._outcomes import CallResult, Delivery, Status
from supervisor.journal import journal as journal_module
from supervisor.journal import rows
from supervisor.journal.journal import Journal
from supervisor.journal.results import pack
from supervisor.journal.store import Store, StoreError
from tests.trust.journal_power_cuts import History, Replay
from tests.trust.memory_disk import Disk, Op, mounted
from tests.trust.registry import Figures, Suite

PROCESSES = 2
CHUNK = 25
GROUPS = 4
"""So many at least, and on until the fault is past."""
MOST_GROUPS = 300
FILE = "journal.db"
WAIT_S = 10.0
QUICK_S = 0.0005
"""In place of the journal's own waits before it tries again and before it writes a group: nothing here needs them."""
UNTIL_MS = 10**15
SYNC = "sync"
FULL, ERROR, SHORT = WRITES = ("full", "error", "short")


@dataclass
class Failing:
    """The disk's fault: from the n-th operation on, for so many. ``synced_badly``: a sync has failed."""

    disk: Disk
    kind: str
    first: int
    length: int
    count: int = 0
    failed: int = 0
    written_after: int = 0
    synced_badly: bool = False

    def __post_init__(self) -> None:
        self.disk.fault = self

    @property
    def past(self) -> bool:
        """Whether its operations are over, or no more are done."""
        return self.count >= self.first + self.length or self.synced_badly

    def next_process(self) -> None:
        """What the last one has open does no harm any more; a new one knows of no failed sync."""
        old, self.disk = self.disk, self.disk.copy()
        old.fault = lambda _: None
        self.synced_badly = False

    def __call__(self, op: Op) -> Exception | None:
        if op.kind not in ("write", "truncate", "sync"):
            return None
        self.count += 1
        self.written_after += self.synced_badly
        if not self.first <= self.count < self.first + self.length or (op.kind == "sync") is not (self.kind == SYNC):
            return None
        self.failed += 1
        return self._error(op)

    def _error(self, op: Op) -> Exception:
        if self.kind == SYNC:
            self.synced_badly = not self.disk.checkpoints
            return _io_error(apsw.SQLITE_IOERR_FSYNC)
        if self.kind == SHORT and op.kind == "write":
            self.disk.write_past_faults(op._replace(data=op.data[: len(op.data) // 2]))
        return _io_error(apsw.SQLITE_IOERR_WRITE) if self.kind == ERROR else apsw.FullError("no room")


def _io_error(code: int) -> Exception:
    error = apsw.IOError("the disk")
    setattr(error, "extendedresult", code)  # noqa: B010  # how apsw takes it; its types do not say so
    return error


@dataclass
class Ledger:
    """What whoever waited was told: by call, whether its claim and its result are durable."""

    claimed: dict[str, list[bool]] = field(default_factory=dict)
    settled: dict[str, list[bool]] = field(default_factory=dict)


def run(count: int, seed: int) -> Figures:
    """Fail the n-th operation for every n up to ``count``: a sync, and one of the three other ways; two processes."""
    parts = [(list(range(at, min(at + CHUNK, count + 1))), seed) for at in range(1, count + 1, CHUNK)]
    figures = Figures()
    with ProcessPoolExecutor(PROCESSES, get_context("spawn"), quick_and_quiet) as pool:
        for found in pool.map(part, parts):
            figures.add(found)
    return figures


def quick_and_quiet() -> None:
    """Make this process one for `part`, and for nothing else."""
    structlog.configure(processors=[_drop])
    sys.excepthook = lambda *_: None  # what a failed start's connection says when it is let go
    sys.unraisablehook = lambda *_: None
    journal_module._LINGER_S = journal_module._RETRY_S = QUICK_S


def part(which: tuple[list[int], int]) -> Figures:
    """Some n."""
    firsts, seed = which
    figures = Figures()
    for first in firsts:
        rng = random.Random(f"{seed} {first}")
        for kind in (SYNC, rng.choice(WRITES)):
            figures.tried += 1
            if wrong := trio.run(_once, kind, first, rng, figures):
                figures.fail(f"{kind} at operation {first} of seed {seed}: {wrong}")
    return figures


def _drop(*_: object) -> dict[str, object]:
    raise structlog.DropEvent


async def _once(kind: str, first: int, rng: random.Random, figures: Figures) -> str:
    fault = Failing(Disk(), kind, first, rng.choice([1, 1, 5, 40]))
    ledger = Ledger()
    with ExitStack() as mounts:
        store = Store(FILE, mounts.enter_context(mounted(fault.disk)))
        while not _opened(store):  # it did not start; that process is gone, somebody starts it again
            fault.next_process()
            store = Store(FILE, mounts.enter_context(mounted(fault.disk)))
            figures.count("starts refused")
        wrong = await _live(Journal(store), fault, ledger, rng)
    figures.count("operations failed", fault.failed)
    figures.count("told durable", sum(told.count(True) for told in _all(ledger)))
    figures.count("told not durable", sum(told.count(False) for told in _all(ledger)))
    return wrong or _judge(fault, ledger, rng)


def _opened(store: Store) -> bool:
    try:
        store.open()
    except StoreError:
        return False
    return True


def _all(ledger: Ledger) -> list[list[bool]]:
    return [*ledger.claimed.values(), *ledger.settled.values()]


# ---------------------------------------------------------------- a life


async def _live(journal: Journal, fault: Failing, ledger: Ledger, rng: random.Random) -> str:
    async with trio.open_nursery() as nursery:
        await nursery.start(journal.run)
        number = 0
        while (number := number + 1) < GROUPS or not fault.past:
            for nth in range(rng.randrange(1, 4)):
                _claim(journal, ledger, _row(f"c_{number}_{nth}", rng))
            journal.note("call_refused", why="y" * rng.randrange(500))  # type: ignore[arg-type]  # any word will do
            if not await _all_told(ledger):
                return f"somebody was not told in group {number}: {ledger}"
            if number > MOST_GROUPS:
                return f"{MOST_GROUPS} groups did not come to the disk: {journal.trouble}"
        wrong = await _well_again(journal, fault)
        await journal.close()
        nursery.cancel_scope.cancel()
    return wrong


def _claim(journal: Journal, ledger: Ledger, row: rows.CallRow) -> None:
    told = ledger.claimed.setdefault(row.id, [])

    def then(durable: bool) -> None:
        told.append(durable)
        if durable and len(told) == 1:
            journal.append(rows.advanced(row, rows.SENT, 2))
            _settle(journal, ledger, row)

    journal.append(rows.claimed(row, 1), then, keep=False)


def _settle(journal: Journal, ledger: Ledger, row: rows.CallRow) -> None:
    result = CallResult(row.id, row.tool, Status.OK, content="x" * 900, delivery=Delivery.SUCCEEDED)
    told = ledger.settled.setdefault(row.id, [])
    journal.append(rows.settled(row, result, pack(row.uid, result, (), 0), UNTIL_MS, 3), told.append)


def _row(call: str, rng: random.Random) -> rows.CallRow:
    place = rng.randbytes(32)
    return rows.CallRow(call, 1000, None, "tool", place, place, "key", False, 10_000, "z" * rng.randrange(500), 5)


async def _all_told(ledger: Ledger) -> bool:
    with trio.move_on_after(WAIT_S):
        await trio.sleep(QUICK_S / 5)  # also when nobody waits: the journal must come to its work
        while any(not told for told in _all(ledger)):
            await trio.sleep(QUICK_S / 5)
        return True
    return False


async def _well_again(journal: Journal, fault: Failing) -> str:
    """The disk has room again: does the journal take more? Not after a failed sync."""
    fault.length = 0
    told: list[bool] = []
    with trio.move_on_after(WAIT_S):
        while True:
            told.clear()
            journal.append(rows.advanced(_row("c_last", random.Random(0)), rows.SENT, 9), told.append)
            while not told:
                await trio.sleep(QUICK_S / 5)
            if fault.synced_badly:
                break
            if told[0]:
                return "" if journal.trouble is None else f"it writes and says {journal.trouble}"
    if not fault.synced_badly:
        return f"the disk is well and the journal is not: {journal.trouble}"
    if told != [False] or journal.trouble is None:
        return f"a sync has failed, and it goes on: {told}, {journal.trouble}"
    return f"{fault.written_after} operations after a sync that failed" if fault.written_after else ""


# ---------------------------------------------------------------- afterwards


def _judge(fault: Failing, ledger: Ledger, rng: random.Random) -> str:
    twice = [call for told in (ledger.claimed, ledger.settled) for call, heard in told.items() if len(heard) != 1]
    if twice:
        return f"not told once: {twice[:3]}"
    disk = fault.disk
    killed = {name: bytes(one) for name, one in disk.files.items()}
    replay = Replay(History({}, disk.history, []))
    replay.go_to(len(disk.history))
    lost = replay.cut(rng, Figures(), ("lost",))
    for what, files in (("after a kill", killed), ("after a power cut", lost)):
        try:
            wrong = _missing(files, fault, ledger)
        except StoreError as error:
            wrong = str(error)
        if wrong:
            return f"{what}: {wrong}"
    return ""


def _missing(files: dict[str, bytes], fault: Failing, ledger: Ledger) -> str:
    with mounted(Disk(files)) as vfs:
        store = Store(FILE, vfs)
        if (broken := store.open()) is not None:
            return str(broken)
        there = dict(store.rows("SELECT id, result IS NOT NULL FROM calls"))
        store.close()
    for call, (durable,) in ledger.claimed.items():
        if durable and call not in there:
            return f"the claim of {call} was told durable and is gone"
        if not durable and call in there and not fault.synced_badly:
            return f"the claim of {call} was refused and is there"
    for call, (durable,) in ledger.settled.items():
        if not there.get(call) and (durable or not fault.synced_badly):
            return f"the result of {call}, told {'durable' if durable else 'not durable yet'}, is not there"
    return ""


SUITE = Suite(
    passes_when="all are told once, what was told durable is there, a refused intent is not, it heals with the disk",
    push=300,
    long=600,
    run=run,
)
