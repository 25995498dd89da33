from __future__ import annotations

import os
from typing import Any

from protocol._events import EventKind
from supervisor.core.quarantine import QuarantineSettings
from supervisor.leaks import Leaks
from supervisor.trouble import Trouble


class MadeUp:
    """A worker whose process is this one."""

    number, slot, pid, due_ns, call, kill_refused = 1, 7, os.getpid(), 1, None, None


def made() -> tuple[Leaks, list[EventKind], Any]:
    told: list[EventKind] = []

    def note(kind: EventKind, *_: object, **__: object) -> None:
        told.append(kind)

    return Leaks(Trouble(QuarantineSettings(), note), note), told, MadeUp()


async def test_a_kill_that_is_not_confirmed_is_told_with_who_is_left_and_again_when_it_is():
    leaks, told, worker = made()
    leaks.enter(worker)
    assert os.getpid() in [survivor.pid for survivor in await leaks.look(worker)]
    (row,) = leaks.rows()
    assert (row.kind, row.slot) == ("slot", 7)
    assert f"pid {os.getpid()} of uid {os.geteuid()}" in row.text
    leaks.gone(worker)
    assert leaks.rows() == []
    assert told == [EventKind.KILL_UNCONFIRMED, EventKind.KILL_CONFIRMED]
    assert leaks.total == 1


async def test_one_that_dies_before_anybody_has_looked_is_not_told_of_and_its_slot_is_free():
    leaks, told, worker = made()
    leaks.enter(worker)
    leaks.gone(worker)
    assert await leaks.look(worker) == []
    assert (leaks.rows(), told) == ([], [])


def test_nobody_had_doubted_most_deaths():
    leaks, told, worker = made()
    leaks.gone(worker)
    assert (leaks.total, told) == (0, [])


async def test_who_could_not_be_signalled_is_said():
    leaks, _, worker = made()
    worker.kill_refused = "Operation not permitted"
    leaks.enter(worker)
    await leaks.look(worker)
    assert "could not be signalled (Operation not permitted)" in leaks.rows()[0].text
