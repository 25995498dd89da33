"""Whether the log of all lives of a place adds up: one end of each call and run, one use of each approval, no gap in
the events of a run, each in its place, and each account at what its runs' events say."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from supervisor.journal.run_rows import read_accounts
from supervisor.journal.store import Store
from tests.trust.registry import Figures

ONCE = {"call_ended": "call", "approval_consumed": "call", "run_settled": "run"}

UNDER_WAY = ("call_claimed", "call_sent", "call_accepted", "call_ended")
NOT_BEHIND_ITS_END = ("step_begun", "call_validated", "detector_fired", "budget_refused", "finish_refused")
TOO_LATE = ("run_settled", "budget", "time_budget", "shutdown", "store_unavailable")
"""Why a call of a run that is over may be refused."""


def wrong_in_log(state: Path, limits: dict[str, dict[str, int]], figures: Figures) -> Iterator[str]:
    """What is wrong with the log below a daemon's ``state``, once the last daemon of the place is gone."""
    for path in state.glob("*/journal.db"):
        store = Store(str(path))
        if (broken := store.open()) is not None:
            yield str(broken)
        figures.count("events", store.seq)
        yield from contradictions(store, limits)
        store.close()


def contradictions(store: Store, limits: dict[str, dict[str, int]]) -> Iterator[str]:
    """What is wrong with it, in words. ``limits``: of a kind of account, by dimension."""
    yield from _not_once(store)
    yield from _gaps(store)
    yield from _out_of_place(store)
    yield from _accounts(store, limits)


def _not_once(store: Store) -> Iterator[str]:
    for kind, column in ONCE.items():
        query = f"SELECT {column}, count(*) FROM events WHERE kind = ? GROUP BY {column} HAVING count(*) > 1"
        for name, count in store.rows(query, (kind,)):
            yield f"{kind} of {name}: {count} times"


def _gaps(store: Store) -> Iterator[str]:
    last: Counter[str] = Counter()
    for run, data in store.rows("SELECT run, data FROM events WHERE run IS NOT NULL ORDER BY seq"):
        last[run] += 1
        if (number := msgspec.json.decode(data)["run_seq"]) != last[run]:
            yield f"run {run}: its event {last[run]} has the number {number}"
            last[run] = number


def _out_of_place(store: Store) -> Iterator[str]:
    """A call is let through before anything is done for it, and what becomes of a run stands before its end."""
    over: set[str] = set()
    under_way: set[str] = set()
    for run, call, kind, data in store.rows(
        "SELECT run, call, kind, data FROM events WHERE run IS NOT NULL ORDER BY seq"
    ):
        late = kind == "call_refused" and msgspec.json.decode(data)["reason"] not in TOO_LATE
        if run in over and (late or kind in NOT_BEHIND_ITS_END):
            yield f"run {run}: {kind} behind its end"
        if kind == "call_validated" and call in under_way:
            yield f"call {call}: {kind} behind what was done for it"
        if kind == "run_settled":
            over.add(run)
        elif kind in UNDER_WAY:
            under_way.add(call)


def _accounts(store: Store, limits: dict[str, dict[str, int]]) -> Iterator[str]:
    charged, stand = _charged(store), {row.node: row.used for row in read_accounts(store)}
    for node in sorted(charged.keys() | stand.keys()):
        used = {name: count for name, count in stand.get(node, {}).items() if count and name != "wall_ms"}
        counted = {name: count for name, count in charged[node].items() if count}
        if used != counted:
            yield f"{node} stands at {used}, its runs' events say {counted}"
        for name, limit in limits.get(node.split()[0], {}).items():
            if used.get(name, 0) > limit:
                yield f"{node} may have {limit} {name}, and has had {used[name]}"


def _charged(store: Store) -> defaultdict[str, Counter[str]]:
    """By account, what the events of the runs below it say."""
    above: dict[str, tuple[str, ...]] = {}
    charged: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for run, uid, kind, data in store.rows(
        "SELECT run, uid, kind, data FROM events WHERE run IS NOT NULL ORDER BY seq"
    ):
        told: dict[str, Any] = msgspec.json.decode(data)
        if kind == "run_admitted":
            tenant = told["tenant"]
            above[run] = (f"tenant {tenant}", f"user {tenant}/{uid}", f"session {uid}/{told['session']}")
        for node in above[run]:
            charged[node].update(told.get("charge") or {})
    return charged
