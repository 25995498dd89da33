"""Delivery keys of clients: which call each stands for, for how long, and at what cost."""

from __future__ import annotations

from collections.abc import Callable

from supervisor import keys as module
from supervisor.core.idempotency import DeliveryKey, Earlier, Verdict, delivery_key
from supervisor.keys import Keys


def key(name: str, said: bytes = b"said", run: str | None = None) -> DeliveryKey:
    return delivery_key(0, run, name, said)


def all_are(earlier: Earlier) -> Callable[[str], Earlier]:
    return lambda _call: earlier


TOLD, NOTHING = all_are(Earlier.TOLD), all_are(Earlier.CAME_TO_NOTHING)


def test_a_second_delivery_names_the_first_call() -> None:
    keys = Keys()
    assert keys.claim(key("k"), "c_1", TOLD)[1:] == (Verdict.RUN, None)
    assert keys.claim(key("k"), "c_2", TOLD)[1:] == (Verdict.REPLAY, "c_1")
    assert keys.claim(key("k"), "c_3", all_are(Earlier.IN_FLIGHT))[1:] == (Verdict.WAIT, "c_1")


def test_what_is_not_run_takes_no_key() -> None:
    keys = Keys()
    keys.claim(key("k"), "c_1", TOLD)
    assert keys.claim(key("k", b"other"), "c_2", TOLD).verdict is Verdict.CONFLICT
    assert keys.claim(key("k"), "c_3", TOLD) == (key("k"), Verdict.REPLAY, "c_1")


def test_a_call_that_came_to_nothing_gives_its_key_to_the_next_delivery() -> None:
    keys = Keys()
    keys.claim(key("k"), "c_1", TOLD)
    assert keys.claim(key("k"), "c_2", NOTHING).verdict is Verdict.RUN
    assert keys.claim(key("k"), "c_3", TOLD).earlier == "c_2"


def test_a_key_that_is_released_is_new() -> None:
    keys = Keys()
    keys.recall(key("k").place, b"said", "c_1")
    keys.release(key("k").place)
    keys.release(key("another").place)
    assert keys.claim(key("k", b"other"), "c_2", TOLD)[1:] == (Verdict.RUN, None)


def test_the_oldest_key_is_forgotten_first_and_one_that_ran_again_is_not_old(monkeypatch) -> None:
    monkeypatch.setattr(module, "MOST", 2)
    keys = Keys()
    keys.claim(key("a"), "c_1", TOLD)
    keys.claim(key("b"), "c_2", TOLD)
    keys.claim(key("a"), "c_3", NOTHING)
    keys.claim(key("c"), "c_4", TOLD)
    assert keys.claim(key("a"), "c_5", TOLD).earlier == "c_3"
    assert keys.claim(key("b"), "c_6", TOLD).earlier is None


def test_a_key_as_long_as_a_frame_is_not_kept_as_such() -> None:
    keys = Keys()
    keys.claim(delivery_key(0, "r" * 1_000_000, "k" * 1_000_000, bytes(32)), "c_1", TOLD)
    assert len(repr(vars(keys))) < 1_000
