from __future__ import annotations

import msgspec
import pytest

from protocol import Delivery, Isolation, Reason, Status
from protocol._worker_messages import Reaped
from supervisor.core.advice import next_action
from supervisor.core.call import Death, Settle
from supervisor.core.call_facts import Facts

MS = 1_000_000
FACTS = Facts(
    "c", "shell", 0, 3_000 * MS, 3_000, 1 * MS, "pidns", Isolation("contain", "contain"), ["pidns"], "k", only_call=True
)


def killed(reason: Reason = Reason.TIME_BUDGET, cpu_ms: int = 5, confirmed: bool = True) -> Settle:
    death = Death(3_000 * MS, 3_000 * MS, 3_001 * MS if confirmed else None, 1, Reaped(1, None, 9, cpu_ms, 1))
    return Settle(Status.KILLED, reason, Delivery.UNKNOWN, 3_001 * MS, "tool", None, death)


def advice(settle: Settle, **fields: object) -> str:
    return next_action(msgspec.structs.replace(FACTS, **fields), settle) or ""


def test_a_server_that_printed_where_it_listens_was_alive_and_is_to_be_detached():
    said = advice(killed(), printed_bytes=45, silent_ms=2_900)
    assert "healthy and still running" in said
    assert "printed 45 B, the last of it 2.9 s before" in said
    assert "detach" in said
    assert "Do not repeat it" in said


def test_a_job_that_computed_was_alive_too():
    assert "healthy and computing" in advice(killed(cpu_ms=2_800))
    assert "and was computing" in advice(killed(cpu_ms=2_800), printed_bytes=1, silent_ms=5)


def test_the_start_of_a_program_is_no_computing():
    assert "computing" not in advice(killed(cpu_ms=290))
    assert "computing" not in advice(killed(cpu_ms=90), deadline_ns=300 * MS, started_ns=1 * MS)
    assert "computing" in advice(killed(cpu_ms=310))


def test_what_a_worker_computed_for_others_is_not_held_against_a_call():
    assert "computing" not in advice(killed(cpu_ms=2_800), only_call=False)


def test_silence_is_told_as_silence():
    said = advice(killed())
    assert "printed nothing" in said
    assert "healthy" not in said


def test_a_call_that_may_have_changed_something_is_looked_after_first():
    assert "half written" in advice(killed())
    assert "half written" not in advice(killed(), read_only=True)


def test_a_kill_that_is_not_confirmed_comes_first():
    assert advice(killed(confirmed=False)).startswith("Its processes are killed and not dead yet")


@pytest.mark.parametrize(
    "settle",
    [
        Settle(Status.OK, None, Delivery.SUCCEEDED, 1),
        Settle(Status.NOT_EXECUTED, Reason.TIME_BUDGET, Delivery.NOT_DELIVERED, 1),
        Settle(Status.CANCELLED, Reason.CLIENT, Delivery.UNKNOWN, 1),
    ],
)
def test_where_the_status_says_it_all_there_is_no_advice(settle):
    assert advice(settle) == ""


def test_a_call_in_quarantine_is_to_be_left():
    refused = Settle(Status.NOT_EXECUTED, Reason.POISON_CALL, Delivery.NOT_DELIVERED, 1)
    assert "Leave it for so long" in advice(refused)


def test_other_limits_speak_of_no_deadline():
    assert "deadline" not in advice(killed(Reason.OUTPUT_LIMIT))
