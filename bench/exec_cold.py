"""``deadlined exec -- true`` as a whole process, cold: beside ``true`` itself, and taken apart.

Cold is the process, not the disk: files are in the page cache and byte code is compiled, as after a first use.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from itertools import pairwise
from pathlib import Path
from statistics import median

from bench._daemon import child_environment
from bench._plan import Plan
from bench._report import Row, Section, Target


def run(plan: Plan) -> Section:
    """See the module."""
    runs = _commands()
    samples: dict[str, list[list[float]]] = {name: [] for name in runs}
    for name, words in runs.items():
        if (code := _spawn(words)[1]) != 0:
            raise RuntimeError(f"{name} exits {code}")
    for _ in range(plan.of(5, 2)):
        for name, words in plan.shuffled(runs.items()):
            samples[name].append([_spawn(words)[0] for _ in range(plan.of(8, 4))])
    return Section("deadlined exec -- true, a cold process", _rows(samples), [_parts(samples)])


def _commands() -> dict[str, list[str]]:
    """What is started, by name: the product, what stands beside it, and its parts."""
    true = shutil.which("true") or "/bin/true"
    python, command = sys.executable, str(Path(sys.executable).with_name("deadlined"))
    imports = "import deadlined.__main__, protocol, toolworkers, supervisor, deadlined.cli.exec"
    return {
        "true": [true],
        "timeout": [shutil.which("timeout") or "timeout", "5", "true"],
        "interpreter": [python, "-I", "-S", "-c", ""],
        "site": [python, "-c", ""],
        "imports": [python, "-c", imports],
        "exec": [command, "exec", "--", "true"],
        "exec --json": [command, "exec", "--json", "--", "true"],
    }


def _rows(samples: dict[str, list[list[float]]]) -> list[Row]:
    cold = (samples["exec"], samples["true"], Target(p50=60), "exec -- true, cold", "20")
    return [
        Row("deadlined exec -- true", "ms", *cold),
        Row("deadlined exec --json -- true", "ms", samples["exec --json"], samples["true"]),
        Row("floor: posix_spawn of true", "ms", samples["true"]),
        Row("beside it: timeout 5 true", "ms", samples["timeout"]),
        Row("  part: the interpreter, python -I -S", "ms", samples["interpreter"]),
        Row("  part: with site and environment, python", "ms", samples["site"]),
        Row("  part: with what exec imports", "ms", samples["imports"]),
    ]


def _parts(samples: dict[str, list[list[float]]]) -> str:
    """What each step adds, by medians."""
    steps = ["interpreter", "site", "imports", "exec"]
    middle = {name: median(sample for one in samples[name] for sample in one) for name in steps}
    named = {"site": "site", "imports": "imports", "exec": "namespace, fork, true, reap"}
    added = [f"{named[step]} +{middle[step] - middle[before]:.1f}" for before, step in pairwise(steps)]
    return f"parts (ms): interpreter {middle['interpreter']:.1f}, {', '.join(added)}"


def _spawn(words: list[str]) -> tuple[float, int]:
    """(milliseconds from the spawn to the reaped end, exit code)."""
    environment = child_environment()
    quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    began = time.monotonic_ns()
    pid = os.posix_spawn(words[0], words, environment, file_actions=quiet)
    _, status = os.waitpid(pid, 0)
    return (time.monotonic_ns() - began) / 1e6, os.waitstatus_to_exitcode(status)
