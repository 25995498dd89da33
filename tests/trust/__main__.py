"""`python -m tests.trust [--lane push|long] [--lanes N] [--suite NAME] [--count N] [--seed S] [--list]`

One line of figures a suite: what was tried, what failed, the bound that "0 of N" gives, the seed and the seconds.
Exit 0 when every suite that was asked for ran and passed, 1 otherwise, 2 for a usage error.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

from tests.trust.registry import CannotRun, Figures, Suite, all_suites


def main() -> int:
    suites = all_suites()
    asked = _arguments(sorted(suites))
    if asked.list:
        for name, suite in suites.items():
            _say(f"{name}: push {suite.push:,}, long {suite.long:,}; passes when {suite.passes_when}")
        return 0
    chosen = {asked.suite: suites[asked.suite]} if asked.suite else _possible(suites)
    seed = random.SystemRandom().randrange(1 << 32) if asked.seed is None else asked.seed
    with ThreadPoolExecutor(asked.lanes) as pool:
        jobs = [
            pool.submit(_run, name, suite, asked.count or getattr(suite, asked.lane), seed)
            for name, suite in chosen.items()
        ]
        results = [job.result() for job in jobs]
    return 0 if results and all(results) else 1


def _possible(suites: dict[str, Suite]) -> dict[str, Suite]:
    """Those that do not need what is not here; the others are named, and are no pass."""
    missing = {name for name, suite in suites.items() if suite.needs and find_spec(suite.needs) is None}
    for name in sorted(missing):
        _say(f"{name}: SKIPPED ({suites[name].needs} is not installed); that is no pass")
    return {name: suite for name, suite in suites.items() if name not in missing}


def _run(name: str, suite: Suite, count: int, seed: int) -> bool:
    began = time.monotonic()
    try:
        figures = suite.run(count, seed)
    except CannotRun as reason:
        _say(f"{name}: NOT RUN ({reason}); seed {seed}")
        return False
    _say(_line(name, figures, seed, time.monotonic() - began))
    for failure in figures.failures:
        sys.stderr.write(f"  {name}: {failure}\n")
    return figures.failed == 0 and figures.tried > 0


def _line(name: str, figures: Figures, seed: int, seconds: float) -> str:
    verdict = f"{figures.failed} of {figures.tried:,} failed"
    if not figures.failed and figures.tried:
        verdict += f" (at 95 %: fewer than {3 / figures.tried:.1e}, 3/N)"
    counts = "".join(f"; {what} {by:,}" for what, by in figures.counts.items())
    return f"{name}: {'FAILED: ' if figures.failed else ''}{verdict}{counts}; seed {seed}; {seconds:.1f} s"


def _arguments(names: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.trust", description="Run trust suites; one line each.")
    parser.add_argument("--lane", choices=("push", "long"), default="push", help="which counts to run")
    parser.add_argument("--lanes", type=_positive, default=1, metavar="N", help="suites that run at once")
    parser.add_argument("--suite", choices=names, metavar="NAME", help=f"only this one of: {', '.join(names)}")
    parser.add_argument("--count", type=_positive, metavar="N", help="try N instead of the lane's count")
    parser.add_argument("--seed", type=int, metavar="S", help="repeat the run that printed this seed")
    parser.add_argument("--list", action="store_true", help="name the suites")
    return parser.parse_args()


def _positive(text: str) -> int:
    count = int(text.replace("_", ""))
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is less than 1")
    return count


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
