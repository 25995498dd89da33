"""The words of a run under Trio and asyncio; what answers mean is proven by test_runs and test_run_words."""

import anyio
import pytest

from deadlined import AsyncClient, RunStopped
from protocol import _client_messages as cm
from protocol._events import Event, EventKind
from protocol._runs import RunStatus
from tests.deadlined.conftest import run_view, stop_record


def heard(fake_daemon, kind):
    return [message for message in fake_daemon.heard if isinstance(message, kind)]


@pytest.fixture(params=["trio", "asyncio"])
def play(request, fake_daemon):
    """Play an async function with a client, bounded, on one of the two loops."""

    def play(function):
        async def bounded():
            with anyio.fail_after(20):
                async with AsyncClient(fake_daemon.path) as d:
                    await function(d)

        anyio.run(bounded, backend=request.param)

    return play


def test_a_run_steps_asks_calls_finds_and_finishes(play, fake_daemon, fake_run):
    async def main(d):
        async with d.run(profile="edit", limits={"steps": 25}) as run:
            assert await run.step() == run_view()
            async with run.model("m", max_in=8000, max_out=1000) as m:
                m.usage(tokens_in=700, tokens_out=90)
            assert (await run.call("search", {"pattern": "TODO"})).status == "ok"
            assert (await (await run.submit("search")).wait()).status == "ok"
            assert await run.evidence("new")
            fake_run.refused = "1 failed"
            assert (await run.finish()).feedback == "1 failed"
            fake_run.refused = None
            assert (await run.finish("done")).answer == "done"
        assert await run.wait() == run.stop == (await run.view()).stop

    play(main)
    assert [call.run for call in heard(fake_daemon, cm.Submit)] == ["r_1", "r_1"]
    [settled] = heard(fake_daemon, cm.SettleModel)
    assert (settled.reservation, settled.tokens_in, settled.tokens_out) == (7, 700, 90)
    assert not heard(fake_daemon, cm.CancelRun)


def test_a_run_that_may_not_go_on_raises_its_record(play, fake_run):
    async def main(d):
        async with d.run() as run:
            fake_run.stop = stop_record()
            for ask in (run.step, lambda: run.evidence("new")):
                with pytest.raises(RunStopped) as stopped:
                    await ask()
                assert stopped.value.stop == run.stop == fake_run.stop
            with pytest.raises(RunStopped):
                async with run.model("m"):
                    pytest.fail("the model was asked without a reservation")

    play(main)


def test_following_a_run_ends_with_it_also_when_it_had_ended_before(play, fake_daemon, fake_run):
    settled = Event(2, 0, EventKind.RUN_SETTLED, None, "r_1", 0, {}, "")
    fake_daemon.on[cm.ReadEvents] = lambda m: [cm.Events(m.id, [settled][m.after // 2 :], 2)]

    async def main(d):
        run = d.attach_run("r_1")
        assert [event async for event in run.events(follow=True)] == [settled]
        fake_run.stop = stop_record(RunStatus.COMPLETED)
        assert [event async for event in run.events(after=2, follow=True)] == []

    play(main)
    assert [message.wait_ms > 0 for message in heard(fake_daemon, cm.ReadEvents)] == [True, False]


def test_a_cancelled_task_settles_its_model_call_and_cancels_its_run(play, fake_daemon, fake_run):
    async def main(d):
        with anyio.move_on_after(0.05) as scope:
            async with d.run(on_disconnect="keep") as run, run.model("m"):
                await anyio.sleep_forever()
        assert scope.cancelled_caught
        assert run.stop.status == "cancelled"

    play(main)
    assert len(heard(fake_daemon, cm.SettleModel)) == len(heard(fake_daemon, cm.CancelRun)) == 1


def test_a_block_that_is_left_without_finish_cancels_what_is_not_to_be_kept(play, fake_daemon, fake_run):
    async def main(d):
        async with d.run(on_disconnect="keep"):
            pass
        assert not heard(fake_daemon, cm.CancelRun)
        async with d.run():
            pass
        assert heard(fake_daemon, cm.CancelRun)
        assert (await (await d.open_run()).cancel()).status == "cancelled"
        assert heard(fake_daemon, cm.OpenRun)[-1].on_disconnect == "keep"
        assert (await d.attach_run("r_1").view()).status == "cancelled"

    play(main)


def test_whoever_steers_says_what_its_model_does_and_what_it_needs_to_go_on(play, fake_daemon, fake_run):
    def going(message):
        return [cm.RunState(message.id, run_view())]

    fake_daemon.on |= {cm.RetryModel: going, cm.KeepNotes: going}
    fake_daemon.on[cm.ReadNotes] = lambda m: [cm.RunNotes(m.id, m.run, "at 3")]
    fake_daemon.on[cm.AskPerson] = lambda m: [cm.RunSettled(m.id, stop_record(RunStatus.NEEDS_INPUT))]
    fake_daemon.on[cm.StopRun] = lambda m: [cm.RunSettled(m.id, stop_record(RunStatus.PROVIDER_FAILED))]

    async def main(d):
        run = d.attach_run("r_1")
        assert await run.retry_model(delay_ms=250, detail="429") == run_view()
        await run.keep_notes("at 3")
        assert await run.notes() == "at 3"
        assert (await run.ask_person("which order?")).status == "needs_input"
        assert (await run.stop_for("auth")).status == "provider_failed"

    play(main)
    assert heard(fake_daemon, cm.RetryModel)[0].delay_ms == 250
    assert heard(fake_daemon, cm.KeepNotes)[0].notes == "at 3"
    assert heard(fake_daemon, cm.AskPerson)[0].question == "which order?"
    assert heard(fake_daemon, cm.StopRun)[0].reason == "auth"
