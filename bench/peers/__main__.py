"""The command: workloads one after the other, their tables as `bench` prints them; a side that broke is a line of its
table, and 1."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

from bench import _command, _machine
from bench._child import next_line, open_child
from bench._oracle import Oracle, Witness, alive, deaths, open_oracle, watched
from bench._plan import Plan
from bench._report import Count, Line, Row, Section, table
from bench.peers import _hang
from bench.peers._adapters import PEERS, can
from bench.peers._side import LIMIT_S, WARM

_SAYS_WITHIN_S, _LATER_S, _NEXT_WITHIN_S = 30.0, 1.0, 10.0


def main(words: list[str]) -> int:
    """Run; 0, or 1 when a side broke, 130 when interrupted."""
    options = _command.parse(words, "python -m bench.peers", __doc__, WORKLOADS, "one round of few calls")
    _command.end_on_sigterm()
    facts = _machine.facts()
    print(f"Python {facts['python']}, Linux {facts['kernel']}, {facts['cores']} cores, load {_machine.load()}")
    print("\n".join(f"  {name} {peer.version() or 'is not installed'}" for name, peer in PEERS.items()), flush=True)
    sections: dict[str, Section] = {}
    try:
        for name in options.only or WORKLOADS:
            section = sections[name] = WORKLOADS[name](Plan(options.quick))
            print(f"\n## {section.title}\n\n{table(section.lines)}", *section.notes, sep="\n  ", flush=True)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return _command.INTERRUPTED
    if options.json:
        _command.write(options.json, _report(facts, sections))
    return _command.DEFECT if any(section.unsafe for section in sections.values()) else 0


def _report(facts: dict[str, Any], sections: dict[str, Section]) -> dict[str, Any]:
    found = {name: {"lines": [one.plain() for one in got.lines], "notes": got.notes} for name, got in sections.items()}
    return {"machine": facts, "peers": {name: peer.version() for name, peer in PEERS.items()}, "workloads": found}


# ---------------------------------------------------------------- sides


def _open_side(*words: str) -> AbstractContextManager[Popen[bytes]]:
    return open_child("bench.peers._side", *words)


def _said(side: Popen[bytes], within_s: float = _SAYS_WITHIN_S) -> Any:
    return next_line(side, within_s)


# ---------------------------------------------------------------- the workloads


def _timed(what: str, title: str, beside: str, count: int, plan: Plan) -> Section:
    """Rounds of ``count`` calls, each side beside the one that a user has anyway."""
    names = [name for name in PEERS if can(name, what)]
    samples: dict[str, list[list[float]]] = {name: [] for name in names}
    tries = _Tries()
    for _ in range(plan.of(4, 1)):
        for name in plan.shuffled(names):
            with tries.one(f"{name}, {what}"):
                samples[name].append([])
                with _open_side(name, what, str(count)) as side:
                    samples[name][-1] = _said(side)
    rows: list[Line] = [Row(name, "ms", rounds, samples[beside]) for name, rounds in samples.items() if any(rounds)]
    return Section(title, [*rows, tries.broken()], [f"floor: {beside}", *tries.words])


def noop(plan: Plan) -> Section:
    """A warm worker is asked for nothing."""
    return _timed("noop", "warm no-op call, one at a time", "concurrent.futures", plan.of(300, 50), plan)


def command(plan: Plan) -> Section:
    """A program that ends at once."""
    return _timed("command", "`true`, output captured, under a limit of 10 s", "subprocess", plan.of(40, 10), plan)


def hang(plan: Plan) -> Section:
    """Work that does not end, under a limit of a second."""
    lines: list[Line] = []
    tries = _Tries()
    for kind, processes in _hang.KINDS.items():
        for name in (name for name in PEERS if can(name, "hang")):
            trials = []
            for _ in range(plan.of(3, 1)):
                with tries.one(f"{name}, {kind}"):
                    trials.append(_hung(name, kind, processes))
            lines += _lines(f"{kind}: {PEERS[name].bound}", processes, trials) if trials else ()
    notes = [
        "told: ms after the limit. Alive: of the processes of the work, when the caller was told, and a second later.",
        "next: whether the same pool of one worker answers the next call, after the clean-up that its line names",
    ]
    return Section(f"a hard limit of {LIMIT_S:g} s", [*lines, tries.late(), tries.broken()], [*notes, *tries.words])


def _lines(what: str, processes: int, trials: list[tuple[float, int, int, bool | None]]) -> Iterator[Line]:
    late, then, later, following = zip(*trials, strict=True)
    yield Row(f"{what}: told", "ms", [list(late)])
    yield Count("  alive when told", sum(then), processes * len(trials), None)
    yield Count("  alive a second later", sum(later), processes * len(trials), None)
    if following[0] is not None:
        yield Count("  next", sum(map(bool, following)), len(trials), None)


class _TooLateError(Exception):
    """The limit came before the work was there, which on a loaded machine tells nothing."""


class _Tries:
    """What became of sides that gave no figure. ``words``: which they were, and why."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self._all = self._late = self._broken = 0

    @contextmanager
    def one(self, what: str) -> Iterator[None]:
        """One try; a side that gives no figure is noted, and the others are run."""
        self._all += 1
        try:
            yield
        except _TooLateError as error:
            self._late += 1
            self.words.append(f"{what}: {error}")
        except (TimeoutError, RuntimeError, ValueError) as error:
            self._broken += 1
            self.words.append(f"BROKEN {what}: {error}")

    def late(self) -> Count:
        """How many told nothing."""
        return Count("tries whose work was not there in time", self._late, self._all, None)

    def broken(self) -> Count:
        """How many broke: none may."""
        return Count("tries that broke", self._broken, self._all)


def _hung(name: str, kind: str, processes: int) -> tuple[float, int, int, bool | None]:
    """(ms late, alive when told, alive a second later, whether the next call was answered). Raises _TooLateError."""
    with (
        tempfile.TemporaryDirectory(prefix="deadlined-peers-") as place,
        open_oracle(Path(place)) as oracle,
        _open_side(name, "hang", kind, oracle.path) as side,
        watched(_at_work(side, oracle, processes)) as witnesses,
    ):
        if len(witnesses) < processes:
            raise _TooLateError(f"only {len(witnesses)} of {processes} processes were there in time")
        late: float = _said(side)
        then = len(alive(witnesses))
        deaths(witnesses, _LATER_S)
        later = len(alive(witnesses))
        return late, then, later, _next(side)


def _at_work(side: Popen[bytes], oracle: Oracle, processes: int) -> list[Witness]:
    """The processes of the work, from when the side is warm until its limit is surely over."""
    if (said := _said(side)) != WARM:
        raise RuntimeError(f"{side.args!r} said {said!r}")
    return oracle.collect(processes, 2 * LIMIT_S)


def _next(side: Popen[bytes]) -> bool | None:
    """Whether the next call was answered; a side that does not even get there is killed, and was not."""
    try:
        answered: bool | None = _said(side, _NEXT_WITHIN_S)
    except TimeoutError:
        os.killpg(side.pid, signal.SIGKILL)
        return False
    return answered


WORKLOADS: dict[str, Callable[[Plan], Section]] = {"noop": noop, "command": command, "hang": hang}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
