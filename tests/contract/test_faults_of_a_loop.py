"""What the suite `faults_of_a_loop` says of the six faults of an agent, one by one and together, in a real daemon."""

from __future__ import annotations

import pytest

from tests.trust import faults_of_a_loop

pytestmark = pytest.mark.contract


@pytest.mark.behaviour("M096")
def test_each_fault_of_an_agent_and_all_together_keep_budgets_log_and_effects_and_have_one_clear_end() -> None:
    figures = faults_of_a_loop.run(7, 1)
    assert figures.failures == []
    assert figures.tried == 7
    assert figures.counts["steps folded"] > 0
    assert figures.counts["questions out of sight"] > 0
