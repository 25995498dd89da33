from __future__ import annotations

from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from protocol import Delivery, Reason, Status
from protocol._contracts import Contract
from protocol._events import EventKind
from protocol._worker_messages import Ended
from supervisor.core.call import Death, Settle
from supervisor.core.intake import Judged, Refusal
from supervisor.core.quarantine import QuarantineSettings
from supervisor.trouble import Trouble, key_of

QUICK = QuarantineSettings(warn_keys=1, serial_keys=2, breaker_keys=3)


def judged(arguments: str = "{}", contract: Contract | None = None, **more: Any) -> Judged:
    return Judged("t", contract or Contract(), "bare", arguments, 0, 0, 0, **more)


def ended(status: Status, reason: Reason | None, delivery: Delivery = Delivery.UNKNOWN, died: bool = True) -> Settle:
    death = Death(1, 1, 2, 1) if died else None
    return Settle(status, reason, delivery, 1, "tool", None if died else Ended(1, "ok"), death)


CRASHED = ended(Status.CRASHED, Reason.WORKER_LOST)
HUNG = ended(Status.KILLED, Reason.TIME_BUDGET)
GOOD = ended(Status.OK, None, Delivery.SUCCEEDED, died=False)


class Told:
    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, kind: EventKind, *_: object, **data: Any) -> None:
        self.events.append((kind.value, data))


def made(settings: QuarantineSettings | None = None) -> tuple[Trouble, Told]:
    told = Told()
    return Trouble(settings or QuarantineSettings(), told), told


def refusal(trouble: Trouble, call: Judged) -> str:
    with pytest.raises(Refusal) as refused:
        trouble.check(call)
    assert refused.value.reason is Reason.POISON_CALL
    return str(refused.value)


def test_a_call_that_lost_its_worker_twice_is_refused_with_the_reason_and_the_time():
    trouble, told = made()
    for _ in range(2):
        trouble.check(judged())
        trouble.settled(judged(), CRASHED)
    said = refusal(trouble, judged())
    assert "its worker was lost 2 times within 10 m 00 s" in said
    assert "for another 10 m 00 s" in said
    trouble.check(judged('{"other": 1}'))
    ((kind, data),) = told.events
    assert (kind, data["measure"], data["tool"], len(data["key"])) == ("quarantined", "poison", "t", 16)


def test_the_same_arguments_are_the_same_call_however_they_are_written():
    assert key_of(judged('{"a": 1, "b": [2]}')) == key_of(judged('{"b":[2],"a":1}'))
    assert len({key_of(judged(text)) for text in ('{"a": 1}', '{"a": "1"}', '{"a": 2}', "{}")}) == 4
    assert key_of(judged()) != key_of(msgspec.structs.replace(judged(), tool="other"))


@pytest.mark.parametrize(
    "harmless",
    [
        ended(Status.CANCELLED, Reason.CLIENT),
        ended(Status.KILLED, Reason.OUTPUT_LIMIT),
        ended(Status.CRASHED, Reason.WORKER_LOST, Delivery.NOT_DELIVERED),
        ended(Status.KILLED, Reason.TIME_BUDGET, Delivery.NOT_DELIVERED),
    ],
)
def test_what_somebody_wanted_and_what_never_began_counts_for_nothing(harmless):
    trouble, told = made(QuarantineSettings(poison_losses=1, warn_keys=1, serial_keys=1, breaker_keys=1))
    assert trouble.settled(judged(), harmless) is None
    trouble.check(judged())
    assert told.events == []


@pytest.mark.parametrize("reason", [Reason.TIME_BUDGET, Reason.IDLE, Reason.MEMORY_LIMIT])
def test_what_a_limit_ended_counts_against_the_tool_level_by_level(reason):
    trouble, _ = made(QUICK)
    notices = [trouble.settled(judged(f'{{"n": {n}}}'), ended(Status.KILLED, reason)) for n in range(2)]
    assert "1 call of it hung" in notices[0].text
    assert "nothing is done about it yet" in notices[0].text
    assert "one at a time" in notices[1].text
    assert trouble.lock_of(judged()) is not None
    trouble.check(judged())
    trouble.settled(judged('{"n": 2}'), ended(Status.KILLED, reason))
    assert "its calls are refused for another" in refusal(trouble, judged())


def test_a_tool_whose_arguments_are_the_program_is_not_held_responsible():
    trouble, _ = made(QUICK)
    contract = Contract(failure_is_feedback=True)
    for number in range(5):
        assert trouble.settled(judged(f'{{"n": {number}}}', contract), HUNG) is None
    assert trouble.lock_of(judged()) is None
    trouble.check(judged())


def test_a_good_end_clears_what_was_counted():
    trouble, _ = made()
    trouble.settled(judged(), CRASHED)
    assert trouble.settled(judged(), GOOD) is None
    trouble.settled(judged(), CRASHED)
    trouble.check(judged())


def test_the_command_after_a_kill_is_not_counted():
    trouble, _ = made()
    trouble.settled(judged(), CRASHED)
    trouble.settled(judged(after_kill=True), CRASHED)
    trouble.check(judged())


def test_the_command_after_a_kill_clears_nothing():
    trouble, _ = made()
    trouble.settled(judged(), CRASHED)
    trouble.settled(judged(after_kill=True), GOOD)
    trouble.settled(judged(), CRASHED)
    refusal(trouble, judged())


async def test_a_quarantine_that_ends_by_itself_is_told_in_time():
    trouble, told = made(QuarantineSettings(poison_losses=1, poison_ms=30))
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trouble.run)
            await trio.testing.wait_all_tasks_blocked()
            trouble.settled(judged(), CRASHED)
            while len(told.events) < 2:
                await trio.sleep(0.005)
            nursery.cancel_scope.cancel()
    assert [kind for kind, _ in told.events] == ["quarantined", "quarantine_lifted"]
    trouble.check(judged())
