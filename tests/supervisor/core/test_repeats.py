from __future__ import annotations

from protocol._deadlines import NS_PER_MS
from supervisor.core.repeats import OTHERS, Repeats, RepeatSettings

WINDOW_NS = 1_000 * NS_PER_MS


def repeats(burst: int = 3, kinds: int = 4) -> Repeats:
    return Repeats(RepeatSettings(burst, 1_000, kinds))


def test_the_first_of_a_kind_are_told_and_the_rest_of_the_window_is_not() -> None:
    machine = repeats()
    assert [machine.on_event("a", at) for at in range(6)] == [0, 0, 0, None, None, None]


def test_the_first_of_the_next_window_tells_how_many_were_left_out_and_the_second_does_not() -> None:
    machine = repeats()
    for at in range(10):
        machine.on_event("a", at)
    assert [machine.on_event("a", WINDOW_NS), machine.on_event("a", WINDOW_NS + 1)] == [7, 0]


def test_one_kind_takes_nothing_from_another() -> None:
    machine = repeats()
    for at in range(100):
        machine.on_event("a", at)
    assert machine.on_event("b", 100) == 0


def test_a_kind_that_has_fallen_silent_is_summed_up_once() -> None:
    machine = repeats()
    for at in range(10):
        machine.on_event("a", at)
        machine.on_event("quiet", 0) if at == 0 else None
    assert machine.over(WINDOW_NS - 1) == {}
    assert machine.over(WINDOW_NS) == {"a": 7}
    assert machine.over(WINDOW_NS) == {}
    assert machine.on_event("a", WINDOW_NS) == 0


def test_a_thousand_kinds_are_no_way_around_the_bound() -> None:
    machine = repeats(burst=3, kinds=4)
    told = [machine.on_event(f"kind {number}", 0) for number in range(1_000)]
    assert len([left_out for left_out in told if left_out is not None]) == 4 + 3
    assert machine.over(WINDOW_NS) == {OTHERS: 1_000 - 4 - 3}
