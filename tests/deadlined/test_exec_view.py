"""What a result of ``deadlined exec`` shows of what was captured."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from deadlined.cli.exec_capture import Capture
from deadlined.cli.exec_view import VIEW_BYTES, view


@pytest.fixture
def capture() -> Iterator[Capture]:
    made = Capture("both", (1, 2))
    yield made
    for descriptor in (made.raw, made.read_end, made.write_end):
        os.close(descriptor)


def test_a_short_output_is_its_own_view(capture: Capture) -> None:
    os.write(capture.raw, "grüße\n".encode())
    assert view([capture]) == ("grüße\n", True)


def test_nothing_is_shown_of_nothing(capture: Capture) -> None:
    assert view([capture]) == view([]) == ("", True)


@pytest.mark.parametrize("letter", [b"x", "ü".encode(), b"\xff", "\U0001f600".encode(), b"\0"])
@pytest.mark.parametrize("count", [3_000, 8_180, 50_000])
def test_a_long_view_has_both_ends_a_marker_and_its_bound(capture: Capture, letter: bytes, count: int) -> None:
    os.write(capture.raw, b"head" + letter * count + b"tail")
    text, valid = view([capture])
    assert len(text.encode()) <= VIEW_BYTES
    assert (text[:4], text[-4:], valid) == ("head", "tail", letter != b"\xff")
    assert f"of {capture.size()} bytes are missing here" in text or text.count(text[4]) == count


@pytest.mark.parametrize("lead", range(4))
@pytest.mark.parametrize("letter", ["ü", "☃", "\U0001f600"])
def test_a_cut_falls_between_characters(capture: Capture, letter: str, lead: int) -> None:
    os.write(capture.raw, b"x" * lead + letter.encode() * 20_000)
    text, valid = view([capture])
    assert valid
    assert set(text.replace("\n", "").partition("[")[0]) <= {"x", letter}
    assert set(text.rpartition("]")[2]) == {"\n", letter}


@pytest.mark.parametrize(
    ("raw", "shown", "valid"),
    [
        (b"head\xff\xfe\x00tail", "head\ufffd\ufffd\ufffdtail", False),
        (b"whole \xe2\x98", "whole \ufffd", False),
        (b"\x1b[2K\rpull 1%\x1b[2K\rpull 2%\n\x1b[31mFAILED\x1b[0m\n", "pull 2%\nFAILED\n", True),
        (b"\x1b]0;title\x07text\x9b\r\n", "text\ufffd\n", False),
        ("c1 \x9b2J\n".encode(), "c1 2J\n", True),
    ],
)
def test_bytes_become_text_as_in_the_views_of_the_daemon(capture: Capture, raw: bytes, shown: str, valid: bool) -> None:
    os.write(capture.raw, raw)
    assert view([capture]) == (shown, valid)
