"""Chaos tests of the tools in payment.py: ``pytest examples/chaos_tests``. Each takes about two seconds."""

from __future__ import annotations

import time
from pathlib import Path

from deadlined import Client
from deadlined.testing import ChaosDaemon

SLOW_MS = 60_000


def test_a_payment_that_hangs_is_killed_before_it_is_made(
    deadlined_client: Client, deadlined_daemon: ChaosDaemon, tmp_path: Path
) -> None:
    order = {"order": "o-1", "cents": 500, "bank": str(tmp_path), "slowly_ms": SLOW_MS}
    result = deadlined_client.call("pay", order, deadline_ms=1_500)
    assert (result.status, result.reason, result.delivery) == ("killed", "time_budget", "unknown")
    deadlined_daemon.assert_no_survivors()
    assert list(tmp_path.iterdir()) == []


def test_the_same_delivery_pays_once(deadlined_client: Client, tmp_path: Path) -> None:
    order = {"order": "o-1", "cents": 500, "bank": str(tmp_path)}
    first = deadlined_client.call("pay", order, key="order o-1")
    second = deadlined_client.call("pay", order, key="order o-1")
    assert (first.content, second.call) == ("o-1: paid", first.call)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_worker_that_dies_in_a_payment_leaves_the_outcome_unknown_and_one_that_looks_up_may_be_asked_again(
    deadlined_client: Client, deadlined_daemon: ChaosDaemon, tmp_path: Path
) -> None:
    slowly = {"bank": str(tmp_path), "slowly_ms": SLOW_MS}
    paying = deadlined_client.submit("pay", {"order": "o-1", "cents": 500, **slowly}, deadline_ms=SLOW_MS)
    looking = deadlined_client.submit("payments", slowly, deadline_ms=SLOW_MS)
    for call in (paying, looking):
        deadlined_daemon.kill_worker(call)
    assert (paying.wait().status, paying.wait().delivery, paying.wait().retryable) == ("crashed", "unknown", False)
    assert (looking.wait().status, looking.wait().retryable) == ("crashed", True)
    assert deadlined_client.call("payments", {"bank": str(tmp_path)}).content == []


def test_a_stopped_daemon_stops_no_deadline(
    deadlined_client: Client, deadlined_daemon: ChaosDaemon, tmp_path: Path
) -> None:
    ticks, ticking = tmp_path / "tick", ["sh", "-c", "while :; do date +%N > tick; sleep 0.02; done"]
    call = deadlined_client.submit("shell", {"argv": ticking}, deadline_ms=3_000, cwd=tmp_path)
    while not ticks.exists():
        assert call.result() is None
        time.sleep(0.01)
    with deadlined_daemon.stop_daemon():
        time.sleep(3.2)
        last = ticks.stat().st_mtime_ns
        time.sleep(0.3)
        assert ticks.stat().st_mtime_ns == last, "it was killed while the daemon slept"
    assert call.wait().reason == "time_budget"


def test_a_daemon_that_is_killed_takes_the_payment_with_it_and_says_so_when_it_is_back(
    deadlined_daemon: ChaosDaemon, tmp_path: Path
) -> None:
    order = {"order": "o-1", "cents": 500, "bank": str(tmp_path), "slowly_ms": SLOW_MS}
    with deadlined_daemon.client() as client:
        call = client.submit("pay", order, deadline_ms=SLOW_MS, detach=True).call
        while not any(row.call == call and row.pid for row in client.processes()):
            time.sleep(0.01)
    deadlined_daemon.kill_daemon()
    deadlined_daemon.assert_no_survivors()
    deadlined_daemon.start_again()
    with deadlined_daemon.client() as client:
        result = client.handle(call).wait(30)
        assert (result.status, result.reason, result.delivery) == ("unknown", "daemon_restarted", "unknown")
    assert list(tmp_path.iterdir()) == []


def test_neighbours_that_misbehave_cost_a_payment_nothing(
    deadlined_client: Client, deadlined_daemon: ChaosDaemon, tmp_path: Path
) -> None:
    misbehaving = {
        "chaos_fork": {"then": "hang"},
        "chaos_setsid": {"then": "return"},
        "chaos_daemon": {"then": "return"},
        "chaos_ignore_sigterm": {},
        "chaos_segfault": {},
    }
    neighbours = [deadlined_client.submit(tool, how, deadline_ms=4_000) for tool, how in misbehaving.items()]
    assert deadlined_client.call("pay", {"order": "o-1", "cents": 500, "bank": str(tmp_path)}).content == "o-1: paid"
    assert [call.wait().status for call in neighbours] == ["killed", "ok", "ok", "killed", "crashed"]
    deadlined_daemon.assert_no_survivors()
