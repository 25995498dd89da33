"""The table of what calls can do, against what the contract tests prove."""

from __future__ import annotations

from tests.contract.attacks import HELD
from tests.docs.test_reference import OPERATIONS, table_after


def test_what_a_call_can_do_is_documented_as_it_is_tested():
    rows = table_after(OPERATIONS, "<!-- table attacks -->")
    assert {row[0]: tuple(row[1:]) for row in rows} == HELD
