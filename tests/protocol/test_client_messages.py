"""The client's messages: tags, numbers, and the defaults that a hand-made client leans on."""

from __future__ import annotations

import re
import typing

import msgspec
import pytest

from protocol import _client_messages as cm

SAID = typing.get_args(cm.FromClient)
ANSWERED = typing.get_args(cm.FromDaemon)


def tag(kind: type) -> str:
    return str(msgspec.inspect.type_info(kind).tag)  # type: ignore[attr-defined]  # a StructType


@pytest.mark.parametrize("kind", [*SAID, *ANSWERED])
def test_the_tag_is_the_types_name_in_lower_snake_under_op(kind: type) -> None:
    assert tag(kind) == re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()
    assert msgspec.inspect.type_info(kind).tag_field == "op"  # type: ignore[attr-defined]  # a StructType


def test_no_tag_is_used_twice_in_either_direction() -> None:
    assert len({tag(kind) for kind in (*SAID, *ANSWERED)}) == len(SAID) + len(ANSWERED)


@pytest.mark.parametrize(
    "kind", [kind for kind in SAID if kind is not cm.Hello] + [k for k in ANSWERED if k is not cm.Welcome]
)
def test_every_request_and_every_answer_is_numbered_first(kind: type) -> None:
    assert kind.__struct_fields__[0] == "id"  # type: ignore[attr-defined]  # a Struct


@pytest.mark.parametrize("kind", SAID)
def test_every_request_refuses_unknown_fields_and_the_greeting_skips_them(kind: type) -> None:
    config = kind.__struct_config__  # type: ignore[attr-defined]  # a Struct
    assert config.forbid_unknown_fields is (kind is not cm.Hello)


@pytest.mark.parametrize("kind", ANSWERED)
def test_every_answer_may_grow(kind: type) -> None:
    assert kind.__struct_config__.forbid_unknown_fields is False  # type: ignore[attr-defined]  # a Struct


def test_a_submit_needs_its_number_and_a_tool_and_nothing_else() -> None:
    heard = msgspec.json.decode(b'{"op":"submit","id":1,"tool":"shell"}', type=cm.FromClient)
    assert heard == cm.Submit(1, "shell")
    assert isinstance(heard, cm.Submit)
    assert (heard.arguments, heard.deadline_ms, heard.detach, heard.announce) == ("{}", None, False, False)


@pytest.mark.parametrize("level", ["root", "PIDNS", "", "pidns+"])
@pytest.mark.parametrize("field", ["min_containment", "min_isolation"])
def test_a_demand_for_a_level_that_is_none_is_not_understood(field: str, level: str) -> None:
    fields = {"op": "submit", "id": 1, "tool": "t", field: level}
    with pytest.raises(msgspec.ValidationError, match=field):
        msgspec.json.decode(msgspec.json.encode(fields), type=cm.FromClient)


@pytest.mark.parametrize(("field", "value"), [("limit", 0), ("limit", -1), ("offset", -1), ("limit", 1 << 63)])
def test_a_piece_of_output_begins_at_zero_and_has_at_least_one_byte(field: str, value: int) -> None:
    fields = {"op": "read_output", "id": 1, "call": "c", field: value}
    with pytest.raises(msgspec.ValidationError, match=field):
        msgspec.json.decode(msgspec.json.encode(fields), type=cm.FromClient)


@pytest.mark.parametrize("value", [0, -1])
def test_a_cap_of_no_output_is_not_understood(value: int) -> None:
    fields = {"op": "submit", "id": 1, "tool": "t", "max_output_bytes": value}
    with pytest.raises(msgspec.ValidationError, match="max_output_bytes"):
        msgspec.json.decode(msgspec.json.encode(fields), type=cm.FromClient)


def test_bytes_of_output_are_base64_in_json_and_themselves_in_msgpack() -> None:
    chunk = cm.OutputChunk(1, "c", 0, b"\xff\x00", False)
    assert msgspec.json.decode(msgspec.json.encode(chunk))["data"] == "/wA="
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(chunk))["data"] == b"\xff\x00"
