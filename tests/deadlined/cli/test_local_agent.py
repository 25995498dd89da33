"""`deadlined agent --local` where its run is lost, or ends while somebody wants to end it."""

import pytest

from deadlined._decisions import FunctionGateway
from deadlined._errors import DaemonNotRunning
from deadlined._run_words import RunOptions
from deadlined.cli._agent_wishes import Wanted
from deadlined.cli._local_agent import LocalAgent
from protocol import _client_messages as cm
from protocol._outcomes import ErrorClass, ErrorInfo
from protocol._runs import RunReason, RunStatus
from tests.deadlined.conftest import stop_record


def test_a_run_that_its_daemon_does_not_know_any_more_is_one_line(fake_daemon, fake_run, command, tmp_path):
    script = tmp_path / "s.toml"
    script.write_text('[[turn]]\ntext = "hello"\n')
    unknown = ErrorInfo(ErrorClass.ARGUMENT, "unknown_run", "no run 'r_1' is known here")
    ended = stop_record(RunStatus.CANCELLED, RunReason.CLIENT)
    fake_daemon.on[cm.WaitRun] = lambda m: [cm.Failed(m.id, unknown) if m.settled else cm.RunSettled(m.id, ended)]
    fake_daemon.on[cm.ListApprovals] = lambda m: []
    fake_daemon.on[cm.ReadEvents] = lambda m: [cm.Events(m.id, [], 0)]
    code, out, err = command("agent", "x", "--local", "--model", f"scripted:{script}")
    assert (code, out) == (125, "")
    assert err.splitlines()[-1] == "deadlined: the run cannot be steered any more: no run 'r_1' is known here"


def test_to_end_what_has_ended_by_itself_is_no_error(tmp_path):
    agent = LocalAgent(str(tmp_path / "nobody"), Wanted("x", None, (), False, RunOptions()), FunctionGateway(str))
    with pytest.raises(DaemonNotRunning):
        agent.start()
    agent.cancel()
