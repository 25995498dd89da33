"""Every attack of `tests.contract.attacks` at every level, as whoever runs this and, for root, as a plain uid.

Passes when each cell is exactly what is documented: one that changes either way fails.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.contract.attacks import CANARY, CARRIED, attempted, held
from tests.contract.conftest import AS_PLAIN_UID, make_environment
from tests.contract.hostile_rows import DAEMON
from tests.contract.hostile_world import LOWER, lowered, open_world, whose
from tests.trust.registry import Figures, Suite


def run(count: int, _seed: int) -> Figures:
    """``count`` times the whole table."""
    figures = Figures()
    with _interpreters() as words:
        for _ in range(count):
            for uid in whose():
                for place in ("contain", *LOWER):
                    _try(figures, f"{uid}, {place}", words[uid])
    return figures


def _try(figures: Figures, kind: str, words: list[str]) -> None:
    secret = uuid.uuid4().hex
    words, config = lowered(kind, words, DAEMON)
    with open_world(kind, words, config, **CARRIED, **{CANARY: secret}) as world:
        world.notes[CANARY] = secret
        obtained, expected = attempted(world), held(world)
    for attack, word in obtained.items():
        figures.tried += 1
        figures.count("attacks that work, as documented" if word == "yes" else "attacks refused")
        if word != expected[attack]:
            figures.fail(f"{kind}: can a call {attack}? {word}, documented is {expected[attack]}")


@contextmanager
def _interpreters() -> Iterator[dict[str, list[str]]]:
    words = {"own uid": [sys.executable]}
    if os.getuid() != 0:
        yield words
        return
    home = Path(tempfile.mkdtemp(prefix="deadlined-plain-"))
    try:
        home.chmod(0o755)
        yield words | {"plain uid": [*AS_PLAIN_UID, str(make_environment(home))]}
    finally:
        shutil.rmtree(home)


SUITE = Suite(
    passes_when="each attack works or fails at each level exactly as docs/operations.md says",
    push=1,
    long=20,
    run=run,
)
