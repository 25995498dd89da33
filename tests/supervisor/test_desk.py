"""Where the raw output of a call that has not settled is read. (What the desk answers: tests/contract.)"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from protocol._contracts import Contract
from supervisor.core.intake import Judged
from supervisor.desk import _path_of
from supervisor.live_call import LiveCall

OWN, ANOTHERS = "/state/outputs/c_1.both", "/state/work/w1/out"


def live(kind: Any, **state: Any) -> LiveCall:
    call = LiveCall("c_1", 0, "c_1", Judged("t", Contract(kind=kind), "", "", 10**18, 0, 0), 0)
    for name, value in state.items():
        setattr(call, name, value)
    return call


@pytest.mark.parametrize("kind", ["python", "command"])
def test_a_call_without_a_worker_has_written_nothing(kind: str) -> None:
    assert _path_of(live(kind), "both") is None


def test_a_command_writes_to_its_own_files_from_the_beginning_to_the_end() -> None:
    stream: Any = SimpleNamespace(name="stderr", path="/state/outputs/c_1.stderr")
    for state in ({"streams": [stream]}, {"files": [stream.path, "/state/outputs/c_1.work"]}):
        assert _path_of(live("command", **state), "stderr") == stream.path
        assert _path_of(live("command", **state), "stdout") is None


def test_a_python_tool_prints_to_its_workers_file_until_it_has_ended_and_then_that_may_be_another_calls() -> None:
    worker: Any = SimpleNamespace(scratch=SimpleNamespace(output_path=ANOTHERS))
    assert _path_of(live("python", worker=worker), "both") == ANOTHERS
    assert _path_of(live("python", worker=worker, files=[OWN]), "both") == OWN
    assert _path_of(live("python", worker=worker, files=["/state/outputs/c_1.work"]), "both") is None
