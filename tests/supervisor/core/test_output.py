from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.core.output import VIEW_BYTES, view_of, without_marker, without_place
from supervisor.core.plain_text import cleaned

PATH = "/var/lib/deadlined/outputs/c_1.both"
KIB = 1024
WORDS = ["error", "Warning", "ok", "ümlaut", "—", "x" * 300, "failed 17", "Traceback", "exit 3", "", "😀" * 40, "\t"]
LINES = st.lists(st.sampled_from(WORDS) | st.text(max_size=30), max_size=6).map(" ".join)
PIECES = (
    st.binary(max_size=40) | LINES.map(str.encode) | st.sampled_from([b"\r", b"\x1b[31m", b"\x1b]0;t\x07", b"\x08"])
)
REPEATED = st.tuples(PIECES, st.integers(1, 80), st.sampled_from([b"\n", b"", b"\r\n"]))
RAW = st.lists(REPEATED, max_size=8).map(lambda parts: b"".join((piece + end) * times for piece, times, end in parts))


def whole(raw: bytes, cap: int = VIEW_BYTES, path: str | None = PATH) -> str:
    return view_of(raw, b"", len(raw), path, cap=cap)


def marker(view: str) -> str:
    found = re.search(r"^\[… .*\]$", view, re.MULTILINE)
    assert found
    return found[0]


# ------------------------------------------------------------------ properties


@given(RAW, st.integers(0, 5_000), st.integers(1_024, 9_000), st.text(max_size=600))
@settings(deadline=None)
def test_a_view_never_exceeds_its_cap_and_a_view_of_a_view_is_the_view(
    raw: bytes, window: int, cap: int, path: str
) -> None:
    views = [view_of(raw, b"", len(raw), path, cap=cap)]
    if len(raw) > 2 * window > 0:
        views.append(view_of(raw[:window], raw[-window:], len(raw), path, cap=cap))
    for view in views:
        assert len(view.encode()) <= cap
        assert view_of(view.encode(), b"", len(view.encode()), path, cap=cap) == view
        assert not set(view) & {chr(code) for code in (*range(9), *range(11, 32), *range(127, 160))}


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"], include_characters="\n\t"), max_size=2_000))
def test_text_below_the_cap_is_unchanged(text: str) -> None:
    assert whole(text.encode()) == text


@given(RAW, st.integers(1_024, 4_000))
@settings(deadline=None)
def test_every_line_that_is_kept_is_in_the_output_and_in_its_place(raw: bytes, cap: int) -> None:
    view = whole(raw, cap)
    if view.startswith("[binary output"):
        return
    text = cleaned(raw).decode()
    if view == text:
        return
    head, tail = view.split(marker(view) + "\n", 1)
    head_fits = text.startswith(head) or (head.endswith("\n") and text.startswith(head[:-1]))
    assert head_fits
    if tail.startswith("[key lines among them:]\n") and "[the end:]\n" in tail:  # else a line of the output's own
        keys, tail = tail.removeprefix("[key lines among them:]\n").split("[the end:]\n", 1)
        lines = text.split("\n")
        for key in keys.removesuffix("\n").split("\n"):
            number, _, said = key.partition(": ")
            assert said.removesuffix("…") in lines[int(number) - 1]
    assert text.endswith(tail)


@given(RAW, st.integers(0, 3_000), st.integers(1_024, 4_000))
@settings(deadline=None)
def test_what_was_left_out_and_what_was_kept_add_up_to_the_raw_output(raw: bytes, window: int, cap: int) -> None:
    ends = raw.count(b"\n")
    views = [whole(raw, cap)]
    if len(raw) > 2 * window > 0:
        views.append(view_of(raw[:window], raw[-window:], len(raw), PATH, cap=cap, line_ends=ends))
    for view in views:
        if "\n[… left out: " not in f"\n{view}":
            continue
        missing, missing_lines, kept, kept_lines = map(int, re.findall(r"(\d+) (?:bytes|lines?)", marker(view)))
        assert missing + kept == len(raw)
        assert missing_lines + kept_lines == ends + (not raw.endswith(b"\n"))
        assert min(missing, missing_lines, kept, kept_lines) >= 0


@given(st.lists(st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=60), max_size=400))
@settings(deadline=None)
def test_of_plain_text_the_bytes_and_lines_kept_are_those_that_stand_around_the_marker(lines: list[str]) -> None:
    raw = "".join(f"{line}\n" for line in lines).encode()
    view = whole(raw, 1_024, path=None)
    if "[… left out: " not in view:
        return
    head, tail = view.split(marker(view) + "\n", 1)
    tail = tail.split("[the end:]\n")[-1]
    _, _, kept, kept_lines = map(int, re.findall(r"(\d+) (?:bytes|lines?)", marker(view)))
    assert kept == len(head.encode()) + len(tail.encode())
    assert kept_lines == head.count("\n") + tail.count("\n")


# ------------------------------------------------------------------ what is kept


def numbered(count: int, special: dict[int, str] | None = None) -> bytes:
    return "".join(f"{(special or {}).get(n, f'line {n} of the build')}\n" for n in range(1, count + 1)).encode()


def test_beginning_and_end_are_kept_at_line_ends_and_the_marker_says_what_is_missing_and_where_it_is() -> None:
    raw = numbered(5_000)
    view = whole(raw)
    assert view.startswith("line 1 of the build\n")
    assert view.endswith("line 5000 of the build\n")
    head, tail = view.split(marker(view) + "\n")
    assert head.endswith("of the build\n")
    assert tail.startswith("line ")
    kept_bytes, kept_lines = len(head.encode()) + len(tail.encode()), head.count("\n") + tail.count("\n")
    assert marker(view) == (
        f"[… left out: {len(raw) - kept_bytes} bytes in {5_000 - kept_lines} lines; "
        f"kept: {kept_bytes} bytes in {kept_lines} lines; whole output: {PATH}]"
    )


@pytest.mark.behaviour("M048")
def test_the_shares_are_forty_forty_twenty_and_unused_shares_go_to_the_end() -> None:
    view = whole(numbered(5_000))
    head, tail = view.split(marker(view) + "\n")
    assert 0.38 * VIEW_BYTES < len(head) <= 0.4 * VIEW_BYTES
    assert 0.56 * VIEW_BYTES < len(tail) <= 0.6 * VIEW_BYTES, "there are no key lines: their share is the end's"
    assert len(view.encode()) > VIEW_BYTES - 50, "less than two lines and a few digits are left over"


@pytest.mark.behaviour("M048")
def test_key_lines_of_the_middle_are_kept_with_their_numbers() -> None:
    special = {
        2_000: "src/a.c:14: error: too few arguments",
        2_500: "WARNING: deprecated",
        3_000: "Traceback (most recent call last):",
    }
    view = whole(numbered(5_000, special))
    for number, text in special.items():
        assert f"\n{number}: {text}\n" in view
    assert view.index("2000:") < view.index("2500:") < view.index("3000:") < view.index("[the end:]")


def test_of_a_repeated_message_the_first_and_the_last_line_are_kept() -> None:
    special = {number: f"error: step {number} broke at 0x{number:x}" for number in range(1_000, 4_000)}
    view = whole(numbered(5_000, special))
    keys = re.findall(r"^(\d+): error", view, re.MULTILINE)
    assert keys == ["1000", "3999"]


def test_failures_are_kept_before_warnings_when_both_do_not_fit() -> None:
    letters = ["".join(chr(97 + (n // 26**k) % 26) for k in range(3)) for n in range(2_000)]
    special = {1_000 + n: f"warning: {word}" for n, word in enumerate(letters)}
    special[2_990] = "the one error"
    view = whole(numbered(5_000, special))
    assert "2990: the one error\n" in view
    assert "1000: warning: aaa\n" in view


def test_first_lines_of_messages_are_kept_before_last_ones_and_fill_their_share() -> None:
    pairs = ["".join(chr(97 + (n // 26**k) % 26) for k in range(3)) for n in range(1_000) for _ in range(2)]
    view = whole(numbered(5_000, {1_000 + n: f"error: {word}" for n, word in enumerate(pairs)}))
    keys = view.partition("[key lines among them:]\n")[2].partition("[the end:]\n")[0]
    assert keys.startswith("1000: error: aaa\n1002: error: baa\n1004: ")
    assert 0.12 * VIEW_BYTES < len(keys) <= 0.2 * VIEW_BYTES


def test_a_key_line_that_the_end_shows_is_not_shown_twice() -> None:
    view = whole(numbered(5_000, {4_990: "an error", 4_850: "a failure"}))
    assert view.count("an error") == view.count("a failure") == 1
    assert "[key lines" not in view


def test_a_long_key_line_is_cut_between_code_points() -> None:
    view = whole(numbered(5_000, {2_500: "error " + "é" * 500}))
    line = next(line for line in view.split("\n") if line.startswith("2500: "))
    assert line.endswith("é…")
    assert len(line.encode()) < 260


def test_colours_count_as_bytes_of_the_lines_that_they_stand_in() -> None:
    line = b"\x1b[31mred\x1b[0m line\r\n"
    view = whole(line * 2_000)
    kept_lines = view.count("red line\n")
    kept = kept_lines * len(line)
    assert f"kept: {kept} bytes in {kept_lines} lines;" in marker(view)
    assert f"left out: {2_000 * len(line) - kept} bytes in {2_000 - kept_lines} lines;" in marker(view)


def test_a_line_that_is_cut_is_not_counted_as_kept() -> None:
    view = whole(b"<" + b"x" * 20_000 + b">")
    head, tail = view.split("\n" + marker(view) + "\n")
    kept = len(head) + len(tail)
    assert f"left out: {20_002 - kept} bytes in 1 line; kept: {kept} bytes in 0 lines;" in marker(view)


def test_one_endless_line_is_cut_between_code_points() -> None:
    for filler in ("x", "é", "😀"):
        view = whole(("<" + filler * 20_000 + ">").encode())
        head, tail = view.split("\n" + marker(view) + "\n")
        assert set(head) == {"<", filler}
        assert set(tail) == {filler, ">"}


def test_of_a_large_output_both_windows_are_shown_and_the_marker_says_so() -> None:
    window = 256 * KIB
    raw = numbered(40_000, {5_000: "error in the first window", 38_000: "error in the last window"})
    view = view_of(raw[:window], raw[-window:], len(raw), PATH)
    assert view.startswith("line 1 of")
    assert view.endswith("line 40000 of the build\n")
    assert "5000: error in the first window\n" in view
    assert "-2001: error in the last window\n" in view, "counted from the end: the numbers from the start are not known"
    kept = len(view.split(marker(view))[0]) + len(view.split("[the end:]\n")[1])
    assert marker(view).startswith(f"[… left out: {len(raw) - kept} bytes; kept: {kept} bytes (looked at: its first ")


def test_once_somebody_has_counted_the_lines_of_a_large_output_they_are_told_and_number_its_key_lines() -> None:
    window = 256 * KIB
    raw = numbered(40_000, {38_000: "error in the last window"})
    view = view_of(raw[:window], raw[-window:], len(raw), PATH, line_ends=40_000)
    assert "\n38000: error in the last window\n" in view
    missing, missing_lines, kept, kept_lines = map(int, re.findall(r"(\d+) (?:bytes|lines)", marker(view)))
    assert (missing + kept, missing_lines + kept_lines) == (len(raw), 40_000)
    assert kept_lines == view.split(marker(view))[0].count("\n") + view.split("[the end:]\n")[1].count("\n")


def test_windows_that_touch_or_overlap_are_one_text() -> None:
    raw = numbered(5_000)
    touching = view_of(raw[:50_000], raw[50_000:], len(raw), PATH)
    overlapping = view_of(raw[:60_000], raw[40_000:], len(raw), PATH)
    assert touching == overlapping == whole(raw)


def test_an_end_that_shows_nothing_is_not_replaced_by_the_end_of_the_first_window() -> None:
    view = view_of(numbered(5_000), b"\x1b[m" * 100, 1_000_000, PATH)
    assert view.endswith(marker(view) + "\n")


def test_lines_cut_by_a_windows_edge_are_not_shown_as_lines() -> None:
    view = view_of(b"first\nerror cut he", b"re: error\nlast\n", 1_000_000, PATH)
    assert "cut he" not in view
    assert "re: error" not in view
    assert view.startswith("first\n[… ")
    assert view.endswith("]\nlast\n")


# ------------------------------------------------------------------ what is no text


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "PNG image"),
        (b"\x7fELF\x02\x01\x01\0\0", "ELF program"),
        (b"\x1f\x8b\x08\0\0\0", "gzip data"),
        ("\ufeffhello".encode("utf-16-le"), "UTF-16 text"),
        (bytes(range(128, 256)) * 10, "unknown type"),
        (bytes(range(1, 27)) * 10, "unknown type"),
    ],
)
def test_binary_output_is_told_by_type_size_digest_and_place(raw: bytes, kind: str) -> None:
    view = view_of(raw, b"", len(raw), PATH, digest="ab" * 32)
    assert view == f"[binary output: {kind}, {len(raw)} bytes, sha256 {'ab' * 32}; whole output: {PATH}]\n"


def test_a_binary_end_makes_the_whole_binary() -> None:
    view = view_of(b"text\n" * 100, b"\0" * 500, 1_000_000, None)
    assert view == "[binary output: unknown type, 1000000 bytes]\n"


def test_a_path_cannot_break_the_view() -> None:
    assert marker(whole(numbered(5_000), path="/x/\n\x1b[31mred/c_1")).endswith("; whole output: /x/?red/c_1]")
    long = marker(whole(numbered(5_000), path="/" + "é" * 5_000 + "/c_1.both"))
    assert long.endswith("é/c_1.both]")
    assert len(long.encode()) < 600


def test_a_cap_too_small_for_a_view_is_refused() -> None:
    with pytest.raises(ValueError, match="1024"):
        whole(b"", cap=1_023)


@pytest.mark.parametrize(
    "unit", [b"\x1b", b"\x1b]", b"\x1b[1;1", b"a\x08", b"\r", b"a\rb\n", b"error: x\n", b"\xc2\xa0"]
)
def test_hostile_output_is_seen_in_full_and_stays_bounded(unit: bytes) -> None:
    raw = (unit * (512 * KIB))[: 512 * KIB]
    assert len(whole(raw).encode()) <= VIEW_BYTES


@pytest.mark.parametrize(
    "raw",
    [
        b"line\n" * 5_000,
        b"x" * 20_000,
        b"\x7fELF" + bytes(range(256)),
        b"error: a\n" * 3_000,
        b"short\n",
        b"",
    ],
)
@pytest.mark.parametrize(
    "other", ["/var/lib/deadlined/outputs/c_2.both", "/odd/]; whole output: x]/\n/c_3", "/" + "é" * 900]
)
def test_a_view_without_its_place_is_the_same_wherever_the_whole_lies(raw: bytes, other: str) -> None:
    said = without_place(whole(raw))
    assert PATH not in said
    assert without_marker(whole(raw)) == without_marker(said)
    if len(other) == len(PATH):  # a longer path leaves less room for the output
        assert without_place(whole(raw, path=other)) == said
    assert other[:6] not in without_place(whole(raw, path=other))


def test_a_view_without_its_marker_says_nothing_of_how_much_there_was() -> None:
    one, more = (b"a line of output\n" * count for count in (5_000, 5_001))
    assert without_place(whole(one)) != without_place(whole(more))
    assert without_marker(whole(one)) == without_marker(whole(more))


def test_what_a_program_writes_in_brackets_stays() -> None:
    text = "[ok]\n[left out: 3]\n[… and so on]\n"
    assert without_place(text) == without_marker(text) == text
