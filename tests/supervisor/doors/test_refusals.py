from __future__ import annotations

import socket
from typing import Any

import pytest

from protocol._events import EventKind
from supervisor.doors import refusals
from supervisor.doors.peers import Peer


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What was told, on a clock that stands still."""
    monkeypatch.setattr(refusals, "now_ns", lambda: 0)
    return []


def knock(audit: refusals.Refusals, why: str) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        audit.tell(Peer(ours), why)


def test_who_is_turned_away_is_told_with_the_reason(told: list[dict[str, Any]]) -> None:
    audit = refusals.Refusals(lambda kind, **data: told.append({"kind": kind, **data}))
    knock(audit, "uid")
    (event,) = told
    assert (event["kind"], event["why"], event["pid"] > 0) == (EventKind.CLIENT_REFUSED, "uid", True)


def test_a_crowd_is_counted_and_does_not_hide_another_reason(told: list[dict[str, Any]]) -> None:
    audit = refusals.Refusals(lambda kind, **data: told.append(data))
    for _ in range(500):
        knock(audit, "call")
    knock(audit, "uid")
    assert [event["why"] for event in told].count("call") <= 20
    assert told[-1]["why"] == "uid"
    assert audit.count == 501


def test_the_next_one_after_a_while_says_how_many_were_not_told(
    told: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    audit = refusals.Refusals(lambda kind, **data: told.append(data))
    for _ in range(50):
        knock(audit, "call")
    monkeypatch.setattr(refusals, "now_ns", lambda: 61_000_000_000)
    knock(audit, "call")
    assert told[-1]["left_out"] == 50 - (len(told) - 1)
