from __future__ import annotations

import pytest

from toolworkers.__main__ import main


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["zygote"],
        ["killer", "3", "4"],
        ["killer", "3", "4", "x"],
        ["killer", "-3", "4", "5"],
        ["zygote", "x", "{}"],
        ["?"],
    ],
)
def test_words_that_mean_nothing_exit_2_with_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    assert "started by the daemon" in said.err
