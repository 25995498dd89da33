from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol._deadlines import NS_PER_MS
from supervisor.core.respawn import (
    Cause,
    Healthy,
    Refill,
    Respawn,
    RespawnSettings,
    Unhealthy,
    Wait,
    pool_breaker,
)

S = 1_000 * NS_PER_MS
HARMLESS = [Cause.PLANNED, Cause.DEADLINE_KILL, Cause.CANCEL_KILL, Cause.KILL_UNCONFIRMED]
COUNTED = [Cause.CRASH, Cause.OOM, Cause.PROTOCOL_ERROR, Cause.START_FAILURE, Cause.IDLE_DEATH]
BACKING_OFF = [Cause.START_FAILURE, Cause.IDLE_DEATH]


def opened(machine: Respawn, now_ns: int) -> int:
    """Crash until the breaker opens; the instant of the first probe."""
    for _ in range(6):
        effects = machine.on_ended(Cause.CRASH, now_ns, 0)
    assert isinstance(effects[0], Unhealthy)
    return effects[0].probe_ns


@pytest.mark.parametrize("cause", [cause for cause in Cause if cause not in BACKING_OFF])
def test_an_end_that_is_no_start_failure_is_refilled_at_once(cause: Cause) -> None:
    machine = Respawn()
    assert machine.on_ended(cause, 7, 1.0) == (Refill(),)
    assert machine.may_spawn(7)


@pytest.mark.parametrize("cause", HARMLESS)
def test_kills_and_planned_ends_never_shut_the_pool(cause: Cause) -> None:
    machine = Respawn()
    for now_ns in range(10_000):
        assert machine.on_ended(cause, now_ns, 1.0) == (Refill(),)
    assert machine.healthy
    assert machine.next_timer_ns() is None


@pytest.mark.parametrize("cause", BACKING_OFF)
def test_the_back_off_doubles_with_full_jitter_up_to_its_cap(cause: Cause) -> None:
    settings = RespawnSettings(class_ends=50, class_window_ms=10**9, pool_ends=50, pool_window_ms=10**9)
    machine, now_ns, waits = Respawn(settings), 1 * S, []
    for _ in range(10):
        (effect,) = machine.on_ended(cause, now_ns, 0.5)
        assert isinstance(effect, Wait)
        waits.append((effect.until_ns - now_ns) // NS_PER_MS)
        assert not machine.may_spawn(effect.until_ns - 1)
        assert machine.next_timer_ns() == effect.until_ns
        now_ns = effect.until_ns
        assert machine.may_spawn(now_ns)
    assert waits == [50, 100, 200, 400, 800, 1_600, 3_200, 6_400, 7_500, 7_500]


def test_a_draw_of_nothing_waits_for_nothing() -> None:
    assert Respawn().on_ended(Cause.START_FAILURE, 1, 0.0) == (Refill(),)


def test_starts_that_fail_together_are_one_failure() -> None:
    machine = Respawn()
    first = machine.on_ended(Cause.START_FAILURE, 0, 1.0)
    for _ in range(20):
        assert machine.on_ended(Cause.START_FAILURE, 0, 0.1) == first
    assert machine.healthy
    assert machine.may_spawn(100 * NS_PER_MS)


def test_spares_that_die_together_back_off_once_but_all_of_them_count() -> None:
    machine = Respawn()
    for _ in range(5):
        assert machine.on_ended(Cause.IDLE_DEATH, 0, 1.0) == (Wait(100 * NS_PER_MS),)
    assert isinstance(machine.on_ended(Cause.IDLE_DEATH, 0, 1.0)[0], Unhealthy)


@pytest.mark.parametrize("cause", [Cause.CRASH, Cause.OOM, Cause.PROTOCOL_ERROR])
def test_a_worker_that_dies_of_its_call_counts_against_the_tool_and_not_against_the_pool(cause: Cause) -> None:
    machine = Respawn()
    for now_ns in range(1_000):
        assert machine.on_ended(cause, now_ns, 1.0, serving=True) == (Refill(),)
    assert machine.healthy


def test_only_a_finished_call_and_thirty_seconds_of_life_reset_the_back_off() -> None:
    def wait_after(lived_ns: int, served: int) -> int:
        machine = Respawn()
        for now_ns in (0, 1 * S, 2 * S):
            machine.on_ended(Cause.START_FAILURE, now_ns, 1.0)
            assert machine.may_spawn(now_ns + S)
        machine.on_ended(Cause.PLANNED, 3 * S, 1.0, served, lived_ns)
        (effect,) = machine.on_ended(Cause.START_FAILURE, 4 * S, 1.0)
        assert isinstance(effect, Wait)
        return (effect.until_ns - 4 * S) // NS_PER_MS

    assert wait_after(30 * S, 1) == 100
    assert wait_after(30 * S - 1, 1) == 800
    assert wait_after(30 * S, 0) == 800


def test_a_living_worker_is_proof_too() -> None:
    machine = Respawn()
    machine.on_ended(Cause.START_FAILURE, 0, 1.0)
    assert machine.may_spawn(1 * S)
    machine.on_finished(31 * S, 30 * S)
    assert machine.on_ended(Cause.START_FAILURE, 32 * S, 1.0) == (Wait(32 * S + 100 * NS_PER_MS),)


@pytest.mark.parametrize("cause", COUNTED)
def test_one_end_more_than_a_class_bears_opens_its_breaker(cause: Cause) -> None:
    machine = Respawn()
    for second in range(5):
        machine.on_ended(cause, second * S, 0)
        assert machine.healthy
        assert machine.may_spawn(second * S)
    assert machine.on_ended(cause, 5 * S, 0) == (Unhealthy(35 * S),)
    assert not machine.healthy
    assert not machine.may_spawn(35 * S - 1)
    assert machine.next_timer_ns() == 35 * S


def test_ends_outside_the_window_are_forgotten() -> None:
    machine = Respawn()
    for number in range(100):
        machine.on_ended(Cause.CRASH, number * 6 * S, 0)
        assert machine.healthy


def test_classes_share_the_pools_limit() -> None:
    settings = RespawnSettings()
    shared = pool_breaker(settings)
    classes = [Respawn(settings, shared) for _ in range(3)]
    for number in range(10):
        classes[number % 3].on_ended(Cause.CRASH, number * S, 0)
    assert all(machine.healthy for machine in classes)
    assert classes[0].on_ended(Cause.CRASH, 10 * S, 0) == (Unhealthy(40 * S),)
    assert not any(machine.healthy for machine in classes)
    assert not classes[2].may_spawn(39 * S)
    assert classes[2].may_spawn(40 * S)
    assert not classes[1].may_spawn(40 * S), "one probe for all"
    classes[2].on_ready(41 * S)
    assert all(machine.healthy for machine in classes)


def test_after_the_wait_one_probe_may_start_and_its_readiness_closes_the_breaker() -> None:
    machine = Respawn()
    probe_ns = opened(machine, 0)
    assert machine.may_spawn(probe_ns)
    assert not machine.may_spawn(probe_ns)
    assert not machine.healthy
    assert machine.on_ready(probe_ns + 1) == (Healthy(),)
    assert machine.healthy
    assert machine.may_spawn(probe_ns + 1)


def test_a_worker_started_before_the_breaker_opened_does_not_close_it() -> None:
    machine = Respawn()
    opened(machine, 0)
    machine.on_ready(1)
    machine.on_finished(40 * S, 40 * S)
    assert not machine.healthy


@pytest.mark.parametrize("cause", COUNTED)
def test_a_failed_probe_doubles_the_wait_up_to_five_minutes(cause: Cause) -> None:
    machine, waits = Respawn(), []
    now_ns = opened(machine, 0)
    for _ in range(6):
        assert machine.may_spawn(now_ns)
        (effect,) = machine.on_ended(cause, now_ns, 0)
        assert isinstance(effect, Wait)
        waits.append((effect.until_ns - now_ns) // S)
        now_ns = effect.until_ns
    assert waits == [60, 120, 240, 300, 300, 300]


def test_the_wait_starts_small_again_only_after_a_proof() -> None:
    def second_opening(proven: bool) -> int:
        machine = Respawn()
        now_ns = opened(machine, 0)
        assert machine.may_spawn(now_ns)
        machine.on_ready(now_ns)
        machine.on_finished(now_ns, 30 * S if proven else 1 * S)
        now_ns += 100 * S  # the pool's own window has forgotten the first six
        return (opened(machine, now_ns) - now_ns) // S

    assert second_opening(proven=True) == 30
    assert second_opening(proven=False) == 60


def test_a_probe_that_is_never_heard_of_is_followed_by_another() -> None:
    machine = Respawn()
    now_ns = opened(machine, 0)
    assert machine.may_spawn(now_ns)
    assert machine.next_timer_ns() == now_ns + 30 * S
    assert machine.may_spawn(now_ns + 30 * S)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([*Cause, "ready", "finished", "spawn"]), st.integers(0, 40 * S), st.floats(0, 1, width=16)
        ),
        max_size=80,
    )
)
def test_the_machine_is_total_and_never_leaves_its_caller_without_a_timer(
    inputs: list[tuple[object, int, float]],
) -> None:
    machine, now_ns = Respawn(), 0
    for what, step_ns, draw in inputs:
        now_ns += step_ns
        if isinstance(what, Cause):
            machine.on_ended(what, now_ns, draw, served=1, lived_ns=step_ns)
        elif what == "ready":
            machine.on_ready(now_ns)
        elif what == "finished":
            machine.on_finished(now_ns, step_ns)
        elif not machine.may_spawn(now_ns):
            at_ns = machine.next_timer_ns()
            assert at_ns is not None
            assert now_ns < at_ns <= now_ns + 300 * S
            assert machine.may_spawn(at_ns)
            now_ns = at_ns


@pytest.mark.parametrize(
    "wrong",
    [
        {"class_ends": 1},
        {"pool_ends": 1},
        {"class_window_ms": 3_000, "class_ends": 5},
        {"pool_ends": 12},
        {"delay_cap_ms": 30_000},
        {"delay_cap_ms": 50},
        {"probe_cap_ms": 1_000},
        {"first_delay_ms": 0},
        {"proven_ms": -1},
    ],
)
def test_settings_in_which_back_off_and_limit_can_never_both_fire_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"allowed|cap"):
        Respawn(RespawnSettings(**wrong))


@given(st.integers(1, 2_000), st.integers(1, 60_000), st.integers(1, 12), st.integers(1, 120_000))
def test_accepted_settings_really_let_both_fire(first_ms: int, cap_ms: int, ends: int, window_ms: int) -> None:
    settings = RespawnSettings(
        first_delay_ms=first_ms,
        delay_cap_ms=cap_ms,
        class_ends=ends,
        class_window_ms=window_ms,
        pool_ends=ends,
        pool_window_ms=window_ms,
    )
    try:
        machine = Respawn(settings)
    except ValueError:
        return
    now_ns, backed_off = 0, False
    for _ in range(ends + 1):
        (effect,) = machine.on_ended(Cause.START_FAILURE, now_ns, 1.0)
        backed_off = backed_off or isinstance(effect, Wait)
        now_ns = machine.next_timer_ns() or now_ns
        assert machine.may_spawn(now_ns)
    assert backed_off
    assert not machine.healthy
