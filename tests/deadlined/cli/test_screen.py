from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadlined.cli._screen import ScreenText, printable

PIECES = st.lists(
    st.sampled_from(
        ["\x1b", "[31m", "[", "0", "m", "]0;title", "\x07", "\\", "\r", "\n", "text", "é", "(B", "\x9b", "\x08"]
    )
    | st.text(max_size=5)
).map("".join)


def shown(*pieces: str) -> str:
    screen = ScreenText()
    return "".join([screen(piece) for piece in pieces] + [screen("", last=True)])


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("\x1b[31mFAILED\x1b[0m\n", "FAILED\n"),
        ("\x1b]0;evil title\x07text\x1b]8;;http://x\x1b\\link", "textlink"),
        ("pull 1%\rpull 2%\r\ndone\r\n", "pull 1%\npull 2%\ndone\n"),
        ("\x1b[2J\x1b[H\x1b(Bcleared\x1bc", "cleared"),
        ("bell\x07 back\x08 c1\x9b31m", "bell back c131m"),
        ("cut \x1b[31", "cut [31"),
        ("photo_\u202egnp.exe \u2066x\u2069", "photo_gnp.exe x"),
        ("never closed \x1b]0;title\nnext", "never closed ]0;title\nnext"),
    ],
)
def test_a_terminal_gets_text_without_sequences_and_a_line_for_each_redrawing(written: str, text: str) -> None:
    assert shown(written) == text
    assert shown(*written) == text, "in single characters"


@given(PIECES, st.integers(0, 60))
def test_no_control_character_comes_through_and_the_cuts_change_nothing(written: str, cut: int) -> None:
    whole = shown(written)
    assert printable(whole) == whole
    assert shown(written[:cut], written[cut:]) == whole


def test_a_sequence_that_never_ends_is_not_waited_for() -> None:
    screen = ScreenText()
    assert "x" * 5_000 in screen("\x1b]" + "x" * 5_000)
