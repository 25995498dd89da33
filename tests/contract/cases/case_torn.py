"""A child that appends records to a journal until it is killed, round after round; prints what came of it.

``python case_torn.py PATH ROUNDS SEED``. Each round forks a process that opens the journal, adds events of 1 to 100 KB
and is killed at a random moment; then the journal is opened again, one record is added, and all of it is read.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time

from supervisor.journal import rows
from supervisor.journal.store import Change, Store

_TEXT = "x" * 100_000


def append_for_ever(path: str, round_: int) -> None:
    store = Store(path)
    store.open()
    for number in range(1_000_000):
        size = 1_000 + (number * 37_171 + round_ * 7_919) % 99_000
        data = json.dumps({"round": round_, "number": number, "text": _TEXT[:size]})
        store.commit([Change(event=rows.Draft(1, "torn", None, None, None, data))])


def play(path: str, round_: int, draw: random.Random) -> None:
    child = os.fork()
    if child == 0:
        try:
            append_for_ever(path, round_)
        finally:
            os._exit(1)
    time.sleep(draw.uniform(0.001, 0.012))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def main(path: str, rounds: int, seed: int) -> None:
    draw, broken, whole = random.Random(seed), 0, 0
    for round_ in range(rounds):
        play(path, round_, draw)
        store = Store(path)
        broken += store.open() is not None
        before = store.seq
        store.commit([Change(event=rows.Draft(1, "behind", None, None, None, json.dumps({"round": round_})))])
        (last,) = store.events(before, 10)
        whole += last.seq == before + 1 and last.data == {"round": round_}
        store.close()
    store = Store(path)
    broken += store.open() is not None
    sys.stdout.write(json.dumps({"broken": broken, "whole": whole, "records": store.seq}))
    store.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
