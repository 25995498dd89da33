from __future__ import annotations

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.plain_text import cleaned, is_binary, is_utf8

PIECES = st.binary(max_size=40) | st.sampled_from([b"\r", b"\x1b[31m", b"\x1b]0;t\x07", b"\x08", b"\n", "é😀".encode()])
RAW = st.lists(st.tuples(PIECES, st.integers(1, 40)), max_size=8).map(lambda parts: b"".join(p * n for p, n in parts))


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"\x1b[1;31mred\x1b[0m\n", "red\n"),
        (b"\x1b]0;title\x07text \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "text link"),
        (b"\x1b(Bplain\x1b7\x1b8\x1bc", "plain"),
        (b"cut escape \x1b[12;", "cut escape 12;"),
        (b" 10%\r 50%\r100%\r\ndone\r\n", "100%\ndone\n"),
        (b"downloading\r", "downloading"),
        (b"\r\r\n", "\n"),
        (b"|\x08/\x08-\x08done", "done"),
        (b"b\x08bo\x08ol\x08ld\x08d", "bold"),
        ("é\x08e".encode(), "e"),
        (b"bell\x07 null-free\x0c\x7f", "bell null-free"),
        ("c1\u009b31m".encode(), "c131m"),
        (b"tab\tand\n", "tab\tand\n"),
        ("mostly text, one bad \udcff byte".encode("utf-8", "surrogateescape"), "mostly text, one bad \ufffd byte"),
        (b"", ""),
    ],
)
def test_control_characters_are_gone_and_the_last_writing_stays(raw: bytes, shown: str) -> None:
    assert cleaned(raw).decode() == shown


@given(RAW)
def test_cleaning_twice_is_cleaning_once_and_never_grows_by_more_than_replacements(raw: bytes) -> None:
    once = cleaned(raw)
    assert cleaned(once) == once
    assert len(once) <= 3 * len(raw)


@given(RAW)
def test_no_line_end_comes_or_goes(raw: bytes) -> None:
    assert cleaned(raw).count(b"\n") == raw.count(b"\n")


# ------------------------------------------------------------------ is it text at all


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"head\xff\xfe\x00tail",  # B044
        b"text with \0 in it",
        b"./a\0./some/path\0./another\0",
        "%PDF is how a PDF begins, says this text é\n".encode() * 9_000,
        "数据-é\n".encode() * 100,
        b"\x1b[2K\rpull 1%" * 100,
        "cut in \u2603".encode()[:-1],
    ],
)
def test_text_with_a_few_odd_bytes_is_text(raw: bytes) -> None:
    assert not is_binary(raw)


@pytest.mark.parametrize(
    "raw",
    [b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", b"BZh91AY&SY\x00\x01", "text".encode("utf-16-le") * 5, bytes(100)],
)
def test_what_is_mostly_odd_or_begins_as_a_known_format_is_binary(raw: bytes) -> None:
    assert is_binary(raw)


@pytest.mark.parametrize("raw", [b"\xff", b"a\x80", "é".encode()[:1], "\u2603".encode()[:2] + b"\n", b"\xed\xa0\x80"])
def test_what_does_not_decode_is_told(raw: bytes) -> None:
    assert not is_utf8(raw, b"")


@given(st.text(), st.integers(0, 3), st.integers(0, 3))
def test_the_edges_of_windows_may_cut_characters(text: str, before: int, after: int) -> None:
    raw = text.encode() * 3
    cut = len(raw) // 2
    assert is_utf8(raw, b"")
    assert is_utf8(raw[: cut - before] or b"-", raw[cut + after :] or b"-")


@given(st.binary(max_size=60))
def test_a_window_is_utf8_only_if_all_but_its_edge_is(raw: bytes) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        decoder.decode(raw)
    except UnicodeDecodeError:
        assert not is_utf8(raw, b"-")
    else:
        assert is_utf8(raw, b"-")
