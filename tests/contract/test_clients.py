"""Both clients against a real daemon: blocking, and under Trio and asyncio."""

import contextlib
import json
import os
import signal
import threading
import time

import anyio
import pytest

from deadlined import AsyncClient, Client, ConnectionLost, DaemonNotRunning, RequestRefused

pytestmark = pytest.mark.contract
MARK = "DEADLINED_TEST_MARK"


def _sleeping(mark, *argv):
    return {"argv": list(argv) or ["sleep", "1000"], "env": {MARK: mark}}


@pytest.fixture
def d(standing_daemon):
    with Client(standing_daemon.socket) as client:
        yield client


def test_a_command_answers_with_its_output(d):
    r = d.call("shell", {"argv": ["echo", "héllo"]}, deadline_ms=10_000)
    assert (r.status, r.exit.code, r.output.view, r.delivery) == ("ok", 0, "héllo\n", "succeeded")
    assert r.timing.deadline_ms == 10_000
    assert r.kill is None


def test_at_the_deadline_everything_is_dead_and_the_receipt_says_so(d, mark, nothing_left):
    tree = "setsid sleep 1000 & (sleep 1000 &) ; sleep 1000"
    r = d.call("shell", _sleeping(mark, "sh", "-c", tree), deadline_ms=700)
    nothing_left(mark)
    assert (r.status, r.reason) == ("killed", "time_budget")
    assert r.kill.confirmed
    assert r.kill.killed >= 3
    assert r.delivery == "unknown"


def test_a_python_tool_answers_with_a_value(d):
    r = d.call("python", {"code": "x = 6\nx * 7"}, deadline_ms=10_000)
    assert (r.status, r.content) == ("ok", 42)


def test_a_failing_command_is_a_result_and_no_exception(d):
    r = d.call("shell", {"argv": ["sh", "-c", "exit 7"]}, deadline_ms=10_000)
    assert (r.status, r.exit.code, r.error.class_) == ("error", 7, "feedback")


@pytest.mark.parametrize("deadline", [0, -1, 1.5, float("nan"), float("inf"), 1e300, "5s", True])
def test_a_deadline_that_is_none_is_refused_by_the_daemon(d, deadline):
    r = d.call("shell", {"argv": ["true"]}, deadline_ms=deadline)
    assert (r.status, r.reason, r.delivery) == ("not_executed", "invalid_arguments", "not_delivered")
    assert d.call("shell", {"argv": ["true"]}).status == "ok"


def test_a_cancelled_call_is_gone_when_wait_returns(d, mark, somebody_alive, nothing_left):
    h = d.submit("shell", _sleeping(mark), deadline_ms=60_000)
    somebody_alive(mark)
    assert h.result() is None
    assert h.cancel()
    r = h.wait()
    nothing_left(mark)
    assert (r.status, r.reason) == ("cancelled", "client")
    assert r.kill.confirmed
    assert not h.cancel()


def test_output_is_followed_while_it_is_written(d):
    h = d.submit("shell", {"argv": ["sh", "-c", "for i in 1 2 3; do echo $i; sleep 0.3; done"]}, deadline_ms=20_000)
    chunks = list(h.output())
    assert b"".join(chunks) == b"1\n2\n3\n"
    assert len(chunks) >= 2
    assert h.wait().status == "ok"
    assert b"".join(h.output()) == b"1\n2\n3\n"


def test_split_streams_are_read_apart(d):
    h = d.submit("shell", {"argv": ["sh", "-c", "echo out; echo err >&2"]}, deadline_ms=10_000, split_streams=True)
    assert h.wait().output.streams.keys() == {"stdout", "stderr"}
    assert b"".join(h.output(stream="stdout")) == b"out\n"
    assert b"".join(h.output(stream="stderr")) == b"err\n"


def test_a_detached_call_outlives_its_client_and_an_attached_one_does_not(
    standing_daemon, mark, somebody_alive, nothing_left
):
    with Client(standing_daemon.socket) as first:
        attached = first.submit("shell", _sleeping(f"{mark}-attached"), deadline_ms=60_000)
        detached = first.submit("shell", _sleeping(f"{mark}-detached"), deadline_ms=60_000, detach=True)
        somebody_alive(f"{mark}-attached")
        somebody_alive(f"{mark}-detached")
    nothing_left(f"{mark}-attached", 5)
    somebody_alive(f"{mark}-detached")
    with Client(standing_daemon.socket) as second:
        assert second.handle(detached.call).cancel()
        assert second.handle(detached.call).wait().status == "cancelled"
        assert second.handle(attached.call).wait().reason == "disconnect"
    nothing_left(mark)


def test_an_unknown_call_is_refused_and_the_connection_goes_on(d):
    with pytest.raises(RequestRefused, match="c_none"):
        d.handle("c_none").wait()
    assert d.call("shell", {"argv": ["true"]}).status == "ok"


def test_what_the_daemon_serves_and_does_can_be_asked(d, mark, somebody_alive):
    assert {"shell", "python", "read_file"} <= {tool.name for tool in d.tools()}
    assert d.tools("shell")[0].contract.kind == "command"
    h = d.submit("shell", _sleeping(mark), deadline_ms=60_000)
    somebody_alive(mark)
    (row,) = [row for row in d.processes() if row.call == h.call]
    assert row.tool == "shell"
    assert 0 < row.remaining_ms <= 60_000
    assert d.status().calls_in_flight == 1
    assert d.config().values
    h.cancel()
    h.wait()


def test_a_killed_daemon_is_a_lost_connection_and_leaves_nothing(daemon, mark, somebody_alive, nothing_left):
    daemon.expected_exit = None
    with Client(daemon.socket) as d:
        h = d.submit("shell", _sleeping(mark, "sh", "-c", "setsid sleep 1000 & sleep 1000"), deadline_ms=60_000)
        somebody_alive(mark, 3)
        os.kill(daemon.pid, signal.SIGKILL)
        with pytest.raises(ConnectionLost):
            h.wait()
    nothing_left(mark, 2)
    daemon.process.wait(20)  # until then its listening socket may still take a connection, for nobody
    with pytest.raises(DaemonNotRunning):
        Client(daemon.socket)


def test_threads_share_a_client(standing_daemon, d):
    seen = []

    def some():
        for n in range(10):
            text = f"{threading.get_ident()} {n}"
            seen.append(d.call("shell", {"argv": ["echo", text]}, deadline_ms=30_000).output.view == text + "\n")

    threads = [threading.Thread(target=some) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [True] * 40


def test_an_interrupted_caller_leaves_nothing_running(d, mark, somebody_alive, nothing_left):
    def interrupt():
        somebody_alive(mark)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        d.call("shell", _sleeping(mark), deadline_ms=60_000)
    nothing_left(mark)


@pytest.fixture(params=["trio", "asyncio"])
def run(request):
    """Run an async function, bounded, on one of the two loops."""

    def run(function):
        async def bounded():
            with anyio.fail_after(60):
                await function()

        anyio.run(bounded, backend=request.param)

    return run


async def _until_alive(somebody_alive, mark, count=1):
    await anyio.to_thread.run_sync(lambda: somebody_alive(mark, count))


def test_async_calls_run_side_by_side_on_one_connection(standing_daemon, run):
    results = []

    async def one(d, number):
        r = await d.call("read_file", {"path": f"{number}.txt"}, cwd=standing_daemon.directory, deadline_ms=30_000)
        results.append((number, r.status, json.dumps(r.content)))

    for number in range(30):
        (standing_daemon.directory / f"{number}.txt").write_text(f"number {number}")

    async def main():
        async with AsyncClient(standing_daemon.socket) as d, anyio.create_task_group() as tasks:
            for number in range(30):
                tasks.start_soon(one, d, number)

    run(main)
    assert sorted(number for number, _, _ in results) == list(range(30))
    assert all(status == "ok" and f"number {number}" in content for number, status, content in results)


def test_a_cancelled_task_comes_back_when_its_call_is_gone(standing_daemon, run, mark, somebody_alive, nothing_left):
    async def main():
        async with AsyncClient(standing_daemon.socket) as d:
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(d.call, "shell", _sleeping(mark, "sh", "-c", "setsid sleep 1000 & sleep 1000"))
                    await _until_alive(somebody_alive, mark, 3)
                    scope.cancel()
            nothing_left(mark)
            assert (await d.call("shell", {"argv": ["true"]})).status == "ok"

    run(main)


def test_a_time_out_around_the_client_leaves_nothing_running(standing_daemon, run, mark, somebody_alive, nothing_left):
    async def main():
        with anyio.CancelScope() as scope:
            async with AsyncClient(standing_daemon.socket) as d, anyio.create_task_group() as tasks:
                tasks.start_soon(d.call, "shell", _sleeping(mark))
                await _until_alive(somebody_alive, mark)
                scope.cancel()
        nothing_left(mark)

    run(main)


def test_an_async_handle_follows_cancels_and_detaches(standing_daemon, run, mark, somebody_alive, nothing_left):
    async def main():
        async with AsyncClient(standing_daemon.socket) as d:
            h = await d.submit("shell", {"argv": ["sh", "-c", "echo 1; sleep 0.3; echo 2"]}, deadline_ms=20_000)
            assert b"".join([data async for data in h.output()]) == b"1\n2\n"
            assert (await h.wait()).status == "ok"
            h = await d.submit("shell", _sleeping(mark), deadline_ms=60_000, detach=True)
        await _until_alive(somebody_alive, mark)
        async with AsyncClient(standing_daemon.socket) as d:
            assert await d.handle(h.call).cancel()
            assert (await d.handle(h.call).wait()).status == "cancelled"
        nothing_left(mark)

    run(main)


def test_a_killed_daemon_ends_every_async_call(daemon, run, mark, somebody_alive, nothing_left):
    daemon.expected_exit = None
    lost = []

    async def one(d, number):
        with pytest.raises(ConnectionLost):
            await d.call("shell", _sleeping(mark), deadline_ms=60_000)
        lost.append(number)

    async def main():
        async with AsyncClient(daemon.socket) as d, anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(one, d, number)
            await _until_alive(somebody_alive, mark)
            os.kill(daemon.pid, signal.SIGKILL)

    run(main)
    assert sorted(lost) == [0, 1, 2]
    nothing_left(mark, 2)


@pytest.mark.skipif(os.getuid() != 0, reason="only root may count the descriptors of a daemon that is not dumpable")
def test_clients_that_come_and_go_cost_the_daemon_no_descriptor(standing_daemon):
    def descriptors():
        return len(os.listdir(f"/proc/{standing_daemon.pid}/fd"))

    with Client(standing_daemon.socket) as d:
        d.call("shell", {"argv": ["true"]})
        before = descriptors()
        for _ in range(20):
            with Client(standing_daemon.socket) as other, contextlib.suppress(RequestRefused):
                other.handle("c_none").result()
        until = time.monotonic() + 5
        while descriptors() > before and time.monotonic() < until:
            time.sleep(0.02)
        assert descriptors() <= before
