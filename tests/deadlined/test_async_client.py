"""Every claim under Trio and under asyncio: the client's shell is anyio's, and the two cancel differently."""

import asyncio
import os
import threading
import time

import anyio
import pytest
import trio

from deadlined import AsyncClient, ConnectionLost, DaemonNotRunning, DaemonSilent, RequestRefused
from protocol import _client_messages as cm
from protocol._outcomes import ErrorClass, ErrorInfo
from protocol._runs import ApprovalView, OpenEffect


@pytest.fixture(params=["trio", "asyncio"])
def run(request):
    """Run an async function to its end, bounded, on one of the two loops."""

    def run(function):
        async def bounded():
            with anyio.fail_after(20):
                await function()

        anyio.run(bounded, backend=request.param)

    return run


def _kinds(fake_daemon):
    return [type(message) for message in fake_daemon.heard]


async def _until_heard(fake_daemon, kind):
    while kind not in _kinds(fake_daemon):
        await anyio.sleep(0.001)


def test_no_daemon_says_how_to_start_one(run, tmp_path):
    async def main():
        with pytest.raises(DaemonNotRunning, match="start one with: deadlined serve --socket"):
            async with AsyncClient(str(tmp_path / "none")):
                pass

    run(main)


def test_a_daemon_that_lets_nobody_in_is_silent_and_not_absent(run, full_door):
    async def main():
        with pytest.raises(DaemonSilent, match=r"no connection from the daemon within 0\.1 s"):
            async with AsyncClient(full_door.path, answer_timeout_s=0.1):
                pass

    run(main)


def test_who_finds_the_door_full_waits_until_others_have_been_let_in(run, full_door):
    async def main():
        threading.Timer(0.05, full_door).start()
        async with await AsyncClient(full_door.path)._connect() as stream:
            await stream.send(b"words")

    run(main)


def test_many_calls_share_one_connection(run, fake_daemon):
    calls = []

    async def one(d):
        calls.append((await d.call("echo", {"a": 1})).call)

    async def main():
        async with AsyncClient(fake_daemon.path) as d, anyio.create_task_group() as tasks:
            for _ in range(200):
                tasks.start_soon(one, d)

    run(main)
    assert sorted(calls) == sorted(f"c_{n}" for n in range(1, 201))
    assert len(fake_daemon.connections) == 1


def test_a_handle_waits_cancels_and_reports(run, fake_daemon):
    async def main():
        async with AsyncClient(fake_daemon.path) as d:
            h = await d.submit("hang")
            assert (h.call, h.deadline_ms, await h.result()) == ("c_1", 5000, None)
            with anyio.move_on_after(0.01):
                await h.wait()
            assert await h.cancel()
            assert (await h.wait()).status == "cancelled"
            assert not await h.cancel()
            assert (await (await d.submit("echo", detach=True)).wait()).call == "c_2"
            assert (await d.handle("c_7").wait()).call == "c_7"

    run(main)


def test_a_cancelled_task_cancels_its_call_and_waits_for_the_end(run, fake_daemon):
    settled_first = []

    def slowly(message):
        time.sleep(0.2)
        settled_first.append("cancel heard")
        return fake_daemon.answers(message)

    fake_daemon.on[cm.Cancel] = slowly

    async def main():
        async with AsyncClient(fake_daemon.path) as d:
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(d.call, "hang")
                    await _until_heard(fake_daemon, cm.Submit)
                    scope.cancel()
            assert settled_first
            assert (await d.call("echo")).status == "ok"

    run(main)
    assert _kinds(fake_daemon) == [cm.Hello, cm.Submit, cm.Cancel, cm.Submit]


def test_a_cancel_around_the_client_itself_still_awaits_the_end(run, fake_daemon):
    async def main():
        with anyio.CancelScope() as scope:
            async with AsyncClient(fake_daemon.path) as d, anyio.create_task_group() as tasks:
                tasks.start_soon(d.call, "hang")
                await _until_heard(fake_daemon, cm.Submit)
                scope.cancel()
        assert scope.cancelled_caught

    run(main)
    assert _kinds(fake_daemon) == [cm.Hello, cm.Submit, cm.Cancel]


def test_the_wait_for_a_cancelled_calls_end_is_bounded(run, fake_daemon, monkeypatch):
    monkeypatch.setattr("deadlined.async_client.CANCEL_WAIT_S", 0.05)
    fake_daemon.on[cm.Cancel] = lambda m: []

    async def main():
        async with AsyncClient(fake_daemon.path) as d:
            with anyio.move_on_after(0.05) as scope:
                await d.call("hang")
            assert scope.cancelled_caught

    run(main)


def test_asyncios_own_cancel_reaches_the_daemon(fake_daemon):
    async def main():
        async with AsyncClient(fake_daemon.path) as d:
            task = asyncio.create_task(d.call("hang"))
            await _until_heard(fake_daemon, cm.Submit)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(d.call("hang"), 0.05)
            assert (await d.call("echo")).status == "ok"

    asyncio.run(main())
    assert _kinds(fake_daemon).count(cm.Cancel) == 2


def test_the_callers_own_error_comes_out_as_it_is(run, fake_daemon):
    async def main():
        with pytest.raises(KeyError, match="mine"):
            async with AsyncClient(fake_daemon.path):
                raise KeyError("mine")

    run(main)


def test_output_is_read_to_its_end(run, fake_daemon):
    chunks = [(0, b"ab", False), (2, b"", False), (2, b"c", True), (3, b"", True)]
    fake_daemon.on[cm.ReadOutput] = lambda m: [cm.OutputChunk(m.id, m.call, *chunks.pop(0))]

    async def main():
        async with AsyncClient(fake_daemon.path) as d:
            assert [data async for data in d.handle("c_1").output()] == [b"ab", b"c"]

    run(main)


def test_a_refused_request_is_typed_and_the_connection_goes_on(run, fake_daemon):
    error = ErrorInfo(ErrorClass.ARGUMENT, "unknown_call", "no call c_9 is known")
    fake_daemon.on[cm.Wait] = lambda m: [cm.Failed(m.id, error)]

    async def main():
        async with AsyncClient(fake_daemon.path) as d:
            with pytest.raises(RequestRefused):
                await d.handle("c_9").wait()
            assert (await d.call("echo")).status == "ok"

    run(main)


def test_bad_arguments_never_reach_the_daemon(run, fake_daemon):
    async def main():
        async with AsyncClient(fake_daemon.path) as d:
            with pytest.raises(ValueError, match="arguments"):
                await d.call("echo", {"x": float("nan")})
            assert (await d.call("echo")).status == "ok"

    run(main)
    assert _kinds(fake_daemon) == [cm.Hello, cm.Submit]


def test_a_daemon_that_goes_away_ends_every_waiting_call(run, fake_daemon):
    lost = []

    async def one(d):
        with pytest.raises(ConnectionLost):
            await d.call("hang")
        lost.append(1)

    async def main():
        async with AsyncClient(fake_daemon.path) as d:
            async with anyio.create_task_group() as tasks:
                for _ in range(5):
                    tasks.start_soon(one, d)
                await _until_heard(fake_daemon, cm.Submit)
                fake_daemon.close()
            with pytest.raises(ConnectionLost):
                await d.call("echo")

    run(main)
    assert len(lost) == 5


def test_a_stopped_daemon_is_told_from_none(run, fake_daemon):
    fake_daemon.on[cm.Hello] = lambda m: []

    async def main():
        with pytest.raises(DaemonSilent):
            async with AsyncClient(fake_daemon.path, answer_timeout_s=0.05):
                pass

    run(main)


def test_a_client_leaves_no_descriptor_behind(run, fake_daemon, tmp_path):
    async def main():
        async with AsyncClient(fake_daemon.path):
            pass
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            async with AsyncClient(fake_daemon.path) as d:
                await d.call("echo")
        with pytest.raises(DaemonNotRunning):
            async with AsyncClient(str(tmp_path / "none")):
                pass
        for connection in fake_daemon.connections[1:]:
            connection.close()
        assert len(os.listdir("/proc/self/fd")) <= before

    run(main)


async def test_a_trio_program_uses_it_natively(fake_daemon):
    async with AsyncClient(fake_daemon.path) as d:
        with trio.move_on_after(0.05) as scope:
            await d.call("hang")
        assert scope.cancelled_caught
        assert (await d.call("echo")).status == "ok"
    assert cm.Cancel in _kinds(fake_daemon)


def test_runs_people_and_metrics_are_asked_for(run, fake_daemon):
    approval = ApprovalView("a_1", 0, None, "c_1", "shell", "{}", "write", "pending", 1, 2)
    effect = OpenEffect("c_1", "shell", "r_1", 0, "KEY", 1)
    fake_daemon.on[cm.ListRuns] = lambda m: [cm.Runs(m.id, [])]
    fake_daemon.on[cm.ListApprovals] = lambda m: [cm.Approvals(m.id, [approval])]
    fake_daemon.on[cm.Decide] = lambda m: [cm.Decided(m.id, approval, m.decision)]
    fake_daemon.on[cm.ListEffects] = lambda m: [cm.Effects(m.id, [effect])]
    fake_daemon.on[cm.CloseEffect] = lambda m: [cm.EffectClosed(m.id, effect)]
    fake_daemon.on[cm.AskMetrics] = lambda m: [cm.Metrics(m.id, "text")]

    async def main():
        async with AsyncClient(fake_daemon.path) as d:
            assert await d.runs(all=True) == []
            assert await d.approvals(run="r_1") == [approval]
            assert (await d.approve("a_1", arguments={"x": 1}, scope="same_args")).call == "approve"
            assert (await d.reject("a_1", note="no")).call == "reject"
            assert await d.effects() == [effect]
            assert await d.close_effect("c_1", "done") == effect
            assert await d.metrics() == "text"

    run(main)
    approve, _ = [message for message in fake_daemon.heard if isinstance(message, cm.Decide)]
    assert (approve.arguments, approve.scope) == ('{"x":1}', "same_args")
