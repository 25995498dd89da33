"""Public reports on clients that give up, and on answers that come late, twice, or for somebody else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import anyio
import pytest

from deadlined import AsyncClient, Client, RequestRefused, _outside
from tests.contract.cases.conftest import FOREVER, PATIENCE_S, Calls, wait_until
from tests.contract.conftest import MARK, TestedDaemon

pytestmark = pytest.mark.contract
CONFIG = f"""
[daemon]
spares = 1
[tool.late]
kind = "python"
module = "case_late_answers"
path = "{os.path.dirname(__file__)}"
"""
BOUND_S = 10
"""More than leaving may ever take; on an idle machine it takes milliseconds."""


# ---------------------------------------------------------------- B063, B066: clients that leave


@pytest.mark.case("B063")
@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_a_caller_whose_own_time_is_up_leaves_nothing_running(
    module_daemon: TestedDaemon, mark: str, nothing_left: Callable[..., None], backend: str
) -> None:
    seen: list[bool] = []

    async def give_up() -> None:
        async with AsyncClient(module_daemon.socket) as client:
            with anyio.move_on_after(20) as scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(call, client)
                    while not _outside.marked(mark):
                        await anyio.sleep(0.005)
                    seen.append(True)
                    scope.cancel()

    async def call(client: AsyncClient) -> None:
        await client.call("shell", {"argv": ["sleep", FOREVER], "env": {MARK: mark}}, deadline_ms=60_000)

    anyio.run(give_up, backend=backend)
    assert seen == [True]
    nothing_left(mark)


@pytest.mark.case("B063")
@pytest.mark.parametrize("detach", [False, True])
def test_a_client_that_is_killed_ends_its_calls_and_not_the_detached_ones(
    calls: Calls, somebody_alive: Callable[..., list[str]], detach: bool
) -> None:
    words = f"""
import sys
from deadlined import Client
client = Client({calls.daemon.socket!r})
handle = client.submit("shell", {calls.arguments("sleep", FOREVER)!r}, deadline_ms=60_000, detach={detach})
print(handle.call, flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        handle = calls.client.handle(process.stdout.readline().strip())
        wait_until(lambda: len(somebody_alive(calls.mark)) >= 1, "the call does not run")
        process.send_signal(signal.SIGKILL)
        process.wait()
    if detach:
        assert handle.result() is None
        somebody_alive(calls.mark)
        handle.cancel()
        assert handle.wait(PATIENCE_S).reason == "operator"
    else:
        ended = handle.wait(PATIENCE_S)
        assert (ended.status, ended.reason) == ("cancelled", "disconnect")
    calls._nothing_left(calls.mark)


@pytest.mark.case("B066")
@pytest.mark.parametrize("what", ["nothing", "a call", "one that ignores TERM"])
def test_leaving_a_client_is_bounded_whatever_runs(calls: Calls, what: str) -> None:
    with Client(calls.daemon.socket) as other:
        if what != "nothing":
            trap = "trap '' TERM INT HUP; " if "ignores" in what else ""
            script = f"{trap}echo begun; while :; do sleep {FOREVER}; done"
            handle = other.submit("shell", calls.arguments("sh", "-c", script), deadline_ms=60_000)
            assert next(handle.output()) == b"begun\n"
        began = time.monotonic()
    assert time.monotonic() - began < BOUND_S
    calls._nothing_left(calls.mark, BOUND_S)


# ---------------------------------------------------------------- B064: every call has one last answer


@pytest.mark.case("B064")
def test_every_cancel_is_answered_and_the_call_has_one_end(calls: Calls) -> None:
    watched = calls.begin("shell", calls.arguments("sleep", FOREVER))
    handle = watched.handle
    assert handle.cancel() is True
    handle.cancel()
    told = handle.wait(PATIENCE_S)
    assert (told.status, told.reason) == ("cancelled", "client")
    assert handle.cancel() is False, "a call that has ended is said to have ended"
    assert calls.client.handle(told.call).cancel() is False
    with pytest.raises(RequestRefused) as refused:
        calls.client.handle("c_nobody").cancel()
    assert refused.value.error.code == "unknown_call"
    assert calls.client.handle(told.call).wait(PATIENCE_S) == told
    ends = [event for event in calls.client.events(call=told.call) if event.kind == "call_ended"]
    assert len(ends) == 1


# ---------------------------------------------------------------- B065: answers that are nobody's


def each_hears_itself(calls: Calls, count: int = 8) -> None:
    """Calls behind the odd one, on whatever worker, are answered with what is theirs."""
    told = [calls.client.call("echo", {"token": f"t{number}"}, deadline_ms=30_000).content for number in range(count)]
    assert told == [f"t{number}" for number in range(count)]


def worker_of(calls: Calls, call: str) -> int:
    (row,) = [row for row in calls.client.processes() if row.call == call]
    assert row.worker is not None
    return row.worker


@pytest.mark.case("B065")
def test_an_answer_that_comes_too_late_is_dropped_on_record_and_its_worker_serves_no_more(calls: Calls) -> None:
    handle = calls.client.submit("answers_when_cancelled", {}, deadline_ms=60_000)
    wait_until(lambda: [row for row in calls.client.processes() if row.call == handle.call and row.pid], "it waits")
    worker = worker_of(calls, handle.call)
    handle.cancel()
    told = handle.wait(PATIENCE_S)
    assert told.status == "cancelled"
    assert told.content != "late" or [n for n in told.notices if n.detector == "late_result"]
    each_hears_itself(calls)
    wait_until(lambda: worker not in {row.worker for row in calls.client.processes()}, "its worker lives on")


@pytest.mark.case("B065")
@pytest.mark.parametrize(
    ("answers", "nonce", "ends"),
    [
        (["first", "second"], 0, ("ok", None, "first")),
        (["stranger"], 999_999, ("crashed", "protocol_error", None)),
        (["stranger"], 1, ("ok", None, "itself")),
    ],
    ids=["twice", "for a call that never was", "for a call that has ended"],
)
def test_answers_that_are_too_many_or_for_strangers_meet_no_other_call(
    calls: Calls, answers: list[str], nonce: int, ends: tuple[str, str | None, str | None]
) -> None:
    each_hears_itself(calls, 2)
    told = calls.client.call("says", {"answers": answers, "nonce": nonce, "hangs": nonce > 1}, deadline_ms=30_000)
    assert (told.status, told.reason, told.content) == ends
    each_hears_itself(calls)
    assert calls.client.handle(told.call).wait(PATIENCE_S) == told
