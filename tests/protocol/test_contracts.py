"""Contracts and limits: careful by default, and impossible to declare with a number that cannot be meant."""

from __future__ import annotations

import typing
from typing import Any

import msgspec
import pytest

from protocol._contracts import (
    CONTAINMENT_ORDER,
    ISOLATION_ORDER,
    Approval,
    ContainmentLevel,
    Contract,
    IsolationLevel,
    Limits,
    ToolDescription,
)
from protocol._deadlines import CEILING_MS


def test_what_is_not_declared_is_read_carefully() -> None:
    contract = Contract()
    assert not contract.read_only
    assert not contract.concurrency_safe
    assert not contract.side_by_side
    assert not contract.idempotent
    assert not contract.reusable
    assert contract.approval is None, "what that means is the configuration's to say: ask before it writes"
    assert contract.timeout_ms == 10_000
    assert contract.max_timeout_ms == CEILING_MS
    assert contract.term_grace_ms == 0
    assert contract.home == "private"
    assert contract.env == ()


@pytest.mark.parametrize(
    ("fields", "beside"),
    [({}, False), ({"read_only": True}, True), ({"concurrency_safe": True}, True), ({"idempotent": True}, False)],
)
def test_reading_tools_and_declared_ones_run_side_by_side(fields: dict[str, bool], beside: bool) -> None:
    assert Contract(**fields).side_by_side is beside  # type: ignore[arg-type]  # flags only


TIMES = ["timeout_ms", "max_timeout_ms", "idle_timeout_ms", "term_grace_ms"]
BAD_TIMES: list[Any] = [-1, CEILING_MS + 1, 2**80, 1.5, True, "5s", float("nan")]


@pytest.mark.parametrize("field", TIMES)
@pytest.mark.parametrize("value", BAD_TIMES)
def test_a_time_that_cannot_be_meant_is_refused_by_name_when_declared(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{field} is .*; allowed is a whole number from [01] to 3600000"):
        Contract(**{field: value})


@pytest.mark.parametrize("field", TIMES)
@pytest.mark.parametrize("value", [-1, CEILING_MS + 1])
def test_a_time_that_cannot_be_meant_is_refused_when_heard(field: str, value: int) -> None:
    with pytest.raises(msgspec.ValidationError, match=field):
        msgspec.msgpack.decode(msgspec.msgpack.encode({field: value}), type=Contract)


@pytest.mark.parametrize("field", TIMES)
def test_the_ends_of_a_times_range_are_allowed(field: str) -> None:
    for value in (0 if field == "term_grace_ms" else 1, CEILING_MS):
        assert getattr(Contract(**{field: value}), field) == value  # type: ignore[arg-type]  # numbers only
    if field != "term_grace_ms":
        with pytest.raises(ValueError, match="from 1 to"):
            Contract(**{field: 0})  # type: ignore[arg-type]  # a number


@pytest.mark.parametrize("field", Limits.__struct_fields__)
def test_a_limit_is_a_whole_number_that_is_not_negative(field: str) -> None:
    assert getattr(Limits(**{field: 0}), field) == 0
    for value in (-1, 1.5, True, "1MiB", 1 << 63):
        with pytest.raises(ValueError, match=f"{field} is "):
            Limits(**{field: value})  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("field", ["cpu_ms", "memory_bytes", "pids"])
def test_these_limits_may_be_absent(field: str) -> None:
    assert getattr(Limits(**{field: None}), field) is None


def test_the_default_limits_are_those_of_the_manual() -> None:
    assert msgspec.to_builtins(Limits()) == {
        "open_files": 1024,
        "core_bytes": 0,
        "stack_bytes": 64 << 20,
        "file_bytes": 256 << 20,
        "cpu_ms": None,
        "memory_bytes": 1 << 30,
        "pids": 256,
        "output_bytes": 64 << 20,
        "tmp_bytes": 512 << 20,
    }


@pytest.mark.parametrize("kind", [Contract, Limits])
def test_a_field_that_is_unknown_is_refused_with_its_name(kind: type) -> None:
    with pytest.raises(msgspec.ValidationError, match="tiemout_ms"):
        msgspec.convert({"tiemout_ms": 5}, type=kind)


@pytest.mark.parametrize("kind", [Contract(), Limits()])
def test_nobody_changes_what_was_declared(kind: Any) -> None:
    with pytest.raises(AttributeError):
        setattr(kind, kind.__struct_fields__[0], 1)


def test_each_order_names_every_level_once_from_weak_to_strong() -> None:
    assert sorted(CONTAINMENT_ORDER) == sorted(typing.get_args(ContainmentLevel))
    assert sorted(ISOLATION_ORDER) == sorted(typing.get_args(IsolationLevel))
    assert CONTAINMENT_ORDER[0] == "group"
    assert CONTAINMENT_ORDER[-1] == "pidns+cgroup"
    assert ISOLATION_ORDER[0] == "none"


@pytest.mark.parametrize("codec", [msgspec.json, msgspec.msgpack])
def test_a_description_survives_both_codecs(codec: Any) -> None:
    contract = Contract(
        kind="command", read_only=True, env=("@proxy", "X"), limits=Limits(pids=None), approval=Approval.ALWAYS
    )
    tool = ToolDescription("t", "does", contract, {"type": "object", "properties": {"a": {"enum": [1, "x", None]}}})
    assert codec.decode(codec.encode(tool), type=ToolDescription) == tool
