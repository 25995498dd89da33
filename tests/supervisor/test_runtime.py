"""The daemon's own directories."""

from __future__ import annotations

import os
import resource

import pytest

from supervisor.runtime import StateDirectory, StateError, TooFewDescriptorsError, reserve_descriptors

LIVING, KILLED, FORGOTTEN, THIRD = (letter * 16 for letter in "abcd")


def test_the_directory_is_private_and_a_life_takes_its_work_along(tmp_path):
    state = StateDirectory(str(tmp_path / "state"), LIVING)
    state.open()
    assert os.stat(state.path).st_mode & 0o077 == 0
    assert os.path.isdir(state.work)
    state.close()
    assert os.listdir(tmp_path / "state") == [LIVING]
    assert os.listdir(state.path) == ["outputs"]


def killed(parent, name) -> StateDirectory:
    """The directory of a daemon that was killed amid its work."""
    state = StateDirectory(str(parent), name)
    state.open()
    os.mkdir(os.path.join(state.work, "w1"))
    with open(state.journal, "x", encoding="ascii"):
        pass
    os.close(state._lock)
    return state


def test_a_killed_daemons_work_is_swept_and_its_journal_kept_for_a_week(tmp_path):
    living = StateDirectory(str(tmp_path), LIVING)
    living.open()
    recent, old = killed(tmp_path, KILLED), killed(tmp_path, FORGOTTEN)
    for path in (old.journal, old.path):
        os.utime(path, (1_000, 1_000))
    (tmp_path / "a stranger's").mkdir()
    third = StateDirectory(str(tmp_path), THIRD)
    third.open()
    third.sweep(oldest_s=2_000)
    expected = ["a stranger's", LIVING, f"{LIVING}.lock", KILLED, THIRD, f"{THIRD}.lock"]
    assert sorted(os.listdir(tmp_path)) == sorted(expected)
    assert sorted(os.listdir(recent.path)) == ["journal.db", "outputs"]
    assert sorted(os.listdir(living.path)) == ["outputs", "work"]
    third.close()
    living.close()


@pytest.mark.parametrize("place", ["", "outputs"])
def test_a_directory_that_others_may_write_to_is_refused(tmp_path, place):
    state = killed(tmp_path, KILLED)
    os.chmod(os.path.join(state.path, place), 0o770)
    with pytest.raises(StateError, match="chmod 700"):
        StateDirectory(str(tmp_path), KILLED).open()


def test_a_link_in_the_place_of_a_directory_is_refused(tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / KILLED).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StateError, match="no directory"):
        StateDirectory(str(tmp_path), KILLED).open()
    assert os.listdir(tmp_path / "elsewhere") == []


def test_a_second_owner_is_refused_and_takes_nothing_away(tmp_path):
    first = StateDirectory(str(tmp_path), "a")
    first.open()
    with pytest.raises(StateError):
        StateDirectory(str(tmp_path), "a").open()
    assert os.path.isdir(first.work)
    first.close()


def test_a_place_that_cannot_be_used_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="file"):
        StateDirectory(str(tmp_path / "file"), "a").open()


@pytest.fixture
def limits(monkeypatch):
    """RLIMIT_NOFILE as a pair that a test sets and reads, instead of this process's own."""
    held = [1024, 4096]
    monkeypatch.setattr(resource, "getrlimit", lambda _which: tuple(held))
    monkeypatch.setattr(resource, "setrlimit", lambda _which, pair: held.__setitem__(slice(None), pair))
    return held


def test_room_is_made_for_every_client_and_worker(limits):
    assert reserve_descriptors(clients=1000, workers=66) == 1788
    assert limits == [1788, 4096]


def test_a_soft_limit_that_is_enough_stays(limits):
    assert reserve_descriptors(clients=1, workers=1) == 1024
    assert limits == [1024, 4096]


def test_a_hard_limit_bounds_what_is_reserved(limits):
    assert reserve_descriptors(clients=60_000, workers=1) == 4096


def test_too_few_descriptors_are_refused_with_both_numbers(limits):
    limits[:] = [100, 200]
    with pytest.raises(TooFewDescriptorsError, match=r"only 200 files.*at least 640"):
        reserve_descriptors(clients=256, workers=66)


def test_a_state_directory_that_no_result_could_name_is_refused(tmp_path):
    with pytest.raises(StateError, match="UTF-8"):
        StateDirectory(f"{tmp_path}/\udcff", "name").open()


def test_what_an_earlier_daemon_of_the_same_name_left_does_not_delay_the_next(tmp_path):
    first = StateDirectory(str(tmp_path), "a")
    first.open()
    (tmp_path / "a" / "work" / "w1").mkdir()
    os.close(first._lock)
    second = StateDirectory(str(tmp_path), "a")
    second.open()
    assert os.listdir(second.work) == []
    second.sweep(0)
    assert sorted(os.listdir(tmp_path)) == ["a", "a.lock"]
    second.close()
