"""Durations and sizes as people type them: read strictly, said back so that they read well."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol._errors import QuantityError
from protocol._quantities import parse_duration_ms, parse_size_bytes, say_duration, say_size


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1ms", 1),
        ("250ms", 250),
        ("5s", 5_000),
        ("1.5s", 1_500),
        ("0.5s", 500),
        ("0.001s", 1),
        ("1.9999s", 1_999),
        ("00005s", 5_000),
        ("2m", 120_000),
        ("0.5m", 30_000),
        ("1h", 3_600_000),
        ("1.25h", 4_500_000),
        ("999999999999999ms", 999_999_999_999_999),
    ],
)
def test_a_duration_is_a_number_with_a_unit(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms


NO_DURATION = [
    *(
        "0",
        "0s",
        "0ms",
        "0.0s",
        "0.5ms",
        "-1s",
        "+1s",
        "nan",
        "nans",
        "inf",
        "infs",
        "abc",
        "",
        " ",
        "s",
        "ms",
        ".",
        ".s",
    ),
    *(
        ".5s",
        "5.s",
        "1..5s",
        "1.5.5s",
        "1,5s",
        "1_000s",
        "1e300",
        "1e3s",
        "0x10s",
        "5",
        "5.5",
        " 5s",
        "5s ",
        "5 s",
        "5S",
    ),
    *(
        "5sec",
        "5 minutes",
        "1h30m",
        "5µs",
        "5us",
        "5d",
        "٣s",
        "５s",
        "²s",
        "1\x00s",
        "--5s",
        "5ms5s",
        "1/2s",
        "True",
        "None",
    ),
    *("9" * 16 + "s", "9" * 5_000 + "ms", "0." + "9" * 5_000 + "s", "1" * 100_000),
]


@pytest.mark.parametrize("text", NO_DURATION, ids=lambda text: repr(text[:20]))
def test_anything_else_is_no_duration_and_the_error_says_what_is_allowed(text: str) -> None:
    with pytest.raises(QuantityError, match="allowed is a positive number with a unit: 250ms, 5s, 2m, 1h") as caught:
        parse_duration_ms(text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


@given(st.text(max_size=12))
def test_any_text_is_a_positive_duration_or_an_error(text: str) -> None:
    with contextlib.suppress(QuantityError):
        assert parse_duration_ms(text) >= 1


@given(st.integers(1, 10**9), st.sampled_from([("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)]))
def test_whole_numbers_are_exact_in_every_unit(number: int, unit: tuple[str, int]) -> None:
    assert parse_duration_ms(f"{number}{unit[0]}") == number * unit[1]


@given(st.integers(1, 10**9))
def test_three_decimals_of_a_second_are_exact_milliseconds(ms: int) -> None:
    assert parse_duration_ms(f"{ms // 1_000}.{ms % 1_000:03d}s") == ms


@pytest.mark.parametrize(
    ("text", "count"),
    [("1B", 1), ("512B", 512), ("64KiB", 65_536), ("8MiB", 8_388_608), ("1GiB", 1 << 30), ("007B", 7)],
)
def test_a_size_is_a_whole_number_with_a_unit(text: str, count: int) -> None:
    assert parse_size_bytes(text) == count


@pytest.mark.parametrize(
    "text",
    [
        "0B",
        "0",
        "1",
        "-1B",
        "1.5MiB",
        "1KB",
        "1kib",
        "1 KiB",
        "KiB",
        "",
        "abc",
        "nan",
        "1e3B",
        "1TiB",
        "٣B",
        "9" * 16 + "B",
    ],
)
def test_anything_else_is_no_size_and_the_error_says_what_is_allowed(text: str) -> None:
    with pytest.raises(QuantityError, match="allowed is a positive whole number with a unit: 512B, 64KiB, 8MiB, 1GiB"):
        parse_size_bytes(text)


@given(st.text(max_size=12))
def test_any_text_is_a_positive_size_or_an_error(text: str) -> None:
    with contextlib.suppress(QuantityError):
        assert parse_size_bytes(text) >= 1


@pytest.mark.parametrize(
    ("ms", "said"),
    [
        (0, "0 ms"),
        (0.04, "0.0 ms"),
        (0.4, "0.4 ms"),
        (1, "1 ms"),
        (9.94, "9.9 ms"),
        (9.96, "10 ms"),
        (350, "350 ms"),
        (999.4, "999 ms"),
        (999.6, "1.0 s"),
        (1_000, "1.0 s"),
        (2_001, "2.0 s"),
        (59_949, "59.9 s"),
        (59_999, "1 m 00 s"),
        (60_000, "1 m 00 s"),
        (90_000, "1 m 30 s"),
        (3_599_400, "59 m 59 s"),
        (3_599_999, "1 h 00 m"),
        (3_900_000, "1 h 05 m"),
        (90_000_000, "25 h 00 m"),
    ],
)
def test_a_duration_for_people_never_shows_a_full_next_unit(ms: float, said: str) -> None:
    assert say_duration(ms) == said


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (0, "0 B"),
        (512, "512 B"),
        (1_023, "1023 B"),
        (1_024, "1.0 KiB"),
        (65_536, "64.0 KiB"),
        ((1 << 20) - 1, "1.0 MiB"),
        (3 << 19, "1.5 MiB"),
        ((1 << 30) - 1, "1.0 GiB"),
        (3 << 29, "1.5 GiB"),
        (5 << 40, "5120.0 GiB"),
    ],
)
def test_a_size_for_people_never_shows_a_full_next_unit(count: int, said: str) -> None:
    assert say_size(count) == said


@given(st.integers(0, 10**9))
def test_what_is_said_of_a_duration_grows_with_it(ms: int) -> None:
    """Said shorter than it was, a deadline would look kept."""
    units = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
    words = say_duration(ms).split()
    said = sum(float(number) * units[unit] for number, unit in zip(words[::2], words[1::2], strict=True))
    assert abs(said - ms) <= max(0.5, 0.05 * units[words[1]], 500 if "m" in words else 0, 60_000 if "h" in words else 0)
