"""Bytes ⇄ messages on every link: what was said is heard, and whatever means nothing is one kind of error."""

from __future__ import annotations

import contextlib
import math
import random
import struct
import tracemalloc
import typing
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import _client_messages as cm
from protocol import _codecs as codecs
from protocol import _worker_messages as wm
from protocol._errors import LocalProtocolError, RemoteProtocolError
from protocol._framing import FRAME_HARD_LIMIT, FRAME_LIMIT, FRAME_OVERHEAD, FrameBuffer, LineBuffer
from protocol._outcomes import CallResult, Status
from tests.trust.spoken import each_of, json_value, same, speaker_of

MIB = 1 << 20
RANDOM = st.builds(random.Random, st.integers(0, 2**32))
FLOAT_KEY = b"\x81\xca\x7f\xc0\x00\x00\x02"
LINKS: dict[str, tuple[codecs.Codec[Any, Any], codecs.Codec[Any, Any], Any]] = {
    "client says msgpack": (codecs.client_to_daemon(), codecs.daemon_to_client(False), cm.FromClient),
    "client says json": (codecs.client_to_daemon(True), codecs.daemon_to_client(True), cm.FromClient),
    "daemon says msgpack": (codecs.daemon_to_client(False), codecs.client_to_daemon(), cm.FromDaemon),
    "daemon says json": (codecs.daemon_to_client(True), codecs.client_to_daemon(True), cm.FromDaemon),
    "worker says": (codecs.worker_to_daemon(), codecs.daemon_to_worker(), wm.FromWorker),
    "daemon calls": (codecs.daemon_to_worker(), codecs.worker_to_daemon(), wm.ToWorker),
    "zygote says": (codecs.zygote_to_daemon(), codecs.daemon_to_zygote(), wm.FromZygote),
    "daemon spawns": (codecs.daemon_to_zygote(), codecs.zygote_to_daemon(), wm.ToZygote),
}
every_link = pytest.mark.parametrize("name", LINKS)
EARS = {name: hearing for name, (_, hearing, _) in LINKS.items()}
every_ear = pytest.mark.parametrize("name", EARS)


def body_of(name: str, packed: bytes) -> bytes:
    """What a buffer would make of one packed message: its body without length or newline."""
    if "zygote" in name or "spawns" in name:
        return packed
    buffer: FrameBuffer | LineBuffer = LineBuffer(FRAME_HARD_LIMIT) if "json" in name else FrameBuffer(FRAME_HARD_LIMIT)
    [body] = buffer.feed(packed)
    buffer.eof()
    return body


@every_link
@settings(max_examples=50)
@given(RANDOM)
def test_what_one_end_packs_the_other_understands(name: str, rng: random.Random) -> None:
    saying, hearing, union = LINKS[name]
    message = speaker_of(union)(rng)
    heard = hearing.unpack(body_of(name, saying.pack(message)))
    assert type(heard) is type(message)
    assert same(heard, message)


@every_link
def test_each_kind_of_message_passes_each_link(name: str) -> None:
    saying, hearing, union = LINKS[name]
    for seed in range(20):
        for message in each_of(union, random.Random(seed)):
            assert same(hearing.unpack(body_of(name, saying.pack(message))), message)


@every_link
def test_no_message_in_json_contains_a_newline(name: str) -> None:
    saying, _, union = LINKS[name]
    if "json" not in name:
        return
    for message in each_of(union, random.Random(5)):
        assert saying.pack(message).count(b"\n") == 1


def refused(hearing: codecs.Codec[Any, Any], body: bytes) -> RemoteProtocolError:
    """The one error that may come out."""
    with pytest.raises(RemoteProtocolError) as caught:
        hearing.unpack(body)
    return caught.value


GARBAGE = {
    "nothing": b"",
    "a truncated map": b"\x82\xa2op",
    "a reserved byte": b"\xc1",
    "trailing bytes": msgspec.msgpack.encode({"op": "hello", "version": 1}) + b"\xc0",
    "an array": b"\x90",
    "a number": b"\x05",
    "an unknown op": msgspec.msgpack.encode({"op": "fly"}),
    "no op": msgspec.msgpack.encode({"version": 1}),
    "an op that is a number": msgspec.msgpack.encode({"op": 7}),
    "a list of 2^32 announced": b"\xdd\xff\xff\xff\xff",
    "a map of 2^32 announced": b"\xdf\xff\xff\xff\xff",
    "bytes of 4 GiB announced": b"\xc6\xff\xff\xff\xff",
    "text of 4 GiB announced": b"\xdb\xff\xff\xff\xff",
    "an extension of 4 GiB announced": b"\xc9\xff\xff\xff\xff\x05",
    "text that is no UTF-8": b"\x81\xa2op\xa2\xff\xfe",
    "a key that is no UTF-8": b"\x81\xa2\xff\xfe\xa2ab",
    "unhashable keys": b"\x81\x80\x02",
    "a million arrays": b"\x91" * 1_000_000 + b"\xc0",
    "a million maps": b"\x81\xa1a" * 300_000 + b"\xc0",
    "json: a million arrays": b"[" * 1_000_000,
    "json: a million objects": b'{"a":' * 200_000,
    "json: a million arrays in a field": b'{"op":"submit","id":1,"tool":"x","deadline_ms":' + b"[" * 1_000_000,
    "json: a million arrays where nothing is known": b'{"op":"hello","version":1,"x":' + b"[" * 1_000_000,
    "json: an array": b"[]",
    "json: a truncated object": b'{"op":"hello"',
    "json: two values": b'{"op":"hello","version":1} {}',
    "json: a lone surrogate": b'{"op":"hello","version":1,"client":"\\ud800"}',
    "json: an encoded surrogate": b'{"op":"hello","version":1,"client":"\xed\xa0\x80"}',
    "json: no UTF-8": b'{"op":"hello","version":1,"client":"\xff"}',
    "json: NaN": b'{"op":"hello","version":NaN}',
    "json: an unknown op": b'{"op":"fly"}',
    "json: a number of 5 000 digits": b'{"op":"hello","version":' + b"9" * 5_000 + b"}",
    "json: a number beyond a float": b'{"op":"submit","id":1,"tool":"x","deadline_ms":1e999}',
    "json: a float for a number": b'{"op":"hello","version":1.5}',
    "json: text for a number": b'{"op":"hello","version":"1"}',
    "json: null for a number": b'{"op":"hello","version":null}',
    "json: a byte order mark": b"\xef\xbb\xbf{}",
    "json: NUL": b'{"op":"hel\x00lo"}',
    "json: single quotes": b"{'op':'hello'}",
    "a megabyte of one op": b'{"op":"' + b"x" * 1_000_000 + b'"}',
}


@every_ear
@pytest.mark.parametrize("what", GARBAGE)
def test_garbage_is_the_peers_fault_and_nothing_else(name: str, what: str) -> None:
    error = refused(EARS[name], GARBAGE[what])
    assert str(error).startswith("a message cannot be understood: ")
    assert error.__cause__ is not None


@every_ear
@given(st.binary(max_size=200))
def test_random_bytes_are_a_message_or_the_peers_fault(name: str, body: bytes) -> None:
    with contextlib.suppress(RemoteProtocolError):
        EARS[name].unpack(body)


@every_link
@settings(max_examples=50)
@given(RANDOM, st.data())
def test_a_message_with_one_byte_changed_is_a_message_or_the_peers_fault(
    name: str, rng: random.Random, data: st.DataObject
) -> None:
    saying, hearing, union = LINKS[name]
    body = bytearray(body_of(name, saying.pack(speaker_of(union)(rng))))
    body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(RemoteProtocolError):
        hearing.unpack(bytes(body))


@every_link
def test_a_message_cut_short_is_the_peers_fault(name: str) -> None:
    saying, hearing, union = LINKS[name]
    for message in each_of(union, random.Random(11)):
        body = body_of(name, saying.pack(message))
        for length in range(0, len(body), max(1, len(body) // 50)):
            refused(hearing, body[:length])


@every_ear
@pytest.mark.parametrize("what", [what for what in GARBAGE if "announced" in what])
def test_an_announcement_of_gigabytes_costs_the_codec_nothing(name: str, what: str) -> None:
    body = b"\x81\xa2op" + GARBAGE[what]
    refused(EARS[name], body)
    tracemalloc.start()
    try:
        refused(EARS[name], body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 << 10


def test_a_client_cannot_make_a_megabyte_of_nothing_grow() -> None:
    """A frame of a million empty maps would be 72 MiB of dicts: no field of a client takes them."""
    body = b"\x84\xa2op\xa6submit\xa2id\x01\xa4tool\xa1x\xabdeadline_ms" + b"\xdd" + struct.pack(">I", 1_000_000)
    tracemalloc.start()
    try:
        refused(codecs.daemon_to_client(False), body + b"\x80" * 1_000_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * MIB  # the body itself, and its copy


@every_ear
def test_an_error_never_quotes_more_than_a_line(name: str) -> None:
    for body in GARBAGE.values():
        assert len(str(refused(EARS[name], body))) < 300


@pytest.mark.parametrize("code", [0, 1, 5, 127, -1, -2])
def test_extension_types_mean_nothing_here(code: int) -> None:
    extension = msgspec.msgpack.encode(msgspec.msgpack.Ext(code, b"\0\0\0\1"))
    body = b"\x83\xa2op\xa5ended\xa5nonce\x01\xa3how\xa2ok"
    body = b"\x84" + body[1:] + b"\xa7content" + extension
    what = "datetime" if code == -1 else f"extension type {code}"  # msgpack's one type of its own is a date
    assert what in str(refused(codecs.daemon_to_worker(), body))


class Raising:
    """An encoder and decoder in which something breaks."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def decode(self, _body: bytes) -> Any:
        raise self.error

    def encode(self, _message: Any) -> bytes:
        raise self.error


UNICODE = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")


@pytest.mark.parametrize(
    "error",
    [msgspec.DecodeError("x"), msgspec.ValidationError("x"), RecursionError("x"), OverflowError("x"), UNICODE],
    ids=lambda error: type(error).__name__,
)
def test_whatever_a_decoder_is_known_to_raise_is_the_peers_fault(error: Exception) -> None:
    codec: codecs.Codec[Any, Any] = codecs.Codec(Raising(error), Raising(error), bytes, None)
    assert refused(codec, b"").__cause__ is error


def test_what_no_decoder_should_raise_is_a_bug_and_stays_one() -> None:
    codec: codecs.Codec[Any, Any] = codecs.Codec(Raising(KeyError("x")), Raising(KeyError("x")), bytes, None)
    with pytest.raises(KeyError):
        codec.unpack(b"")


def ended(content: Any) -> bytes:
    return msgspec.msgpack.encode({"op": "ended", "nonce": 1, "how": "ok", "content": content})


@pytest.mark.parametrize(
    "content", [b"x", [b"x"], {1: 2}, {None: 1}, {"a": {(1,): 2}}, math.nan, [math.inf], {"a": -math.inf}]
)
def test_content_that_json_cannot_express_is_the_workers_fault(content: Any) -> None:
    error = refused(codecs.daemon_to_worker(), ended(content))
    assert str(error).startswith("a Ended has content that h")


def test_content_nested_too_deep_is_the_workers_fault() -> None:
    body = ended(None)[:-1]
    assert codecs.daemon_to_worker().unpack(body + b"\x91" * 63 + b"\x90")
    assert str(refused(codecs.daemon_to_worker(), body + b"\x91" * 64 + b"\x90")) == (
        "a Ended has content that nests deeper than 64"
    )


def test_keys_that_are_not_numbers_of_any_kind_are_the_workers_fault() -> None:
    refused(codecs.daemon_to_worker(), ended(None)[:-1] + FLOAT_KEY)


@pytest.mark.parametrize("schema", [{"type": b"object"}, {"properties": {1: {}}}, {"default": math.nan}])
def test_a_schema_that_json_cannot_express_is_the_workers_fault(schema: dict[str, Any]) -> None:
    tool = {"name": "t", "description": "", "contract": {}, "schema": schema}
    body = msgspec.msgpack.encode({"op": "worker_ready", "pid": 1, "tools": [tool]})
    assert "schema" in str(refused(codecs.daemon_to_worker(), body))


@given(RANDOM)
def test_whatever_a_worker_may_answer_both_kinds_of_client_can_be_told(rng: random.Random) -> None:
    message = codecs.daemon_to_worker().unpack(ended(json_value(rng)))
    assert isinstance(message, wm.Ended)
    told = cm.Settled(1, CallResult("c_1", "t", Status.OK, content=message.content))
    for speaks_json in (False, True):
        assert codecs.daemon_to_client(speaks_json).pack(told)


@pytest.mark.parametrize(
    ("field", "value"),
    [("cpu_ms", -1), ("left_processes", -1), ("output_bytes", [-5]), ("max_rss_bytes", (1 << 64) - 1)],
)
def test_a_count_that_cannot_be_one_is_the_workers_fault(field: str, value: Any) -> None:
    refused(codecs.daemon_to_worker(), msgspec.msgpack.encode({"op": "ended", "nonce": 1, "how": "ok", field: value}))


@pytest.mark.parametrize("number", [-1, 1 << 63, 1 << 64, 10**30])
@pytest.mark.parametrize("field", ["id", "submit"])
def test_a_number_that_no_answer_could_carry_is_the_clients_fault(field: str, number: int) -> None:
    fields = {"op": "cancel", "id": 1, field: number}
    refused(codecs.daemon_to_client(True), msgspec.json.encode(fields))


@pytest.mark.parametrize("number", [0, (1 << 63) - 1])
def test_the_ends_of_the_range_are_ids(number: int) -> None:
    message = codecs.daemon_to_client(True).unpack(b'{"op":"ask_status","id":%d}' % number)
    assert message == cm.AskStatus(number)


@pytest.mark.parametrize("kind", [kind for kind in typing.get_args(cm.FromClient) if kind is not cm.Hello])
@pytest.mark.parametrize("speaks_json", [False, True])
def test_a_request_with_a_field_that_is_unknown_is_refused(kind: type, speaks_json: bool) -> None:
    [message] = [one for one in each_of(cm.FromClient, random.Random(1)) if type(one) is kind]
    fields = {**msgspec.to_builtins(message), "from_the_future": 1}
    encode = msgspec.json.encode if speaks_json else msgspec.msgpack.encode
    error = refused(codecs.daemon_to_client(speaks_json), encode(fields))
    assert "from_the_future" in str(error)


@pytest.mark.parametrize("speaks_json", [False, True])
def test_the_greeting_of_a_later_version_is_understood_so_that_it_can_be_refused_by_name(speaks_json: bool) -> None:
    fields = {"op": "hello", "version": 99, "client": "later", "from_the_future": {"a": [1, 2]}}
    encode = msgspec.json.encode if speaks_json else msgspec.msgpack.encode
    heard = codecs.daemon_to_client(speaks_json).unpack(encode(fields))
    assert heard == cm.Hello(99, "later")


@pytest.mark.parametrize("kind", typing.get_args(cm.FromDaemon))
@pytest.mark.parametrize("speaks_json", [False, True])
def test_an_answer_may_grow_fields_that_an_older_client_skips(kind: type, speaks_json: bool) -> None:
    [message] = [one for one in each_of(cm.FromDaemon, random.Random(1)) if type(one) is kind]
    encode = msgspec.json.encode if speaks_json else msgspec.msgpack.encode
    fields = {**msgspec.to_builtins(message, builtin_types=(bytes,) if not speaks_json else ()), "new": {"a": [1]}}
    assert same(codecs.client_to_daemon(speaks_json).unpack(encode(fields)), message)


@pytest.mark.parametrize("value", [0, -1, 2**80, 1.5, 1e300, True, "5", "NaN", None])
@pytest.mark.parametrize("speaks_json", [False, True])
def test_a_deadline_that_is_wrong_is_heard_so_that_it_can_be_answered(value: Any, speaks_json: bool) -> None:
    fields = {"op": "submit", "id": 1, "tool": "x", "deadline_ms": value}
    if not speaks_json and value == 2**80:
        return  # msgpack has no such number
    encode = msgspec.json.encode if speaks_json else msgspec.msgpack.encode
    heard = codecs.daemon_to_client(speaks_json).unpack(encode(fields))
    assert isinstance(heard, cm.Submit)
    assert heard.deadline_ms == value


UNSAYABLE = {
    "a set of mutually unlike things": object(),
    "a function": len,
    "too large a number": 1 << 64,
    "too small a number": -(1 << 63) - 1,
    "a lone surrogate": "\ud800",
    "a lone surrogate as a key": {"\ud800": 1},
    "a class": int,
}


@pytest.mark.parametrize("what", UNSAYABLE)
def test_what_cannot_be_encoded_is_our_own_fault(what: str) -> None:
    message = wm.Ended(1, "ok", content=UNSAYABLE[what])
    with pytest.raises(LocalProtocolError, match="a Ended cannot be encoded") as caught:
        codecs.worker_to_daemon().pack(message)
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("speaks_json", [False, True])
def test_a_value_that_contains_itself_is_our_own_fault(speaks_json: bool) -> None:
    endless: list[Any] = []
    endless.append(endless)
    settled = cm.Settled(1, CallResult("c_1", "t", Status.OK, content=endless))
    with pytest.raises(LocalProtocolError):
        codecs.daemon_to_client(speaks_json).pack(settled)


def test_a_key_that_json_has_not_is_our_own_fault() -> None:
    settled = cm.Settled(1, CallResult("c_1", "t", Status.OK, content={None: 1}))
    with pytest.raises(LocalProtocolError):
        codecs.daemon_to_client(True).pack(settled)


def test_a_message_that_was_never_finished_is_our_own_fault() -> None:
    unfinished = cm.Settled(1, CallResult("c_1", "t", Status.OK))
    del unfinished.result
    with pytest.raises(LocalProtocolError):
        codecs.daemon_to_client(True).pack(unfinished)


@pytest.mark.parametrize("speaks_json", [False, True])
def test_a_message_larger_than_any_peer_takes_is_our_own_fault(speaks_json: bool) -> None:
    chunk = cm.OutputChunk(1, "c_1", 0, bytes(FRAME_HARD_LIMIT + FRAME_OVERHEAD), False)
    with pytest.raises(LocalProtocolError, match="no peer takes more"):
        codecs.daemon_to_client(speaks_json).pack(chunk)


def test_the_largest_frame_of_a_worker_can_be_told_to_a_client_that_speaks_json() -> None:
    """JSON writes a control character as six bytes: what a MiB of frame brought must still fit what a client takes."""
    message = codecs.daemon_to_worker().unpack(ended("\x01" * (FRAME_LIMIT - 100)))
    assert isinstance(message, wm.Ended)
    told = cm.Settled(1, CallResult("c_1", "t", Status.OK, content=message.content))
    packed = codecs.daemon_to_client(True).pack(told)
    [line] = LineBuffer(FRAME_HARD_LIMIT).feed(packed)
    assert same(codecs.client_to_daemon(True).unpack(line), told)


def test_one_codec_serves_every_connection() -> None:
    assert codecs.daemon_to_client(True) is codecs.daemon_to_client(True)
    assert codecs.daemon_to_client(True) is not codecs.daemon_to_client(False)
    assert codecs.daemon_to_worker() is codecs.daemon_to_worker()
