"""What a stop record says to do next: by what ends the wait of a run that is suspended."""

from __future__ import annotations

import pytest

from protocol._runs import RunReason, RunStatus
from supervisor.core.stop_records import hint_of, sentence


@pytest.mark.parametrize(
    ("status", "reason", "command"),
    [
        (RunStatus.WAITING_FOR_APPROVAL, RunReason.APPROVAL_REQUIRED, "deadlined approvals"),
        (RunStatus.WAITING_FOR_APPROVAL, RunReason.RECONCILE_REQUIRED, "deadlined effects close"),
        (RunStatus.NEEDS_INPUT, RunReason.MISSING_PARAMETER, "deadlined run resume"),
    ],
)
def test_a_suspended_run_names_the_command_that_lets_it_go_on(
    status: RunStatus, reason: RunReason, command: str
) -> None:
    said = sentence(status, reason, None, 1, "", 0, {}, 0)
    assert said.endswith(f" Next: {hint_of(status, reason)}.")
    assert {one for one in ("approvals", "effects close", "run resume") if one in said} == {
        command.removeprefix("deadlined ")
    }
