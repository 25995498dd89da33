"""One call that runs into its deadline, watched from outside: when each of its processes was dead, when the client was
told, and who was alive at that moment. Used by every workload that kills.
"""

from __future__ import annotations

import json
import select
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench._oracle import Oracle, Witness, alive, watched
from bench._wire import BareClient
from protocol._outcomes import CallResult

_PATIENCE_S = 5.0
_WAITED_S = 10.0


class MissedError(Exception):
    """The deadline came before every process of the call had reported: on a loaded machine that tells nothing."""


@dataclass(frozen=True, slots=True)
class Kill:
    """What came of it. Milliseconds after the deadline; ``survivors``: alive when the client had its answer."""

    signalled_ms: float
    gone_ms: float
    answered_ms: float
    survivors: int
    never_gone: int
    counted: int
    result: CallResult


def play(
    client: BareClient, oracle: Oracle, tool: str, deadline_ms: int, processes: int = 1, **arguments: object
) -> Kill:
    """Run ``tool`` into its deadline; ``processes`` of it report themselves. Raises MissedError."""
    text = json.dumps({"report": oracle.path, **arguments})
    client.submit(tool, text, deadline_ms=deadline_ms)
    with watched(oracle.collect(processes, deadline_ms / 1e3)) as witnesses:
        result, answered_ns, survivors, dead = _watch(client, witnesses)
        deadline_ns = max((witness.deadline_ns for witness in witnesses), default=0)
        if len(witnesses) < processes or not deadline_ns:
            _discard(oracle)
            raise MissedError(f"{len(witnesses)} of {processes} processes reported before the deadline")
        if result.status != "killed" or result.kill is None:
            raise RuntimeError(f"{tool} was not killed: {result.summary}")
        return Kill(
            result.kill.signalled_after_ms,
            (max(dead.values(), default=answered_ns) - deadline_ns) / 1e6,
            (answered_ns - deadline_ns) / 1e6,
            survivors,
            len(alive(witnesses)),
            result.kill.killed,
            result,
        )


def _watch(client: BareClient, witnesses: Sequence[Witness]) -> tuple[CallResult, int, int, dict[int, int]]:
    """(result, when it was there, processes alive then, deaths by pid) once all is over or the patience is."""
    poll = select.poll()
    poll.register(client.fileno(), select.POLLIN)
    waiting = {witness.pidfd: witness.pid for witness in witnesses}
    for pidfd in waiting:
        poll.register(pidfd, select.POLLIN)
    dead: dict[int, int] = {}
    result, answered_ns, survivors = None, 0, 0
    until = time.monotonic() + _WAITED_S
    while (result is None or waiting) and (left_s := until - time.monotonic()) > 0:
        events = poll.poll(left_s * 1000)
        at = time.monotonic_ns()
        for descriptor, _ in events:
            if descriptor in waiting:
                poll.unregister(descriptor)
                dead[waiting.pop(descriptor)] = at
        if result is None and any(descriptor == client.fileno() for descriptor, _ in events):
            answered_ns, answers = client.settled()
            if answers:
                survivors = len(alive(witnesses))
                result = answers[0][1]
                until = min(until, time.monotonic() + _PATIENCE_S)
    if result is None:
        raise RuntimeError(f"no answer {_WAITED_S:g} s after its submit")
    return result, answered_ns, survivors, dead


def _discard(oracle: Oracle) -> None:
    """Reports that came too late belong to nobody."""
    for witness in oracle.collect(64, 0.0):
        witness.end()
