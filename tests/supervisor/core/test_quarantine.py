from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol._deadlines import NS_PER_MS
from supervisor.core.quarantine import (
    MOST_KEYS,
    Confirmed,
    Entered,
    Finished,
    Hung,
    Leaked,
    Left,
    Lost,
    Measure,
    Quarantine,
    QuarantineSettings,
)

S = 1_000 * NS_PER_MS
MINUTE = 60 * S


def in_force(machine: Quarantine, now_ns: int) -> set[tuple[str, str, str | None]]:
    return {(ward.measure.value, ward.tool, ward.key) for ward in machine.wards(now_ns)}


def hang(machine: Quarantine, keys: int, now_ns: int = 0) -> None:
    for number in range(keys):
        machine.on(Hung("t", f"k{number}", now_ns))


def test_the_second_loss_of_a_key_within_ten_minutes_poisons_it_for_ten_minutes():
    machine = Quarantine()
    assert machine.on(Lost("t", "k", 0)) == ()
    assert machine.refusal("t", "k", 0) is None
    (entered,) = machine.on(Lost("t", "k", 9 * MINUTE))
    assert isinstance(entered, Entered)
    assert (entered.ward.measure, entered.ward.key, entered.ward.until_ns) == (Measure.POISON, "k", 19 * MINUTE)
    assert machine.next_timer_ns() == 19 * MINUTE
    assert machine.refusal("t", "k", 19 * MINUTE - 1) == entered.ward
    assert machine.refusal("t", "other", 9 * MINUTE) is None
    assert machine.refusal("another", "k", 9 * MINUTE) is None
    assert machine.on_time(19 * MINUTE) == (Left(entered.ward),)
    assert machine.refusal("t", "k", 19 * MINUTE) is None


def test_losses_further_apart_than_the_window_poison_nothing():
    machine = Quarantine()
    for number in range(10):
        assert machine.on(Lost("t", "k", number * 10 * MINUTE)) == ()


def test_a_hang_poisons_nothing_however_often_one_call_hangs():
    machine = Quarantine()
    for now_ns in range(100):
        assert machine.on(Hung("t", "k", now_ns)) == ()
    assert machine.wards(100) == []


def test_a_call_that_ends_by_itself_clears_its_key():
    machine = Quarantine()
    machine.on(Lost("t", "k", 0))
    machine.on(Finished("t", "k", 1))
    assert machine.on(Lost("t", "k", 2)) == ()
    assert machine.refusal("t", "k", 2) is None


@pytest.mark.parametrize(("keys", "measure"), [(2, None), (3, "warn"), (4, "warn"), (5, "serial"), (7, "serial")])
def test_the_different_keys_that_hung_decide_a_tools_level(keys, measure):
    machine = Quarantine()
    hang(machine, keys)
    assert in_force(machine, 0) == ({(measure, "t", None)} if measure else set())
    assert machine.refusal("t", "new", 0) is None
    level = machine.level("t", 0)
    assert (level.measure.value if level else None) == measure


def test_the_eighth_key_opens_a_breaker_for_a_minute_behind_which_the_tool_runs_one_at_a_time():
    machine = Quarantine()
    hang(machine, 8)
    refusal = machine.refusal("t", "new", MINUTE - 1)
    assert refusal is not None
    assert (refusal.measure, refusal.until_ns) == (Measure.BREAKER, MINUTE)
    assert machine.refusal("t", "new", MINUTE) is None
    assert in_force(machine, MINUTE) == {("serial", "t", None)}
    (left, entered) = machine.on_time(MINUTE)
    assert isinstance(left, Left)
    assert isinstance(entered, Entered)
    assert (left.ward.measure, entered.ward.measure) == (Measure.BREAKER, Measure.SERIAL)


def test_behind_the_breaker_one_more_hang_opens_it_again_and_ten_quiet_minutes_clear_the_tool():
    machine = Quarantine()
    hang(machine, 8)
    (entered, *_) = [effect for effect in machine.on(Hung("t", "k0", 2 * MINUTE)) if isinstance(effect, Entered)]
    assert (entered.ward.measure, entered.ward.until_ns) == (Measure.BREAKER, 3 * MINUTE)
    assert in_force(machine, 10 * MINUTE) == set()  # seven of the keys are as old as the window
    machine.on_time(12 * MINUTE)
    assert not machine.knows("t")


def test_a_level_says_when_it_falls():
    machine = Quarantine()
    for number in range(6):
        machine.on(Hung("t", f"k{number}", number * MINUTE))
    (ward,) = machine.wards(5 * MINUTE)
    assert (ward.measure, ward.count, ward.until_ns) == (Measure.SERIAL, 6, 11 * MINUTE)
    assert in_force(machine, 11 * MINUTE - 1) == {("serial", "t", None)}
    assert in_force(machine, 11 * MINUTE) == {("warn", "t", None)}


def test_what_is_no_tools_fault_counts_for_the_key_alone():
    machine = Quarantine()
    for number in range(20):
        machine.on(Hung("shell", f"k{number}", 0, open_ended=True))
        machine.on(Lost("shell", f"l{number}", 0, open_ended=True))
    assert machine.wards(0) == []
    machine.on(Lost("shell", "l7", 1, open_ended=True))
    assert in_force(machine, 1) == {("poison", "shell", "l7")}


def test_a_tool_whose_kills_are_not_confirmed_is_refused_until_one_is():
    machine = Quarantine()
    for now_ns in range(2):
        assert machine.on(Leaked("t", now_ns)) == ()
    (entered,) = machine.on(Leaked("t", 2))
    assert isinstance(entered, Entered)
    assert (entered.ward.measure, entered.ward.count, entered.ward.until_ns) == (Measure.LEAKS, 3, None)
    assert machine.refusal("t", "any", 100 * MINUTE) == entered.ward
    assert machine.refusal("other", "any", 2) is None
    (left,) = machine.on(Confirmed("t", 100 * MINUTE))
    assert left == Left(entered.ward)
    assert machine.refusal("t", "any", 100 * MINUTE) is None


def test_limits_of_none_are_never_reached():
    machine = Quarantine(
        QuarantineSettings(poison_losses=None, warn_keys=None, serial_keys=None, breaker_keys=None, leaks=None)
    )
    for number in range(50):
        machine.on(Lost("t", f"k{number % 20}", 0))
        machine.on(Leaked("t", 0))
    assert machine.wards(0) == []


def test_what_is_remembered_is_bounded_and_the_oldest_goes():
    machine = Quarantine()
    for number in range(MOST_KEYS + 10):
        machine._lost(Lost("t", str(number), number))
    machine.on(Lost("t", "0", MOST_KEYS + 10))
    assert len(machine._tools["t"].keys) == MOST_KEYS
    machine.on(Lost("t", str(MOST_KEYS + 9), MOST_KEYS + 11))
    assert ("poison", "t", str(MOST_KEYS + 9)) in in_force(machine, MOST_KEYS + 11)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"window_ms": 0}, "window_ms = 0"),
        ({"leaks": -1}, "leaks = -1"),
        ({"warn_keys": 6}, "rising order"),
        ({"serial_keys": 9}, "rising order"),
        ({"serial_keys": None, "warn_keys": 9}, "rising order"),
    ],
)
def test_numbers_that_mean_nothing_are_refused(fields, said):
    with pytest.raises(ValueError, match=said):
        Quarantine(QuarantineSettings(**fields))


_INPUTS = st.tuples(
    st.sampled_from([Lost, Hung, Finished, Leaked, Confirmed]),
    st.sampled_from(["a", "b"]),
    st.sampled_from([str(number) for number in range(10)]),
    st.integers(0, 4 * MINUTE),
)


@given(st.lists(_INPUTS, max_size=80))
def test_entries_and_exits_always_add_up_to_what_is_in_force(inputs):
    machine, now_ns, told = Quarantine(), 1, set()
    for kind, tool, key, step_ns in inputs:
        now_ns += step_ns
        made = kind(tool, now_ns) if kind in (Leaked, Confirmed) else kind(tool, key, now_ns)
        for effect in (*machine.on(made), *machine.on_time(now_ns)):
            place = (effect.ward.measure.value, effect.ward.tool, effect.ward.key)
            told = told | {place} if isinstance(effect, Entered) else told - {place}
        assert told == {place for place in in_force(machine, now_ns) if place[0] != "warn"}
        timer = machine.next_timer_ns()
        assert timer is None or timer > now_ns
    machine.on_time(now_ns + 60 * MINUTE)
    assert all(measure == "leaks" for measure, _, _ in in_force(machine, now_ns + 60 * MINUTE))
