"""What a reader of the log is told, with a journal that moves while it is asked. (Real ones: tests/contract.)"""

from __future__ import annotations

from typing import Any

from protocol import _client_messages as cm
from protocol._events import Event
from supervisor.readers import EventReaders


def event(seq: int) -> Event:
    return Event(seq, 0, "call_ended", "c_1", None, 0, {}, "")


class Moving:
    """A journal that commits one more event between the question and the answer."""

    def __init__(self, found: list[Event], seq: int) -> None:
        self._found, self.seq = found, seq

    async def wait_moved(self, after: int) -> None:
        pass

    async def events(self, after: int, limit: int, call: str | None, uid: int | None, run: str | None) -> list[Event]:
        self.seq += 1
        return [one for one in self._found if run in (None, one.run)][:limit]


class Root:
    uid = 0


async def told(found: list[int], seq: int, limit: int = 100, after: int = 0) -> tuple[list[int], int]:
    journal: Any = Moving([event(number) for number in found], seq)
    asker: Any = Root()
    answer = await EventReaders(journal)._found(asker, cm.ReadEvents(id=1, after=after, limit=limit))
    return [one.seq for one in answer.events], answer.last


async def test_what_was_committed_while_the_log_was_read_is_not_told_again() -> None:
    assert await told([4, 6], seq=5) == ([4, 6], 6)


async def test_what_others_calls_have_added_is_passed_over_for_good() -> None:
    assert await told([4], seq=5) == ([4], 5)
    assert await told([], seq=5) == ([], 5)
    assert await told([], seq=5, after=9) == ([], 9)


async def test_a_reader_of_a_run_is_told_of_that_run_alone() -> None:
    journal: Any = Moving([event(1), Event(2, 0, "step_begun", None, "r_1", 0, {}, "")], 3)
    asker: Any = Root()
    answer = await EventReaders(journal)._found(asker, cm.ReadEvents(id=1, run="r_1"))
    assert ([one.seq for one in answer.events], answer.last) == ([2], 3)


async def test_a_full_answer_goes_on_where_it_ends() -> None:
    assert await told([4, 5, 7], seq=9, limit=2) == ([4, 5], 5)
