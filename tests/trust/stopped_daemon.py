"""SIGSTOP of the daemon for 0.1 to 3 s while calls are under way whose deadlines pass meanwhile.

Passes when none of these is told as ok, whether its tool was still at work or had answered to nobody; none of them does
after its deadline what it would have done; their programs are gone while the daemon still stands; and calls that have
time left are ok when it goes on.
"""

from __future__ import annotations

import random
import shutil
import signal
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from deadlined._errors import DeadlinedError
from deadlined._outside import describe, marked
from deadlined.client import CallHandle, Client
from protocol._outcomes import Reason, Status
from tests.trust.daemons import PATIENT, TRUSTING, SuiteDaemon
from tests.trust.registry import Figures, Suite

LANES = 4
LONG_MS = 30_000
AT_WORK = "stops with programs at work"
KILLED_S = 0.3
"""How long after the deadline the daemon stands at least."""
LATE_MS = 1_500
"""How long after its deadline a tool would do what it must not come to: a machine may be busy, a kill is not."""


def run(count: int, seed: int) -> Figures:
    """Stop daemons ``count`` times."""
    figures = Figures()
    each = [count // LANES + (lane < count % LANES) for lane in range(LANES)]
    with ProcessPoolExecutor(LANES, get_context("spawn")) as pool:
        for found in pool.map(lane, range(LANES), each, [seed] * LANES):
            figures.add(found)
    if not figures.counts.get(AT_WORK):
        figures.fail("no program was at work in any of the stops: nothing was shown")
    return figures


def lane(number: int, count: int, seed: int) -> Figures:
    """Stop one daemon so often."""
    directory = Path(tempfile.mkdtemp(prefix="dl-"))
    figures = Figures()
    rng = random.Random(f"{seed} {number}")
    try:
        with SuiteDaemon(directory, {"spares": 4}, restart=PATIENT, quarantine=TRUSTING) as daemon:
            daemon.start()
            for turn in range(count):
                figures.tried += 1
                try:
                    wrong = _once(daemon, directory / f"late{turn}", rng, figures)
                except (DeadlinedError, TimeoutError) as error:
                    wrong = f"{error!r}"
                if wrong:
                    figures.fail(f"lane {number}, stop {turn} of seed {seed}: {wrong}")
            if code := daemon.stop():
                figures.fail(f"lane {number} of seed {seed}: it exited {code}: {daemon.words()}")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return figures


def _once(daemon: SuiteDaemon, late: Path, rng: random.Random, figures: Figures) -> str:
    assert daemon.process is not None
    deadline_ms = rng.randrange(300, 700)
    mark = f"6{rng.randrange(10**9):09}"
    with Client(daemon.socket) as client:
        due = time.monotonic() + deadline_ms / 1_000
        overdue = [
            client.submit("script", {"text": f"setsid sleep {mark} & sleep {mark}"}, deadline_ms=deadline_ms),
            client.submit(
                "trust_effect",
                {"file": str(late), "name": "late", "before_ms": deadline_ms + LATE_MS},
                deadline_ms=deadline_ms,
            ),
            client.submit("trust_sleep", {"ms": deadline_ms * 9 // 10}, deadline_ms=deadline_ms),
        ]
        in_time = client.submit("trust_sleep", {"ms": 20}, deadline_ms=LONG_MS)
        while not (begun := len(marked(mark)) > 1) and time.monotonic() < due - 0.1:
            time.sleep(0.01)
        daemon.process.send_signal(signal.SIGSTOP)
        figures.count(AT_WORK, begun)
        stopped_s = max(due + KILLED_S - time.monotonic(), 0.1 + 2.9 * rng.random() ** 2)
        time.sleep(stopped_s)
        left = [describe(process) for process in marked(mark)]
        daemon.process.send_signal(signal.SIGCONT)
        wrong = [f"alive while the daemon stands: {left}"] if left else []
        wrong += [what for what in map(_overdue, overdue) if what]
        if (result := in_time.wait(LONG_MS / 1_000)).status is not Status.OK:
            wrong.append(f"it had time and ended {result.status} {result.reason}: {result.summary}")
    figures.count("ms of standing", round(stopped_s * 1_000))
    figures.count("overdue calls", len(overdue))
    if late.exists():
        wrong.append("a tool did its work after its deadline")
    return "; ".join(wrong)


def _overdue(handle: CallHandle) -> str:
    """Ok is what was heard in time: a short call on a slow machine may be over before the daemon stands."""
    result = handle.wait(LONG_MS / 1_000)
    timing = result.timing
    if result.reason is Reason.TIME_BUDGET or (
        result.status is Status.OK and timing.duration_ms <= timing.deadline_ms and not timing.overrun_ms
    ):
        return ""
    return f"{result.tool} was overdue and ended {result.status} {result.reason}: {result.summary}, {timing}"


SUITE = Suite(
    passes_when="no overdue call is ok, none works on after its deadline, none lives while the daemon stands",
    push=30,
    long=500,
    run=run,
)
