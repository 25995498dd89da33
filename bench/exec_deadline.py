"""``deadlined exec`` with a tree that escapes: how late its deadline is, and what is left of it, also when the command
line is stopped or killed meanwhile. Survivors are counted from outside, through pidfds taken while they ran.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench._daemon import child_environment, end_with_parent
from bench._oracle import Witness, alive, deaths, tree, watched
from bench._plan import Plan
from bench._report import Count, Row, Section, Target

_TREE = "setsid sleep 100 & (sleep 100 &) ; sleep 100"
_PROCESSES = 6
"""The command line, the call's first process, the shell and three sleeping ones."""
_PATIENCE_S = 5.0


def run(plan: Plan) -> Section:
    """See the module."""
    rounds = plan.of(10, 2)
    results = [_killed() for _ in range(rounds)]
    late, held = zip(*(_stopped() for _ in range(rounds)), strict=True)
    gone, left = zip(*(_shot() for _ in range(rounds)), strict=True)
    kills = [result["kill"] for result in results]
    return Section(
        "deadlined exec --deadline 1s with a tree that escapes (ms after the deadline, as its receipt says)",
        [
            Row("SIGKILL sent", "ms", [[kill["signalled_after_ms"] for kill in kills]]),
            Row("all gone, confirmed", "ms", [[kill["confirmed_after_ms"] for kill in kills]]),
            Row("overrun_ms", "ms", [[result["timing"]["overrun_ms"] for result in results]], (), Target(most=20)),
            Count("processes left at the answer", sum(result["left"] for result in results), 4 * rounds),
            Row("command line SIGSTOPped: SIGKILL sent", "ms", [list(late)]),
            Count("  processes left while it is stopped", sum(held), (_PROCESSES - 1) * rounds),
            Row("command line SIGKILLed: nothing left", "ms", [list(gone)], (), Target(most=50)),
            Count("  processes left after 5 s", sum(left), _PROCESSES * rounds),
        ],
    )


def _killed() -> dict[str, Any]:
    with _open_call("1s", "--json") as (process, witnesses):
        answer, _ = process.communicate()
        if process.returncode != 124:
            raise RuntimeError(f"exec exits {process.returncode} at its deadline")
        result: dict[str, Any] = json.loads(answer)
        return {**result, "left": len(alive(witnesses))}


def _stopped() -> tuple[float, int]:
    with _open_call("1s", "--json") as (process, witnesses):
        process.send_signal(signal.SIGSTOP)
        call = [witness for witness in witnesses if witness.pid != process.pid]
        deaths(call, _PATIENCE_S)
        left = len(alive(call))
        process.send_signal(signal.SIGCONT)
        answer, _ = process.communicate()
        return json.loads(answer)["kill"]["signalled_after_ms"], left


def _shot() -> tuple[float, int]:
    with _open_call("1m") as (process, witnesses):
        shot_ns = time.monotonic_ns()
        process.kill()
        dead = deaths(witnesses, _PATIENCE_S)
        return (max(dead.values()) - shot_ns) / 1e6, len(alive(witnesses))


@contextmanager
def _open_call(deadline: str, *options: str) -> Iterator[tuple[subprocess.Popen[bytes], list[Witness]]]:
    """A call whose whole tree runs, under watch; what is left of it is killed with the block."""
    words = [sys.executable, "-m", "deadlined", "exec", "--deadline", deadline, *options, "--", "sh", "-c", _TREE]
    process = subprocess.Popen(
        words,
        env=child_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        preexec_fn=end_with_parent,  # noqa: PLW1509  # the bench has one thread
    )
    with process, watched(_wait_for_tree(process.pid)) as witnesses:
        try:
            yield process, witnesses
        finally:
            process.kill()


def _wait_for_tree(root: int) -> list[Witness]:
    until = time.monotonic() + _PATIENCE_S
    while len(found := tree(root)) < _PROCESSES:
        for witness in found:
            os.close(witness.pidfd)
        if time.monotonic() > until:
            raise RuntimeError(f"only {len(found)} of {_PROCESSES} processes of the call run")
        time.sleep(0.005)
    return found
