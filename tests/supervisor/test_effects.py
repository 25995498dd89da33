"""Open effects in memory: who sees them, who closes them, and how many there may be."""

from __future__ import annotations

import os
from typing import Any

import pytest

from protocol import CallResult, Contract, Delivery, Status
from protocol import _client_messages as cm
from supervisor.core.intake import Judged
from supervisor.effects import Effects
from supervisor.journal.effect_rows import EffectRow
from supervisor.live_call import LiveCall

OWNER, STRANGER = 61_000, 61_001


class FakeJournal:
    """Takes everything; who waits for the disk hears ``durable``, or has to wait while that is None."""

    trouble = None

    def __init__(self) -> None:
        self.durable: bool | None = True
        self.appended: list[tuple[Any, ...]] = []
        self.waiting: list[Any] = []

    def append(self, changes: Any, then: Any = None, keep: bool = True) -> None:
        self.appended.append(changes)
        if then is not None and self.durable is None:
            self.waiting.append(then)
        elif then is not None:
            then(self.durable)

    @property
    def notes(self) -> list[str]:
        return [change.event.kind for changes in self.appended for change in changes if change.event]


class FakeAsker:
    def __init__(self, uid: int = OWNER) -> None:
        self.uid = uid
        self.heard: list[Any] = []

    def say(self, message: Any) -> None:
        self.heard.append(message)


def effect(
    call: str, run: str | None = None, uid: int = OWNER, arguments: str = "{}", fp: str | None = None
) -> EffectRow:
    return EffectRow(call, "pay", run, uid, "key", 5, arguments, None, fp)


def make(*found: EffectRow, most: int = 100) -> tuple[Effects, FakeJournal]:
    journal: Any = FakeJournal()
    effects = Effects(journal, most)
    effects.recall(list(found))
    return effects, journal


def listed(effects: Effects, uid: int = OWNER, run: str | None = None) -> Any:
    asker: Any = FakeAsker(uid)
    effects.take(asker, cm.ListEffects(1, run), lambda _call, _uid: None)
    return asker.heard[0]


def close(effects: Effects, call: str, note: str = "seen to", uid: int = OWNER, found: Any = None) -> FakeAsker:
    asker: Any = FakeAsker(uid)
    effects.take(asker, cm.CloseEffect(1, call, note), lambda _call, _uid: found)
    return asker


def names(answer: Any) -> list[str]:
    return [one.call for one in answer.effects]


def settled(call: str, delivery: Delivery = Delivery.UNKNOWN, **judged: Any) -> tuple[LiveCall, CallResult]:
    contract = Contract(read_only=judged.pop("read_only", False))
    live = LiveCall(call, OWNER, "key", Judged("pay", contract, "", "{}", 10**18, 0, 0, **judged), 0)
    live.call_fp = "fp"
    return live, CallResult(call, "pay", Status.KILLED, delivery=delivery)


# ---------------------------------------------------------------- which are open


@pytest.mark.parametrize("delivery", [one for one in Delivery if one is not Delivery.UNKNOWN])
def test_what_is_known_is_no_open_effect(delivery: Delivery) -> None:
    effects, _ = make()
    effects.settled(*settled("c_1", delivery))
    assert len(effects) == 0


@pytest.mark.parametrize("more", [{"read_only": True}, {"after_kill": True}])
def test_what_only_reads_and_what_belongs_to_another_call_is_none(more: dict[str, Any]) -> None:
    effects, _ = make()
    effects.settled(*settled("c_1", **more))
    assert len(effects) == 0


@pytest.mark.behaviour("M092")
def test_an_unknown_outcome_is_open_in_its_run_and_the_same_call_is_known_by_what_it_does() -> None:
    effects, _ = make()
    effects.settled(*settled("c_1", run="r_1"))
    assert [one.call for one in effects.open_of_run("r_1")] == ["c_1"]
    found = effects.unresolved("r_1", "fp")
    assert found is not None
    assert found.call == "c_1"
    assert effects.unresolved("r_1", "another") is None
    assert effects.unresolved("r_2", "fp") is None
    assert effects.open_of_run("r_2") == []


def test_a_closed_one_holds_up_no_run() -> None:
    effects, _ = make(effect("c_1", "r_1", fp="fp"))
    close(effects, "c_1")
    assert (effects.open_of_run("r_1"), effects.unresolved("r_1", "fp"), len(effects)) == ([], None, 0)
    assert not vars(effects)["_of_run"], "and costs nothing"


def test_too_many_are_not_kept_and_the_oldest_is_given_up_on_record() -> None:
    effects, journal = make(effect("c_1"), effect("c_2"), most=2)
    effects.settled(*settled("c_3"))
    assert names(listed(effects)) == ["c_2", "c_3"]
    assert journal.notes == ["effect_closed"]
    assert "more than 2 effects were open" in close(effects, "c_1").heard[0].error.message


# ---------------------------------------------------------------- who sees them


def test_everybody_sees_their_own_and_the_operators_see_all() -> None:
    effects, _ = make(effect("c_1"), effect("c_2", uid=STRANGER), effect("c_3", run="r_1"))
    assert names(listed(effects)) == ["c_1", "c_3"]
    assert names(listed(effects, STRANGER)) == ["c_2"]
    assert names(listed(effects, 0)) == names(listed(effects, os.geteuid())) == ["c_1", "c_2", "c_3"]
    assert names(listed(effects, run="r_1")) == ["c_3"]


def test_a_list_fits_a_frame_whatever_is_in_it() -> None:
    effects, _ = make(*(effect(f"c_{number}", arguments="\x1b" * 5_000) for number in range(5_000)))
    answer = listed(effects)
    assert 0 < len(answer.effects) < 5_000
    assert answer.more == 5_000 - len(answer.effects)
    from protocol._codecs import daemon_to_client

    for speaks_json in (True, False):
        assert len(daemon_to_client(speaks_json).pack(answer)) < 1 << 20


# ---------------------------------------------------------------- who closes them


def test_it_is_closed_when_the_disk_has_it_and_not_before() -> None:
    effects, journal = make(effect("c_1"))
    journal.durable = None
    first = close(effects, "c_1", "booked")
    second = close(effects, "c_1", "not booked")
    assert first.heard == []
    assert len(effects) == 1
    assert second.heard[0].error.code == "not_open"
    (told,) = journal.waiting
    told(True)
    assert (first.heard[0].effect.closed, len(effects)) == ("booked", 0)
    assert journal.notes == ["effect_closed"], "the other note is nowhere"


def test_a_note_that_the_disk_does_not_take_closes_nothing() -> None:
    effects, journal = make(effect("c_1"))
    journal.durable = False
    assert close(effects, "c_1").heard[0].error.code == "store_unavailable"
    journal.durable = True
    assert close(effects, "c_1").heard[0].effect.call == "c_1"


@pytest.mark.parametrize("note", ["", " \n", "x" * 2_001])
def test_a_note_says_something(note: str) -> None:
    effects, _ = make(effect("c_1"))
    assert close(effects, "c_1", note).heard[0].error.code == "invalid_arguments"
    assert len(effects) == 1


def test_what_a_stranger_closes_does_not_exist_for_it() -> None:
    effects, _ = make(effect("c_1"))
    assert close(effects, "c_1", uid=STRANGER).heard[0].error.code == "unknown_call"
    close(effects, "c_1")
    assert close(effects, "c_1", uid=STRANGER).heard[0].error.code == "unknown_call"
    assert "seen to" in close(effects, "c_1").heard[0].error.message


def test_what_is_not_open_is_said_to_be_what_it_is() -> None:
    effects, _ = make()
    call, result = settled("c_1", Delivery.SUCCEEDED)
    assert "has not ended" in close(effects, "c_1", found=call).heard[0].error.message
    call.result = result
    assert "delivery succeeded" in close(effects, "c_1", found=call).heard[0].error.message
