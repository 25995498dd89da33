"""What a model may do next about a call that did not end by itself, in a sentence or two. Pure.

A model that reads "killed at its deadline" runs the same command again. What it lacks is what the call looked like when
it was ended: alive and printing (a server, or a long job), computing, or waiting in silence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol._deadlines import NS_PER_MS
from protocol._outcomes import Delivery, Reason, Status
from protocol._quantities import say_duration, say_size

if TYPE_CHECKING:
    from supervisor.core.call import Settle
    from supervisor.core.call_facts import Facts

_COMPUTING, _STARTED_MS = 0.1, 100
"""From this share of its time on the processor a call was computing (a busy machine gives no more), and more than a
program needs to start."""
_HEALTHY = "It was healthy and still running when its deadline came"
_DETACH = (
    "Do not repeat it as it is: what goes on for long, or never ends by itself (a server, a watcher), is submitted with"
    " detach and a deadline that is long enough, and its output can be read while it runs"
)
_HALF_DONE = "It was ended in the middle: files may be half written, locks left behind. Look before you repeat it"
_LEAVE_IT = "Leave it for so long: sent again before, it is refused again. Change the arguments, or use another tool."
WAIT = "Wait until a person has decided. Nothing has run; do not try to get the same done in another way."
"""For a call that a person is asked about."""
AT_ONCE = "Others of the run are running: the same may be called again when one of them has ended."
_REFUSED = {
    Reason.APPROVAL_REQUIRED: WAIT,
    Reason.APPROVAL_REJECTED: "A person has said no. Do not try the same in another way: do something else, or stop.",
    Reason.POISON_CALL: _LEAVE_IT,
    Reason.INVALID_ARGUMENTS: "Correct the arguments as the message says; as they are they will be refused again.",
    Reason.UNKNOWN_TOOL: "Use one of the tools that there are.",
    Reason.POLICY_DENIED: "Do not try the same in another way: it is not allowed. Go on without it, or ask a person.",
    Reason.SANDBOX_DENIED: "Do not try the same in another way: it is out of bounds. Go on without, or ask a person.",
    Reason.BUDGET: "Call no more tools: conclude with what is known, and say what is missing.",
}
NOTHING_FOUND = (
    "Nothing was found. The same question in other words will hardly find more: widen or narrow it, look elsewhere, or"
    " ask the user for what is missing."
)
_NOT_DEAD = "Its processes are killed and not dead yet (kill.survivors): what they hold is not free"


def next_action(facts: Facts, settle: Settle) -> str | None:
    """Advice on a call that was killed, lost, or kept away, or found nothing; None where the status says it all."""
    if settle.status is Status.NO_RESULT:
        return NOTHING_FOUND
    if settle.passes:
        return AT_ONCE if settle.reason is Reason.BUDGET else None
    if settle.reason in _REFUSED and settle.delivery is Delivery.NOT_DELIVERED:
        return _REFUSED[settle.reason]
    if (
        settle.phase == "backoff"
        or settle.delivery is not Delivery.UNKNOWN
        or settle.status not in (Status.KILLED, Status.CRASHED)
    ):
        return None
    said = []
    if settle.death is not None and settle.death.confirmed_ns is None:
        said.append(_NOT_DEAD)
    if settle.reason is Reason.TIME_BUDGET:
        said += [how_it_was(facts, settle), _DETACH]
    if not facts.read_only:
        said.append(_HALF_DONE)
    return ". ".join(said) + "." if said else None


def how_it_was(facts: Facts, settle: Settle) -> str:
    """What was seen of a call when its deadline came."""
    if facts.printed_bytes:
        when = f", the last of it {say_duration(facts.silent_ms)} before" if facts.silent_ms is not None else ""
        said = f"{_HEALTHY}: it had printed {say_size(facts.printed_bytes)}{when}"
        return said + (" and was computing" if _was_computing(facts, settle) else "")
    if _was_computing(facts, settle):
        return "It was healthy and computing when its deadline came, and had printed nothing"
    return (
        "It was still running when its deadline came, and had printed nothing:"
        " it waited for something (input, a lock, the network), or sleeps"
    )


def _was_computing(facts: Facts, settle: Settle) -> bool:
    """Whether its worker, which served no other call, spent a good part of the time on the processor."""
    reaped = settle.death.reaped if settle.death else None
    if reaped is None or facts.started_ns is None or not facts.only_call:
        return False
    ran_ms = (facts.deadline_ns - facts.started_ns) / NS_PER_MS
    return reaped.cpu_ms >= max(_STARTED_MS, _COMPUTING * ran_ms)
