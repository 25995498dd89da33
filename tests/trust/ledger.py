"""What a client remembers of the calls it has asked for, and asks for while a daemon dies: the other side's books.

A *name* is one thing to be done, under its own delivery key; doing it writes a line with that name to one file.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from deadlined._errors import ConnectionLost, DaemonNotRunning, DaemonSilent, RequestRefused
from deadlined.client import CallHandle, Client
from protocol._outcomes import CallResult, Delivery

LINGER = "sleep 60 & setsid sleep 60 & (trap '' TERM; sleep 60) & "
"""Children that would outlive a daemon which cannot end them."""


@dataclass
class Asked:
    """One thing asked for. ``run``: that it is part of. ``call``: its id, once announced. ``told``: the result that was
    acknowledged, as bytes."""

    name: str
    tool: str
    arguments: dict[str, Any]
    detach: bool = False
    effect: bool = True
    run: str | None = None
    deadline_ms: int = 20_000
    call: str | None = None
    told: bytes | None = None

    def submit(self, client: Client) -> CallHandle:
        """Ask for it, again or for the first time: the same tool, the same arguments, the same key."""
        return client.submit(
            self.tool,
            self.arguments,
            detach=self.detach,
            key=self.name,
            run=self.run,
            deadline_ms=self.deadline_ms,
        )

    @property
    def promised(self) -> bool:
        """Whether it must be known after any kill: announced as detached, or answered as a call that may have run. (A
        refusal is nothing that was done, and a read-only call can be done again.)"""
        if (result := self.result) is None:
            return self.detach and self.call is not None
        return (self.detach or self.effect) and result.delivery is not Delivery.NOT_DELIVERED and self.binds

    @property
    def binds(self) -> bool:
        """Whether what was told holds in the next life: a disk that does not answer in time is not waited for, and the
        result says so."""
        return self.result is not None and self.result.durable is not False

    @property
    def result(self) -> CallResult | None:
        """What was acknowledged."""
        return None if self.told is None else msgspec.msgpack.decode(self.told, type=CallResult)


@dataclass
class Ledger:
    """Everything asked for in one round."""

    effects: Path
    prefix: str = ""
    asked: list[Asked] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def write(self, name: str, rng: random.Random) -> Asked:
        """Something to ask for, written down before it is asked."""
        return self.enter(self._new(name, rng))

    def write_of_run(self, name: str, run: str, rng: random.Random) -> Asked:
        """An effect of a run."""
        return self.enter(self._effect(name, rng, run))

    def enter(self, asked: Asked) -> Asked:
        """Written down."""
        with self.lock:
            self.asked.append(asked)
        return asked

    def _new(self, name: str, rng: random.Random) -> Asked:
        kind = rng.random()
        file = str(self.effects)
        if kind < 0.12:
            return Asked(name, "trust_noop", {}, effect=False)
        if kind < 0.4:
            text = f'echo "{name} $DEADLINED_IDEMPOTENCY_KEY" >> {file}; sleep 0.0{rng.randrange(5)}'
            return Asked(name, "script", {"text": text}, detach=rng.random() < 0.3)
        return self._effect(name, rng)

    def _effect(self, name: str, rng: random.Random, run: str | None = None) -> Asked:
        waits = {"before_ms": rng.randrange(15), "after_ms": rng.randrange(25)}
        arguments = {"file": str(self.effects), "name": name, **waits}
        return Asked(name, "trust_effect", arguments, detach=rng.random() < 0.4, run=run)

    def lines(self) -> Counter[str]:
        """How often each thing was done."""
        return lines_of(self.effects)


def lines_of(effects: Path) -> Counter[str]:
    """How often each thing was done that writes there."""
    text = effects.read_text() if effects.exists() else ""
    return Counter(line.split()[0] for line in text.splitlines())


def contradiction(result: CallResult, done: int) -> str:
    """Whether what is said of a thing's delivery and how often it was done do not go together."""
    fits = {
        Delivery.SUCCEEDED: done == 1,
        Delivery.NOT_DELIVERED: done == 0,
        Delivery.UNKNOWN: done <= 1,
        Delivery.FAILED_DEFINITE: False,  # nothing here fails by itself
    }
    return "" if fits[result.delivery] else f"{result.status} {result.reason}, {result.delivery}, done {done} times"


def ask_until_it_dies(socket: str, ledger: Ledger, lanes: int, most: int, rng: random.Random) -> None:
    """Several clients ask for one thing after the other until the daemon is gone, or each has had ``most``."""
    seeds = [rng.random() for _ in range(lanes)]
    with ThreadPoolExecutor(lanes) as pool:
        jobs = [pool.submit(_lane, socket, ledger, f"{ledger.prefix}l{at}", most, seeds[at]) for at in range(lanes)]
        for job in jobs:
            job.result()


def _lane(socket: str, ledger: Ledger, prefix: str, most: int, seed: float) -> None:
    rng = random.Random(seed)
    with until_it_is_gone(), Client(socket) as client:
        for number in range(most):
            asked = ledger.write(f"{prefix}n{number}", rng)
            handle = asked.submit(client)
            asked.call = handle.call
            asked.told = msgspec.msgpack.encode(handle.wait())


@contextlib.contextmanager
def until_it_is_gone() -> Iterator[None]:
    """Ends with a daemon that dies or stops: what was not told is not known. Nothing else that it says is ignored."""
    try:
        yield
    except (ConnectionLost, DaemonNotRunning, DaemonSilent):
        pass
    except RequestRefused as refused:
        if refused.error.code != "shutdown":
            raise
