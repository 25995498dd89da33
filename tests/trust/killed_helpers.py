"""kill -9 of whatever a daemon has started (killer, zygotes, workers, programs of calls) while calls run.

Passes when the daemon lives, every call is answered once, what is said of each goes together with what it did, nothing
overdue is ok, and afterwards the daemon works as before and leaves nobody.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import msgspec

from deadlined._errors import DeadlinedError
from deadlined._outside import describe
from deadlined.client import Client
from protocol._outcomes import Status
from tests.trust.daemons import PATIENT, TRUSTING, SuiteDaemon
from tests.trust.ledger import Ledger, contradiction
from tests.trust.orphans import adopt_orphans, below_us
from tests.trust.registry import Figures, Suite
from tests.trust.victims import kill_a_helper, killed_tool

LANES = 2
CLIENTS = 6
EVERY_S = 0.06
ANSWERED_WITHIN_S = 40.0
WELL_WITHIN_S = 30.0
OVERDUE = 0.15
"""Share of the calls that cannot end before their deadline."""


def run(count: int, seed: int) -> Figures:
    """Kill ``count`` helpers of two daemons."""
    figures = Figures()
    each = [count // LANES + (lane < count % LANES) for lane in range(LANES)]
    with ProcessPoolExecutor(LANES, get_context("spawn"), adopt_orphans) as pool:
        for found in pool.map(lane, range(LANES), each, [seed] * LANES):
            figures.add(found)
    return figures


def lane(number: int, count: int, seed: int) -> Figures:
    """So many deaths around one daemon."""
    directory = Path(tempfile.mkdtemp(prefix="dl-"))
    figures, where = Figures(), f"lane {number} of seed {seed}"
    ledger = Ledger(directory / "effects", "h")
    try:
        with SuiteDaemon(directory, {"spares": 2}, restart=PATIENT, quarantine=TRUSTING) as daemon:
            daemon.start()
            over = threading.Event()
            with ThreadPoolExecutor(CLIENTS) as pool:
                asking = [pool.submit(_ask, daemon.socket, ledger, f"h{at}", over, where) for at in range(CLIENTS)]
                try:
                    _kill(daemon, count, random.Random(f"{seed} {number}"), figures)
                finally:
                    over.set()
                wrong = [what for job in asking for what in job.result()]
            wrong += _judge(ledger, figures) + works_on(daemon)
        wrong += [f"left: {describe(process)}" for process in below_us()]
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    for what in wrong:
        figures.fail(f"{where}: {what}")
    return figures


def _kill(daemon: SuiteDaemon, count: int, rng: random.Random, figures: Figures) -> None:
    while figures.tried < count:
        time.sleep(EVERY_S * rng.random() * 2)
        if kind := kill_a_helper(daemon.pid, rng):
            figures.tried += 1
            figures.count(f"{kind}s killed")


def _ask(socket: str, ledger: Ledger, prefix: str, over: threading.Event, where: str) -> list[str]:
    rng = random.Random(f"{where} {prefix}")
    number = 0
    try:
        with Client(socket) as client:
            while not over.is_set():
                number += 1
                if rng.random() < OVERDUE:
                    result = client.submit("trust_sleep", deadline_ms=60).wait(ANSWERED_WITHIN_S)
                    if result.status is Status.OK:
                        return [f"overdue and ok: {result}"]
                    continue
                asked = ledger.write(f"{prefix}n{number}", rng)
                asked.detach = False
                asked.told = msgspec.msgpack.encode(asked.submit(client).wait(ANSWERED_WITHIN_S))
    except (DeadlinedError, TimeoutError) as error:
        return [f"call {number} of {prefix}: {error!r}"]
    return []


def _judge(ledger: Ledger, figures: Figures) -> list[str]:
    lines, wrong = ledger.lines(), []
    for asked in ledger.asked:
        result = asked.result
        if result is None:
            continue  # said already: the client heard no answer
        figures.count(f"calls {result.status}")
        if asked.effect and (what := contradiction(result, lines[asked.name])) and not killed_tool(result):
            wrong.append(f"{asked.name} ({asked.tool}): {what}")
    return wrong


def works_on(daemon: SuiteDaemon) -> list[str]:
    """It works again, and stops well."""
    assert daemon.process is not None
    if daemon.process.poll() is not None:
        return [f"the daemon ended: {daemon.words()}"]
    wrong: list[str] = []
    until = time.monotonic() + WELL_WITHIN_S
    while refused := _refused(daemon.socket):
        if time.monotonic() > until:
            wrong.append(f"no call succeeds {WELL_WITHIN_S:g} s later: {refused}")
            break
        time.sleep(0.2)
    if code := daemon.stop():
        wrong.append(f"it exited {code}: {daemon.words()}")
    return wrong


def _refused(socket: str) -> str:
    """What the first call that does not succeed says, and what the daemon says of itself."""
    with Client(socket) as client:
        for tool, arguments in (("trust_noop", {}), ("shell", {"argv": ["true"]})):
            result = client.call(tool, arguments)
            if result.status is not Status.OK:
                return f"{tool}: {result.status} {result.reason}: {result.summary}; {client.status().degraded}"
    return ""


SUITE = Suite(
    passes_when="the daemon lives, one answer a call that fits what it did, nothing overdue is ok, nobody is left",
    push=100,
    long=20_000,
    run=run,
)
