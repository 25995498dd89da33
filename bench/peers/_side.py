"""One peer in one round, as a process of its own: ``PEER noop N``, ``PEER command N``, ``PEER hang KIND REPORT``.

Says its samples in JSON, one line each time somebody waits for it, and leaves when stdin is closed; at once, whatever
hangs in a pool of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from typing import Any

from bench.peers._adapters import PEERS

LIMIT_S = 1.0
WARM = "warm"
_NOOP_S, _NEXT_S = 10.0, 5.0
_WARM_UP = 10


def main(words: list[str]) -> None:
    """See the module."""
    peer, what, *rest = words
    with PEERS[peer]() as side:
        if what == "hang":
            _hung(side, *rest)
        else:
            true = [shutil.which("true") or "/bin/true"]
            _say(_samples((lambda: side.noop(_NOOP_S)) if what == "noop" else lambda: side.command(true), int(rest[0])))
        sys.stdin.read()
    sys.stdout.flush()
    os._exit(0)


def _samples(way: Callable[[], object], count: int) -> list[float]:
    """Milliseconds of each."""
    for _ in range(min(_WARM_UP, count)):
        way()
    samples = []
    for _ in range(count):
        began = time.monotonic_ns()
        way()
        samples.append((time.monotonic_ns() - began) / 1e6)
    return samples


def _hung(side: Any, kind: str, report: str) -> None:
    _say(WARM)
    began = time.monotonic_ns()
    side.hang(kind, report, LIMIT_S)
    _say((time.monotonic_ns() - began) / 1e6 - LIMIT_S * 1e3)
    side.tidy()
    _say(_answers(side) if hasattr(side, "noop") else None)


def _answers(side: Any) -> bool:
    """Whether the next call is answered."""
    try:
        side.noop(_NEXT_S)
    except Exception:  # noqa: BLE001  # each peer has its own
        return False
    return True


def _say(what: object) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
