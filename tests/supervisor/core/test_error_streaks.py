from __future__ import annotations

from supervisor.core.error_streaks import MOST_CALLS, ErrorStreaks


def count(streaks: ErrorStreaks, tool: str = "t", call: str = "new", changes: int = 0) -> int:
    return streaks.before(tool, call, changes)[0]


def test_different_calls_of_one_tool_with_one_error_are_counted_once_each():
    streaks = ErrorStreaks()
    for call in "abcab":
        streaks.end("t", call, f"c_{call}", "E", 0)
    assert count(streaks) == 3
    assert count(streaks, call="a") == 2  # the call itself is no other
    assert count(streaks, tool="another") == 0


def test_a_success_another_code_and_a_change_of_state_begin_anew():
    for call, code, changes in (("s", None, 0), ("s", "F", 0), ("s", "E", 1)):
        streaks = ErrorStreaks()
        for one in "abc":
            streaks.end("t", one, "c", "E", 0)
        streaks.end("t", call, "c", code, changes)
        assert count(streaks, changes=changes) == (0 if code is None else 1)


def test_a_changed_state_is_seen_before_the_next_failure():
    streaks = ErrorStreaks()
    for one in "abc":
        streaks.end("t", one, "c", "E", 0)
    assert (count(streaks, changes=0), count(streaks, changes=1)) == (3, 0)


def test_calls_of_other_tools_and_ends_that_nobody_knows_change_nothing():
    streaks = ErrorStreaks()
    for one in "abc":
        streaks.end("t", one, "c", "E", 0)
        streaks.end("other", one, "c", None, 0)
        streaks.end("t", "lost", "c", "", 0)
    assert count(streaks) == 3


def test_a_streak_is_bounded():
    streaks = ErrorStreaks()
    for number in range(MOST_CALLS + 50):
        streaks.end("t", str(number), "c", "E", 0)
    assert count(streaks) == MOST_CALLS
