"""The hash chain."""

from __future__ import annotations

import pytest

from supervisor.journal.chain import GENESIS, Record, link, verify


def chained(count: int) -> list[tuple[Record, bytes]]:
    previous, chain = GENESIS, []
    for seq in range(1, count + 1):
        record = Record(seq, 1_000 + seq, "call_ended", f"c_{seq}", None, 0, '{"n":1}')
        previous = link(previous, record)
        chain.append((record, previous))
    return chain


def test_an_untouched_chain_holds_from_any_anchor():
    chain = chained(5)
    assert verify(0, GENESIS, chain) is None
    assert verify(3, chain[2][1], chain[3:]) is None
    assert verify(0, GENESIS, []) is None


@pytest.mark.parametrize("field", Record._fields)
def test_a_change_of_any_field_shows_at_its_record(field):
    chain = chained(5)
    record, digest = chain[2]
    changed = {"seq": 9, "at_ms": 1, "kind": "x", "call": None, "run": "r", "uid": 7, "data": "{}"}
    chain[2] = (record._replace(**{field: changed[field]}), digest)
    broken = verify(0, GENESIS, chain)
    assert broken is not None
    assert broken.seq == 3


def test_a_record_taken_out_or_put_in_shows():
    chain = chained(5)
    assert verify(0, GENESIS, [*chain[:2], *chain[3:]]) == (3, "record 3 is missing; 4 follows")
    broken = verify(0, GENESIS, [*chain[:3], chain[2], *chain[3:]])
    assert broken is not None
    assert broken.seq == 4


def test_a_rewritten_record_with_a_hash_of_its_own_breaks_the_next():
    chain = chained(5)
    forged = chain[2][0]._replace(data='{"n":2}')
    chain[2] = (forged, link(chain[1][1], forged))
    broken = verify(0, GENESIS, chain)
    assert broken is not None
    assert broken.seq == 4
