"""What ``deadlined exec`` exits by when what came of its call cannot be told; the call itself is for contract tests."""

from __future__ import annotations

import os

import pytest

from deadlined.cli import exec as command
from tests.deadlined.test_exec_ending import ending


def exit_with_stdout(descriptor: int) -> int:
    kept = os.dup(1)
    os.dup2(descriptor, 1)
    try:
        return command.main(["--json", "--", "true"])
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(descriptor)


def test_a_result_that_a_full_disk_does_not_take_is_no_success(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "_call", lambda *_: ending("exited", 0))
    assert exit_with_stdout(os.open("/dev/full", os.O_WRONLY)) == 125
    assert "cannot be written: No space left" in capfd.readouterr().err


def test_a_reader_that_has_gone_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "_call", lambda *_: ending("exited", 7))
    reader, writer = os.pipe()
    os.close(reader)
    assert (exit_with_stdout(writer), capfd.readouterr().err) == (7, "")
