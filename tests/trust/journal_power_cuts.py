"""The journal's file after a power cut at any point of its writing, on a disk that keeps, loses, tears, zeroes or
spoils what was written since the last sync; and after damage in its middle.

A history of real commits is recorded once and cut many times. Passes when the file opens and its chain holds; its
content is exactly what it was after some whole commit, none that was reported durable missing; recovery settles every
interrupted call once; the next commit goes on from there; and damage in the middle is an alarm, never passed over.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from typing import NamedTuple

import apsw

from protocol._outcomes import CallResult, Delivery, Status
from supervisor.journal import rows
from supervisor.journal.chain import BrokenChain
from supervisor.journal.recovery import Clocks, recover
from supervisor.journal.results import pack
from supervisor.journal.store import Change, Store, StoreError
from tests.trust.memory_disk import Disk, Op, apply, mounted
from tests.trust.registry import Figures, Suite

PROCESSES = 2
CHUNK = 250
CUTS_OF_A_HISTORY = 50
COMMITS = 30
GROWN = 150 << 10
"""A file of so many bytes is large enough: begin with a new one."""
PRUNED = 0.1
"""How often a commit is followed by taking old events off the front."""
DAMAGED = 0.1
"""Share of the points at which the file that came through is damaged in its middle, too."""
FILE = "journal.db"
UNTIL_MS = 10**15
Fate = str
FATES: tuple[Fate, ...] = ("kept", "lost", "zeroed", "torn", "garbage")
Files = dict[str, bytes]


class History(NamedTuple):
    """``start``: the disk before it; ``ops``: what was done to it; ``states``: digests of the content before, and
    after each commit; a mark in ``ops`` is the index of the state that had been reported by then."""

    start: Files
    ops: list[Op]
    states: list[str]


def run(count: int, seed: int) -> Figures:
    """Cut ``count`` times in two processes; the same for the same seed."""
    chunks = [(seed, start, min(CHUNK, count - start)) for start in range(0, count, CHUNK)]
    figures = Figures()
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        for found in pool.map(chunk, chunks):
            figures.add(found)
    return figures


def chunk(part: tuple[int, int, int]) -> Figures:
    """Some cuts: each history starts from a disk that came through a cut of the one before."""
    seed, start, count = part
    rng = random.Random(f"{seed} {start}")
    figures = Figures()
    disk: Files = {}
    while figures.tried < count:
        history = record(disk if len(disk.get(FILE, b"")) < GROWN else {}, rng, figures)
        cuts = min(CUTS_OF_A_HISTORY, count - figures.tried)
        replay, goes_on = Replay(history), rng.randrange(cuts)
        for number, point in enumerate(sorted(rng.randrange(len(history.ops) + 1) for _ in range(cuts))):
            figures.tried += 1
            where = f"chunk {start} of seed {seed}, cut {figures.tried}"
            after = check(replay, point, rng, figures, where)
            disk = after if after and number == goes_on else disk
    return figures


# ---------------------------------------------------------------- a history


def record(start: Files, rng: random.Random, figures: Figures) -> History:
    """Write a journal for a while, as a daemon would."""
    disk = Disk(start)
    states = [""]
    with mounted(disk) as vfs:
        store = Store(FILE, vfs)
        store.open()
        states.append(content(store))
        disk.mark(b"1")
        for changes in work(rng, len(start)):
            store.commit(changes)
            states.append(content(store))
            disk.mark(b"%d" % (len(states) - 1))
            if rng.random() < PRUNED and store.prune_events(0, rng.randrange(5, 50)):
                states.append(content(store))
                disk.mark(b"%d" % (len(states) - 1))
        figures.count("commits", COMMITS)
        store.close()
    return History(start, disk.history, states)


def work(rng: random.Random, life: int) -> Iterator[list[Change]]:
    """Groups of what calls write on their way, in an order in which calls write it."""
    going: list[tuple[rows.CallRow, str]] = []
    for number in range(COMMITS):
        group: list[Change] = []
        for nth in range(rng.randrange(1, 5)):
            if going and rng.random() < 0.5:
                group += _next(going, rng)
            else:
                row = _row(f"c_{life}{rng.getrandbits(40):x}{number}{nth}", rng)
                group += rows.planned(row, number) if rng.random() < 0.3 else rows.claimed(row, number)
                going.append((row, rows.CLAIMED))
        yield group


def _next(going: list[tuple[rows.CallRow, str]], rng: random.Random) -> tuple[Change, ...]:
    row, state = going.pop(rng.randrange(len(going)))
    if state == rows.CLAIMED and rng.random() < 0.5:
        going.append((row, rows.SENT))
        return rows.advanced(row, rows.SENT, 7)
    result = CallResult(row.id, row.tool, Status.OK, content="x" * rng.randrange(3_000), delivery=Delivery.SUCCEEDED)
    return rows.settled(row, result, pack(row.uid, result, (), 0), UNTIL_MS, 8)


def _row(call: str, rng: random.Random) -> rows.CallRow:
    place = rng.randbytes(32) if rng.random() < 0.5 else None
    arguments = "y" * rng.randrange(1_000)
    return rows.CallRow(call, 1000, None, "tool", place, place, "key", False, 10_000, arguments, 5)


def content(store: Store) -> str:
    """A digest of everything that must not get lost, in the form in which it is read back. (The last hash of the chain
    covers all events before it, and opening verifies it.)"""
    digest = hashlib.sha256()
    for query in ("SELECT hash FROM events ORDER BY seq DESC LIMIT 1", "SELECT * FROM calls ORDER BY id"):
        digest.update(repr(list(store.rows(query))).encode())
    return digest.hexdigest()


# ---------------------------------------------------------------- a cut


def check(replay: Replay, point: int, rng: random.Random, figures: Figures, where: str) -> Files | None:
    """Cut a history somewhere and open what is left; the disk after that, None when something was wrong."""
    history = replay.history
    fates = rng.choice([("kept",), ("lost",), FATES, FATES, FATES])
    replay.go_to(point)
    files, reported = replay.cut(rng, figures, fates), replay.reported
    disk = Disk(files)
    try:
        with mounted(disk) as vfs:
            with closing(Store(FILE, vfs)) as store:
                wrong = _look(store, history, reported)
            if not wrong:
                with closing(Store(FILE, vfs)) as store:
                    wrong = _go_on(store)
            after = {name: bytes(one) for name, one in disk.files.items()}
    except Exception as error:  # whatever comes out, a daemon could not start here
        wrong = f"{error!r}"
    if wrong:
        figures.fail(f"{where}, after {point} of {len(history.ops)} operations: {wrong}")
        return None
    if rng.random() < DAMAGED and reported > 2:
        _damage(after, rng, figures, where)
    return after


class Replay:
    """A history played forward. ``reported``: the last state that had been reported where it stands."""

    def __init__(self, history: History) -> None:
        self.history, self.reported = history, 0
        self._files = {name: bytearray(one) for name, one in history.start.items()}
        self._waiting: dict[str, list[Op]] = {}
        self._point = 0

    def go_to(self, point: int) -> None:
        """Play on, until so many operations are done."""
        for op in self.history.ops[self._point : point]:
            match op.kind:
                case "mark":
                    self.reported = int(op.data)
                case "sync" | "delete":
                    for done in [*self._waiting.pop(op.file, []), op]:
                        apply(self._files, done)
                case _:
                    self._waiting.setdefault(op.file, []).append(op)
        self._point = point

    def cut(self, rng: random.Random, figures: Figures, fates: tuple[Fate, ...]) -> Files:
        """The disk after a power cut here: each write since the last sync of its file meets one of the fates."""
        files = {name: bytearray(one) for name, one in self._files.items()}
        for op in [op for ops in self._waiting.values() for op in ops]:
            fate = rng.choice(fates)
            figures.count(f"writes {fate}")
            _suffer(files, op, fate, rng)
        return {name: bytes(one) for name, one in files.items()}


def _suffer(files: dict[str, bytearray], op: Op, fate: Fate, rng: random.Random) -> None:
    """What becomes of an operation that no sync has made sure of. A size is kept or not, it cannot tear."""
    match fate:
        case "lost":
            return
        case "zeroed" if op.kind == "write":
            op = op._replace(data=bytes(len(op.data)))
        case "garbage" if op.kind == "write":
            op = op._replace(data=rng.randbytes(len(op.data)))
        case "torn" if op.kind == "write":
            op = op._replace(data=op.data[: rng.randrange(len(op.data) + 1)])
    apply(files, op)


def _look(store: Store, history: History, reported: int) -> str:
    broken = store.open()
    found = content(store)
    if broken is not None:
        return f"an alarm without damage: {broken}"
    if reported and found not in history.states[reported:]:
        older = found in history.states
        return f"state {reported} was reported, " + ("an older one is there" if older else "what is there was never so")
    if not reported and found not in history.states[1:]:
        start = history.start and _content_of(history.start)
        if start and found != start:
            return "neither what was there before nor anything that came later"
    unsettled = {row[0] for row in store.rows("SELECT id FROM calls WHERE result IS NULL")}
    recovered = recover(store, "/nowhere", 1_000, Clocks(0, 9))
    if recovered.interrupted != len(unsettled):
        return f"{len(unsettled)} calls had not settled, {recovered.interrupted} were settled now"
    ended = Counter(call for (call,) in store.rows("SELECT call FROM events WHERE kind = 'call_ended'"))
    ((first,),) = store.rows("SELECT first_seq FROM log")
    wanted = {call for call, *_ in store.rows("SELECT id FROM calls")} if first == 1 else unsettled
    wrong = [call for call in {*ended, *wanted} if ended[call] != 1]
    return f"not one terminal record each: {wrong[:3]}" if wrong else ""


def _content_of(files: Files) -> str:
    with mounted(Disk(files)) as vfs, closing(Store(FILE, vfs)) as store:
        store.open()
        return content(store)


def _go_on(store: Store) -> str:
    """The next life: one more commit, numbered without a gap."""
    broken = store.open()
    before = store.seq
    store.commit([Change(event=rows.draft("daemon_started", 1, None, None, None, {}))])
    after = store.seq
    if broken is not None:
        return f"the chain does not hold after recovery: {broken}"
    return "" if after == before + 1 else f"event {after} follows {before}"


# ---------------------------------------------------------------- damage


def _damage(files: Files, rng: random.Random, figures: Figures, where: str) -> None:
    figures.count("damaged")
    damage = rng.choice([_zero_some, _spoil_some, _change_one, _take_one])
    sound, hurt = _events_of(files), damage(files, rng)
    try:
        found = _events_of(hurt)
    except StoreError:
        figures.count("alarms")
        return
    except Exception as error:
        figures.fail(f"{where}: {damage.__name__} came out as {error!r}")
        return
    if found[0] is not None:
        figures.count("alarms")
    elif found != sound:
        figures.fail(f"{where}: {damage.__name__} was passed over")


def _events_of(files: Files) -> tuple[BrokenChain | None, list[tuple[object, ...]]]:
    with mounted(Disk(files)) as vfs, closing(Store(FILE, vfs)) as store:
        return store.open(), list(store.rows("SELECT * FROM events ORDER BY seq"))


def _zero_some(files: Files, rng: random.Random) -> Files:
    content = files[FILE]
    start = rng.randrange(len(content) - 300)
    return {**files, FILE: content[:start] + bytes(300) + content[start + 300 :]}


def _spoil_some(files: Files, rng: random.Random) -> Files:
    content = files[FILE]
    start = rng.randrange(len(content) - 300)
    return {**files, FILE: content[:start] + rng.randbytes(300) + content[start + 300 :]}


def _change_one(files: Files, rng: random.Random) -> Files:
    return _with(files, "UPDATE events SET data = '{}', at_ms = at_ms + 1 WHERE seq = ?", rng)


def _take_one(files: Files, rng: random.Random) -> Files:
    return _with(files, "DELETE FROM events WHERE seq = ?", rng)


def _with(files: Files, statement: str, rng: random.Random) -> Files:
    """Done by somebody who knows SQLite, to any record but the last (nobody can know that there was one)."""
    disk = Disk(files)
    with mounted(disk) as vfs:
        connection = apsw.Connection(FILE, vfs=vfs)
        ((first, last),) = connection.execute("SELECT min(seq), max(seq) FROM events")
        connection.execute(statement, (rng.randrange(first, last),))
        connection.close()
    return {name: bytes(one) for name, one in disk.files.items()}


SUITE = Suite(
    passes_when="all that was reported is there, whole commits only, one terminal record a call; damage is an alarm",
    push=5_000,
    long=200_000,
    run=run,
)
