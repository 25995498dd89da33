from __future__ import annotations

import pytest

from supervisor.core.key_lines import KeyLine, fitting, key_lines


def lines(text: bytes, start: int = 0, end: int | None = None, gap: int | None = None) -> list[bytes]:
    end = len(text) if end is None else end
    return [line.text for line in key_lines(text, start, end, len(text) if gap is None else gap)]


@pytest.mark.parametrize(
    "word", ["error", "FAIL", "Exception", "traceback", "panic", "assert", "warning", "denied", "exit"]
)
def test_each_word_makes_a_key_line_in_any_case(word: str) -> None:
    assert lines(f"one\nit says {word} here\nthree\n".encode()) == [f"it says {word} here".encode()]


def test_of_a_message_the_first_and_the_last_line_are_key_and_numbers_do_not_distinguish() -> None:
    text = b"".join(b"error at step %d\nok\n" % n for n in range(10))
    assert lines(text) == [b"error at step 0", b"error at step 9"]


def test_no_line_crosses_the_gap() -> None:
    text = b"an error he" + b"re\nno\n"
    assert lines(text, gap=11) == [b"an error he"]


def test_what_stands_outside_of_the_middle_is_left_alone() -> None:
    text = b"error 1\nerror two\nerror 3\n"
    assert lines(text, 8, 18) == [b"error two"]


def test_failures_fit_before_remarks_and_first_lines_before_last_ones() -> None:
    kept = [KeyLine(at, rank, b"x" * 84) for at, rank in ((0, 2), (100, 0), (200, 1), (300, 3))]
    assert [line.at for line in fitting(kept, 250)] == [100, 200]
    assert [line.at for line in fitting(kept, 350)] == [0, 100, 200]


def test_a_long_line_is_cut_between_code_points_and_costs_no_more_than_was_reckoned() -> None:
    for filler in ("x", "é", "😀"):
        line = KeyLine(0, 0, b"error" + filler.encode() * 240)
        said = line.numbered(4_294_967_295)
        assert said.startswith(b"4294967295: error")
        assert said.decode().endswith(f"{filler}…\n")
        assert len(said) <= line.cost
