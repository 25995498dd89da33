"""Bytes that a fuzzer makes, led by which lines of `protocol` they reach, through both codecs of what clients say.

The count is of seconds for each of the two targets; the page's push is N=45. Passes when only RemoteProtocolError comes
out, whole and cut bytes give the same (`frames_mutated` judges both), and no input takes longer than a second.

atheris is an extra (``pip install '.[fuzz]'``) with wheels for few versions of Python: where it is not, a lane says
that it has skipped this suite, which is no pass. `python -m tests.trust.frames_guided TARGET ARGUMENT…` is one target,
with arguments of libFuzzer: with the file of an input that failed, it plays that.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
import tempfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.trust.daemons import REPOSITORY
from tests.trust.registry import CannotRun, Figures, Suite

TARGETS = {"msgpack": "client to daemon, msgpack", "json": "client to daemon, json"}
LONGEST = 4_096
LIMITS = (256, 1 << 20)
EXECUTED = re.compile(r"stat::number_of_executed_units: (\d+)")
REACHED = re.compile(r"cov: (\d+)")


def run(count: int, seed: int) -> Figures:
    """Both targets at once, ``count`` seconds. What a seed leads to hangs on how fast the machine is, too."""
    try:
        import atheris  # noqa: F401  # whether it can be had
    except ImportError as error:
        raise CannotRun("atheris is not installed: pip install '.[fuzz]'") from error
    figures = Figures()
    with ThreadPoolExecutor(len(TARGETS)) as pool:
        for found in pool.map(lambda target: _fuzz(target, count, seed), TARGETS):
            figures.add(found)
    return figures


def _fuzz(target: str, seconds: int, seed: int) -> Figures:
    figures = Figures()
    with tempfile.TemporaryDirectory(prefix="dl-fuzz-") as directory:
        corpus = Path(directory, "corpus")
        corpus.mkdir()
        bounds = [f"-max_total_time={seconds}", f"-seed={1 + seed % (1 << 31)}", "-timeout=1", f"-max_len={LONGEST}"]
        told = [f"-artifact_prefix={directory}/", "-print_final_stats=1", str(corpus)]
        words = [sys.executable, "-m", "tests.trust.frames_guided", target, *bounds, *told]
        done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, errors="replace")
        executed = EXECUTED.search(done.stderr)
        figures.tried = int(executed[1]) if executed else 0
        figures.counts[f"edges reached, {target}"] = max(map(int, REACHED.findall(done.stderr)), default=0)
        if done.returncode or not figures.tried:
            inputs = [path.read_bytes().hex() for path in Path(directory).iterdir() if path.is_file()]
            figures.fail(f"{target}, seed {seed}: exit {done.returncode} for {inputs}: {done.stderr[-1_500:]}")
    return figures


def main() -> None:
    """One target; never returns: libFuzzer ends the process."""
    import atheris

    with atheris.instrument_imports(include=["protocol"]):
        from tests.trust import frames_mutated as frames

    name, directories = TARGETS[sys.argv.pop(1)], [Path(word) for word in sys.argv[1:] if not word.startswith("-")]
    ear = frames.EARS[name]
    for directory in (path for path in directories if path.is_dir() and not any(path.iterdir())):
        for number, body in enumerate(frames.bodies(ear, random.Random(1))):
            (directory / str(number)).write_bytes(frames.stream([body], ear.buffer)[:LONGEST])

    def one_input(data: bytes) -> None:
        figures, rand = Figures(), random.Random(zlib.crc32(data)).random
        link = ear.link()
        for body in frames.read_twice(name, data, LIMITS[len(data) % len(LIMITS)], rand, figures):
            frames.hear(name, ear, link, body, figures)
        if figures.failed:
            raise AssertionError(figures.failures[0])

    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


SUITE = Suite(
    passes_when="only protocol errors come out, whole = cut, no input takes a second",
    push=45,
    long=3_600,
    run=run,
    needs="atheris",
)

if __name__ == "__main__":
    main()
