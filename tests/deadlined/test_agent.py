"""The loop as a library, against a scripted daemon: what leaving it does to its run."""

import msgspec
import pytest
import trio

from deadlined.agent import call, steer
from deadlined.async_client import AsyncClient
from protocol import _client_messages as cm
from protocol._runs import RunReason, RunStatus
from supervisor.core.retry import DEFAULT, DEMO
from tests.deadlined.conftest import run_view, stop_record


@pytest.fixture
def asked(fake_daemon, fake_run):
    """A daemon in which everything goes on and nothing stops, until a person is asked; the client's messages."""
    nothing = (cm.WaitRun, cm.ReadEvents)
    fake_daemon.on.update({kind: lambda m: [] for kind in nothing})
    fake_daemon.on[cm.ListApprovals] = lambda m: [cm.Approvals(m.id, [])]
    fake_daemon.on[cm.ListEffects] = lambda m: [cm.Effects(m.id, [])]
    fake_daemon.on[cm.KeepNotes] = fake_daemon.on[cm.StepRun]

    def ask(message):
        fake_run.stop = stop_record(RunStatus.NEEDS_INPUT, RunReason.MISSING_PARAMETER)
        return [cm.RunSettled(message.id, fake_run.stop)]

    fake_daemon.on[cm.AskPerson] = ask
    return fake_daemon.heard


async def test_cancelled_while_it_waits_for_a_person_it_ends_its_run_all_the_same(fake_daemon, fake_run, asked):
    async with AsyncClient(fake_daemon.path) as client, trio.open_nursery() as nursery:
        nursery.start_soon(steer, client, "x", lambda _: call("ask_user", question="which order?"))
        while not any(isinstance(message, cm.ReadEvents) for message in asked):
            await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    assert fake_run.stop.status is RunStatus.CANCELLED
    assert [message.run for message in asked if isinstance(message, cm.CancelRun)] == ["r_1"]


@pytest.mark.parametrize(("profile", "retry"), [("edit", DEFAULT), ("demo", DEMO)])
async def test_a_model_is_asked_again_as_the_profile_of_its_run_says(
    fake_daemon, fake_run, asked, monkeypatch, profile, retry
):
    class MadeError(Exception):
        pass

    def made(_conversation, _own, terms):
        raise MadeError(terms)

    monkeypatch.setattr("deadlined.agent.TurnMachine", made)
    fake_daemon.on[cm.ShowRun] = lambda m: [cm.RunState(m.id, msgspec.structs.replace(run_view(), profile=profile))]
    async with AsyncClient(fake_daemon.path) as client:
        with pytest.raises(MadeError) as raised:
            await steer(client, "x", lambda _: "done")
    assert raised.value.args[0].retry is retry
