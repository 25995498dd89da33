"""What is frozen while a person is asked, and whether it still fits."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from protocol._contracts import Approval, Contract
from supervisor.core.checkpoints import (
    Checkpoint,
    Frame,
    Obstacle,
    Present,
    digest,
    obstacle,
    question,
    unpacked,
)
from supervisor.core.idempotency import DeliveryKey
from supervisor.core.policy import NO_OBJECTION, Action, Ruling

ARGUMENTS = '{ "path":"/tmp/ä\\u00e4",  "n":1e2 }'
CHECKPOINT = Checkpoint(
    "a_1",
    "c_1",
    7,
    None,
    "deploy",
    "hash",
    ARGUMENTS,
    "fp",
    "key",
    1_000,
    2_000,
    "why",
    "v1",
    Action.ALLOW,
    deadline_ms=500,
    cwd="/srv",
    place_id="8:1",
    claim=DeliveryKey(b"\x00p", b"s", "down"),
    max_output_bytes=9,
    min_isolation="contain",
    frame=Frame("goal", "3.1", 2, 10_000, {"steps": 4, "tokens_total": None}),
)
PRESENT = Present("hash", "8:1", "v1")


def test_what_is_stored_comes_back_to_the_byte():
    packed = CHECKPOINT.packed()
    assert unpacked(packed) == CHECKPOINT
    assert unpacked(packed).packed() == packed
    assert unpacked(packed).arguments == ARGUMENTS


@pytest.mark.behaviour("M086")
def test_the_call_that_comes_of_it_is_the_one_that_was_asked_for():
    submit = CHECKPOINT.submit()
    assert (submit.tool, submit.arguments, submit.cwd, submit.run) == ("deploy", ARGUMENTS, "/srv", None)
    assert (submit.deadline_ms, submit.max_output_bytes, submit.min_isolation) == (500, 9, "contain")
    assert submit.detach
    assert CHECKPOINT.submit("{}").arguments == "{}"


def test_every_changed_byte_has_another_digest():
    packed = CHECKPOINT.packed()
    assert digest(packed) != digest(packed.replace(b"/tmp", b"/etc"))


def test_a_call_that_is_what_it_was_meets_no_obstacle():
    assert obstacle(CHECKPOINT, PRESENT) is None


@pytest.mark.case("B090")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"intact": False}, "its record is not what was asked for"),
        ({"contract": None}, "there is no tool deploy any more"),
        ({"contract": "other"}, "the tool deploy is not what it was"),
        ({"place_id": "8:2"}, "the directory /srv is not the one that it was"),
        ({"place_id": ""}, "the directory /srv is not the one that it was"),
    ],
)
def test_an_approval_does_not_carry_over_to_anything_else(change, said):
    found = obstacle(CHECKPOINT, PRESENT._replace(**change))
    assert found is not None
    assert found.obstacle is Obstacle.MISMATCH
    assert found.text.startswith("approval does not match: ")
    assert said in found.text


@pytest.mark.parametrize(
    ("asked_under", "now", "expected"),
    [
        (Action.ALLOW, Action.DENY, Obstacle.DENIED),
        (Action.ASK, Action.DENY, Obstacle.DENIED),
        (Action.ALLOW, Action.ASK, Obstacle.STRICTER),
        (Action.ASK, Action.ASK, None),
        (Action.ASK, Action.ALLOW, None),
        (Action.ALLOW, Action.ALLOW, None),
    ],
)
def test_a_changed_policy_binds_only_where_it_is_stricter(asked_under, now, expected):
    checkpoint = msgspec.structs.replace(CHECKPOINT, policy_action=asked_under)
    found = obstacle(checkpoint, PRESENT._replace(policy_version="v2", ruling=Ruling(now, "new rule")))
    assert (found and found.obstacle) is expected
    assert obstacle(checkpoint, PRESENT._replace(ruling=Ruling(now))) is None, "the same version is not consulted"


def test_the_first_obstacle_of_several_is_told():
    everything: dict[str, Any] = {"policy_version": "v2", "ruling": Ruling(Action.DENY)}
    found = [
        obstacle(CHECKPOINT, Present("other", "", **everything)),
        obstacle(CHECKPOINT, PRESENT._replace(**everything)),
    ]
    assert [one and one.obstacle for one in found] == [Obstacle.MISMATCH, Obstacle.DENIED]


@pytest.mark.behaviour("M071")
@pytest.mark.parametrize(
    ("approval", "read_only", "asked"),
    [
        (Approval.NEVER, False, False),
        (Approval.NEVER, True, False),
        (Approval.ON_WRITE, False, True),
        (Approval.ON_WRITE, True, False),
        (Approval.ALWAYS, False, True),
        (Approval.ALWAYS, True, True),
    ],
)
def test_a_tool_says_when_a_person_is_asked(approval, read_only, asked):
    contract = Contract(approval=approval, read_only=read_only)
    for undeclared in ("never", "on_write", "always"):
        assert (question(contract, undeclared, NO_OBJECTION) is not None) is asked


@pytest.mark.behaviour("M072")
@pytest.mark.parametrize(
    ("undeclared", "read_only", "asked"),
    [("on_write", False, True), ("on_write", True, False), ("never", False, False), ("always", True, True)],
)
def test_a_tool_that_says_nothing_is_held_to_the_configuration(undeclared, read_only, asked):
    assert (question(Contract(read_only=read_only), undeclared, NO_OBJECTION) is not None) is asked


@pytest.mark.parametrize(
    ("profile", "declared", "read_only", "why"),
    [
        (
            Approval.ON_WRITE,
            Approval.NEVER,
            False,
            "the tool may change something, and the run's profile asks before that",
        ),
        (Approval.ON_WRITE, Approval.ALWAYS, True, None),
        (Approval.ALWAYS, Approval.NEVER, True, "the run's profile asks before every call"),
        (Approval.NEVER, Approval.ALWAYS, False, None),
        (Approval.NEVER, None, False, None),
    ],
)
def test_what_a_profile_says_stands_in_place_of_what_the_tool_does(profile, declared, read_only, why):
    found = question(Contract(approval=declared, read_only=read_only), "always", NO_OBJECTION, profile)
    assert (found and found.why) == why


def test_a_rule_that_asks_overrides_a_tool_that_never_does():
    assert question(Contract(), "never", Ruling(Action.ASK, "prod"), Approval.NEVER) == ("prod", Action.ASK)
    assert question(Contract(approval=Approval.NEVER), "never", Ruling(Action.ASK, "prod")) == ("prod", Action.ASK)
