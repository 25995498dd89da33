"""What the daemon's process does before there is anything to run."""

from __future__ import annotations

import pytest

from supervisor.daemon import main


def test_an_empty_socket_is_refused_and_not_taken_for_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DEADLINED_SOCKET", "/" + "x" * 200)  # of no use: nothing starts, whatever is asked for
    assert main(None, "") == 2
    assert capsys.readouterr().err.startswith("deadlined: --socket: ")
