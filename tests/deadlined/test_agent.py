"""The loop as a library, against a scripted daemon: what leaving it does to its run."""

import pytest
import trio

from deadlined.agent import call, steer
from deadlined.async_client import AsyncClient
from protocol import _client_messages as cm
from protocol._runs import RunReason, RunStatus
from tests.deadlined.conftest import stop_record


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
