"""The machine of `tests/supervisor/core/test_stateful.py` (lives of a daemon against a plain model), more often and
with more steps. Passes when nothing is done twice, nobody hears two ends of a call, no limit is passed in any ancestor,
what was promised is there after a crash, and the log verifies.
"""

from __future__ import annotations

import random

import structlog
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.supervisor.core.test_stateful import LivesOfADaemon
from tests.trust.registry import Figures, Suite

STEPS = 50
BATCH = 50
"""Examples with one seed."""


def run(count: int, seed: int) -> Figures:
    """So many sequences of steps. The first of a batch that fails ends that batch."""
    figures, rng = Figures(), random.Random(seed)
    with structlog.testing.capture_logs():  # of disks that refuse there is enough
        for start in range(0, count, BATCH):
            _batch(figures, min(BATCH, count - start), rng.randrange(1 << 32))
    figures.count("steps at most", figures.tried * STEPS)
    return figures


def _batch(figures: Figures, examples: int, number: int) -> None:
    figures.tried += examples
    machine = seed(number)(type("Lives", (LivesOfADaemon,), {}))
    try:
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=examples,
                stateful_step_count=STEPS,
                deadline=None,
                database=None,
                phases=(Phase.generate,),  # shortening what fails takes minutes
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
            ),
        )
    except Exception as error:  # whatever it is, it is what the suite looks for
        figures.fail(f"seed {number} of hypothesis: {_said(error)}")


def _said(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return " | ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())])


SUITE = Suite(
    passes_when="0 effects doubled, 0 limits passed, one end of each call, nothing promised is lost by a crash",
    push=200,
    long=20_000,
    run=run,
)
