"""The command: workloads one after the other, their tables as `bench` prints them. Owns the sides' processes."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from bench import _machine
from bench._daemon import REPOSITORY, child_environment, end_with_parent
from bench._oracle import Oracle, Witness, alive, deaths, open_oracle, watched
from bench._plan import Plan
from bench._report import Count, Line, Row, Section, table
from bench.peers import _hang
from bench.peers._adapters import PEERS, can
from bench.peers._side import LIMIT_S, WARM

_SAYS_WITHIN_S, _CLOSES_WITHIN_S, _LATER_S, _NEXT_WITHIN_S = 30.0, 20.0, 1.0, 10.0
_OUT = REPOSITORY / "bench" / "out"
_INTERRUPTED = 130


def main(words: list[str]) -> int:
    """Run; 0, or 130 when interrupted."""
    options = _parse(words)
    signal.signal(signal.SIGTERM, _stop)
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
        return _INTERRUPTED
    if options.json:
        _write(options.json, facts, sections)
    return 0


def _parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round of few calls")
    parser.add_argument("--only", action="append", choices=WORKLOADS, metavar="WORKLOAD", help=", ".join(WORKLOADS))
    parser.add_argument("--json", metavar="FILE", help="write every figure to bench/out/FILE as well")
    return parser.parse_args(words)


def _stop(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _write(file: str, facts: dict[str, Any], sections: dict[str, Section]) -> None:
    found = {name: [line.plain() for line in section.lines] for name, section in sections.items()}
    versions = {name: peer.version() for name, peer in PEERS.items()}
    _OUT.mkdir(exist_ok=True)
    report = {"machine": facts, "peers": versions, "workloads": found}
    (_OUT / Path(file).name).write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")


# ---------------------------------------------------------------- the workloads


def _timed(what: str, title: str, beside: str, count: int, plan: Plan) -> Section:
    """Rounds of ``count`` calls, each side beside the one that a user has anyway."""
    names = [name for name in PEERS if can(name, what)]
    samples: dict[str, list[list[float]]] = {name: [] for name in names}
    for _ in range(plan.of(4, 1)):
        for name in plan.shuffled(names):
            with _open_side(name, what, str(count)) as side:
                samples[name].append(_said(side))
    rows: list[Line] = [Row(name, "ms", rounds, samples[beside]) for name, rounds in samples.items()]
    return Section(title, rows, [f"floor: {beside}"])


def noop(plan: Plan) -> Section:
    """A warm worker is asked for nothing."""
    return _timed("noop", "warm no-op call, one at a time", "concurrent.futures", plan.of(300, 50), plan)


def command(plan: Plan) -> Section:
    """A program that ends at once."""
    return _timed("command", "`true`, output captured, under a limit of 10 s", "subprocess", plan.of(40, 10), plan)


def hang(plan: Plan) -> Section:
    """Work that does not end, under a limit of a second."""
    lines: list[Line] = []
    for kind, processes in _hang.KINDS.items():
        for name in (name for name in PEERS if can(name, "hang")):
            tried = [_tried(name, kind, processes) for _ in range(plan.of(3, 1))]
            if trials := [trial for trial in tried if trial is not None]:
                lines += _lines(f"{kind}: {PEERS[name].bound}", processes, trials)
    notes = [
        "told: ms after the limit. Alive: of the processes of the work, when the caller was told, and a second later.",
        "next: whether the same pool of one worker answers the next call, after the clean-up that its line names",
    ]
    return Section(f"a hard limit of {LIMIT_S:g} s", lines, notes)


def _lines(what: str, processes: int, trials: list[tuple[float, int, int, bool | None]]) -> Iterator[Line]:
    late, then, later, following = zip(*trials, strict=True)
    yield Row(f"{what}: told", "ms", [list(late)])
    yield Count("  alive when told", sum(then), processes * len(trials), None)
    yield Count("  alive a second later", sum(later), processes * len(trials), None)
    if following[0] is not None:
        yield Count("  next", sum(map(bool, following)), len(trials), None)


def _tried(name: str, kind: str, processes: int) -> tuple[float, int, int, bool | None] | None:
    """As `_hung`; a side that breaks is told of, and the others are run."""
    try:
        return _hung(name, kind, processes)
    except (TimeoutError, RuntimeError) as error:
        print(f"  BROKEN {name}, {kind}: {error}", flush=True)
        return None


def _hung(name: str, kind: str, processes: int) -> tuple[float, int, int, bool | None] | None:
    """(ms late, alive when told, alive a second later, whether the next call was answered); None: the limit came before
    the work was there, which on a loaded machine tells nothing."""
    with (
        tempfile.TemporaryDirectory(prefix="deadlined-peers-") as place,
        open_oracle(Path(place)) as oracle,
        _open_side(name, "hang", kind, oracle.path) as side,
        watched(_at_work(side, oracle, processes)) as witnesses,
    ):
        if len(witnesses) < processes:
            print(f"  {name}, {kind}: only {len(witnesses)} of {processes} processes were there in time", flush=True)
            return None
        late: float = _said(side)
        then = len(alive(witnesses))
        deaths(witnesses, _LATER_S)
        later = len(alive(witnesses))
        return late, then, later, _next(side)


def _at_work(side: subprocess.Popen[bytes], oracle: Oracle, processes: int) -> list[Witness]:
    """The processes of the work, from when the side is warm until its limit is surely over."""
    if (said := _said(side)) != WARM:
        raise RuntimeError(f"{side.args} said {said!r}")
    return oracle.collect(processes, 2 * LIMIT_S)


def _next(side: subprocess.Popen[bytes]) -> bool | None:
    """Whether the next call was answered; a side that does not even get there is killed, and was not."""
    try:
        answered: bool | None = _said(side, _NEXT_WITHIN_S)
    except TimeoutError:
        os.killpg(side.pid, signal.SIGKILL)
        return False
    return answered


WORKLOADS: dict[str, Callable[[Plan], Section]] = {"noop": noop, "command": command, "hang": hang}


# ---------------------------------------------------------------- sides


@contextmanager
def _open_side(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A side in a session of its own, killed as a whole when the block ends: before its number is free again."""
    side = subprocess.Popen(
        [sys.executable, "-m", "bench.peers._side", *words],
        cwd=REPOSITORY,
        env=child_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=end_with_parent,  # noqa: PLW1509  # this process has one thread
    )
    assert side.stdin is not None
    assert side.stdout is not None
    try:
        yield side
    finally:
        side.stdin.close()
        pidfd = os.pidfd_open(side.pid)
        select.select([pidfd], [], [], _CLOSES_WITHIN_S)
        os.close(pidfd)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(side.pid, signal.SIGKILL)
        side.wait()
        side.stdout.close()


def _said(side: subprocess.Popen[bytes], within_s: float = _SAYS_WITHIN_S) -> Any:
    """Its next line. Raises TimeoutError, or RuntimeError when it has ended."""
    assert side.stdout is not None
    until, line = time.monotonic() + within_s, b""
    while not line.endswith(b"\n"):
        if not select.select([side.stdout], [], [], max(0.0, until - time.monotonic()))[0]:
            raise TimeoutError(f"{side.args} said nothing for {within_s:g} s")
        if not (more := os.read(side.stdout.fileno(), 1)):
            raise RuntimeError(f"{side.args} ended")
        line += more
    return json.loads(line)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
