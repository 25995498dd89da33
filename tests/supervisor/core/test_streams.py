from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.core.output import VIEW_BYTES, view_of
from supervisor.core.streams import Seen, view_of_streams


def stream(name: str, raw: bytes) -> Seen:
    return Seen(name, raw, b"", len(raw), f"/outputs/c_1.{name}")


def test_one_stream_alone_has_no_heading() -> None:
    assert view_of_streams([stream("stderr", b"oops\n")]) == "oops\n"
    assert view_of_streams([]) == ""


def test_two_streams_are_shown_under_their_names() -> None:
    view = view_of_streams([stream("stdout", b"step-1-of-9"), stream("stderr", b"oops\n")])
    assert view == "[stdout]\nstep-1-of-9\n[stderr]\noops\n"


def test_of_two_long_streams_both_are_shown_cut() -> None:
    view = view_of_streams([stream("stdout", b"x" * 70_000), stream("stderr", b"y" * 70_000)])
    assert view.count("left out: ") == 2
    assert abs(view.count("xxxx") - view.count("yyyy")) < 10
    assert VIEW_BYTES - 120 < len(view.encode()) <= VIEW_BYTES


def test_what_a_short_stream_leaves_unused_is_the_long_ones() -> None:
    for first, second in ((b"short\n", b"line\n" * 9_000), (b"line\n" * 9_000, b"short\n")):
        view = view_of_streams([stream("stdout", first), stream("stderr", second)])
        assert "short\n" in view
        assert VIEW_BYTES - 120 < len(view.encode()) <= VIEW_BYTES


@given(st.binary(min_size=1, max_size=9_000), st.binary(min_size=1, max_size=9_000), st.integers(2_200, 9_000))
@settings(deadline=None)
def test_two_streams_never_exceed_the_cap_together(first: bytes, second: bytes, cap: int) -> None:
    view = view_of_streams([stream("stdout", first), stream("stderr", second)], cap)
    assert len(view.encode()) <= cap
    assert view_of(view.encode(), b"", len(view.encode()), None, cap=cap) == view
