"""The inner messages: small, tagged, and free of anything that a tool could use to say more than it may."""

from __future__ import annotations

import re
import typing

import msgspec
import pytest

from protocol import _worker_messages as wm
from protocol._contracts import Limits

HEARD_FROM_WORKER = typing.get_args(wm.FromWorker)
EVERY = [*HEARD_FROM_WORKER, *typing.get_args(wm.FromZygote), wm.Call, wm.Spawn]


@pytest.mark.parametrize("kind", EVERY)
def test_the_tag_is_the_types_name_in_lower_snake_under_op(kind: type) -> None:
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType)
    assert info.tag == re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()
    assert info.tag_field == "op"


@pytest.mark.parametrize("kind", [wm.Accepted, wm.Progress, wm.Ended, wm.Call])
def test_every_frame_about_a_call_carries_its_nonce(kind: type) -> None:
    assert kind.__struct_fields__[0] == "nonce"  # type: ignore[attr-defined]  # a Struct


def test_a_call_with_its_defaults_is_one_small_frame() -> None:
    call = wm.Call(1, "shell", "{}", 1 << 60, "k")
    assert len(msgspec.msgpack.encode(call)) < 200


def test_a_spawn_fits_the_datagram_that_carries_its_descriptors() -> None:
    spawn = wm.Spawn(1 << 62, "/" + "x" * 4_095, 9, True, "contain", Limits(cpu_ms=1 << 62), 1 << 30)
    assert len(msgspec.msgpack.encode(spawn)) < 8 << 10


def test_an_end_that_is_no_way_to_end_is_not_understood() -> None:
    body = msgspec.msgpack.encode({"op": "ended", "nonce": 1, "how": "vanished"})
    with pytest.raises(msgspec.ValidationError, match="vanished"):
        msgspec.msgpack.decode(body, type=wm.FromWorker)


def test_the_ways_to_end_are_wire_words() -> None:
    for how in typing.get_args(typing.get_type_hints(wm.Ended)["how"]):
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", how)


def test_a_worker_that_speaks_for_the_zygote_is_not_understood() -> None:
    for kind in ("reaped", "spawned", "zygote_ready", "call", "spawn", "submit"):
        with pytest.raises(msgspec.ValidationError, match="Invalid value"):
            msgspec.msgpack.decode(msgspec.msgpack.encode({"op": kind, "nonce": 1}), type=wm.FromWorker)
