"""Breaking well-formed bytes: each way a link could be written to by a peer that is mad, cut off, or clever.

Random numbers come as a function that returns a float in [0, 1): one call is 40 ns where ``randrange`` is 500, and a
suite breaks millions.
"""

from __future__ import annotations

from collections.abc import Callable

Random = Callable[[], float]

_DEEP = 2_000
"""Past the interpreter's recursion limit, so that every codec must give up by itself."""
TOKENS: tuple[bytes, ...] = (
    # msgpack: lengths that are not there, types that mean nothing, nesting, keys that are no text
    *(b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff"),
    *(
        b"\xc9\xff\xff\xff\xff\x05",
        b"\xd6\xff\xff\xff\xff\xff",
        b"\xc7\x0c\xff" + b"\xff" * 12,
        b"\xd4\x05\x00",
        b"\xc1",
    ),
    *(b"\x81\x91\x01\x02", b"\x81\xc0\x02", b"\x81\x01\x02", b"\x81\xc4\x01a\x02", b"\x91" * 70, b"\x81\xa1a" * 70),
    *(
        b"\xcf" + b"\xff" * 8,
        b"\xd3\x80" + b"\x00" * 7,
        b"\xca\x7f\xc0\x00\x00",
        b"\xcb\x7f\xf0" + b"\x00" * 6,
        b"\xc0",
    ),
    *(
        b"\xa2op",
        b"\xa5ended",
        b"\xa7content",
        b"\xa5nonce",
        b"\x81",
        b"\x91",
        b"\x80",
        b"\x90",
        b"\xc4\x02ab",
        b"\xff",
    ),
    # JSON: the same, and text that is none
    *(
        b"[" * 70,
        b'{"a":' * 70,
        b"NaN",
        b"Infinity",
        b"1e999",
        b"-0",
        b"9" * 400,
        b"1" + b"0" * 20,
        b"0x1",
        b"01",
        b"1.5",
    ),
    *(
        b'"\\ud800"',
        b'"\\udc00\\ud800"',
        b'"\\u0000"',
        b"\xed\xa0\x80",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"\x00",
        b"\\",
        b'"',
    ),
    *(
        b'"op":"ended",',
        b'"op":"submit",',
        b'"id":-1,',
        b'"id":null,',
        b'"id":[],',
        b"{}",
        b"[]",
        b"null",
        b"true",
        b",",
        b":",
    ),
    *(b"\n", b"\r\n", b" ", b"}\n{"),
)
RARE_TOKENS: tuple[bytes, ...] = (b"\x91" * _DEEP, b"[" * _DEEP, b'{"a":' * _DEEP, b"\x81\xa1a" * _DEEP, b"x" * 20_000)
_TYPE_BYTES = bytes(range(0xC0, 0xE0)) + b"\x00\x7f\x80\x8f\x90\x9f\xa0\xbf\xe0\xff"


def mutated(body: bytes, other: bytes, random: Random) -> bytes:
    """``body`` with one thing broken, now and then two or three; ``other`` is what may be spliced in."""
    data = bytearray(body)
    for _ in range(1 if random() < 0.7 else 2 + int(random() * 2)):
        _WAYS[int(random() * len(_WAYS))](data, other, random)
    return bytes(data)


def header(size: int, random: Random) -> bytes:
    """A length that is not ``size``: off by a little, nothing, just over a limit, or gigabytes."""
    wrong = (
        size + 1,
        max(0, size - 1),
        0,
        size ^ (1 << int(random() * 32)),
        (1 << 20) + 1,
        0xFFFFFFFF,
        int(random() * 2**32),
    )
    return wrong[int(random() * len(wrong))].to_bytes(4, "big")


def cut(stream: bytes, random: Random) -> list[bytes]:
    """``stream`` in pieces: mostly a few, now and then single bytes."""
    if random() < 1 / 64:
        return [stream[i : i + 1] for i in range(len(stream))]
    places = sorted(int(random() * (len(stream) + 1)) for _ in range(1 + int(random() * 6)))
    return [stream[a:b] for a, b in zip([0, *places], [*places, len(stream)], strict=True)]


def _at(data: bytearray, random: Random) -> int:
    return int(random() * (len(data) + 1))


def _flip(data: bytearray, _other: bytes, random: Random) -> None:
    if data:
        data[int(random() * len(data))] ^= 1 << int(random() * 8)


def _retype(data: bytearray, _other: bytes, random: Random) -> None:
    if data:
        data[int(random() * len(data))] = _TYPE_BYTES[int(random() * len(_TYPE_BYTES))]


def _letter(data: bytearray, _other: bytes, random: Random) -> None:
    """Text mostly stays text and a number a number: what passes the codec is what the links must bear."""
    if data:
        data[int(random() * len(data))] = 0x30 + int(random() * 75)


def _insert(data: bytearray, _other: bytes, random: Random) -> None:
    tokens = TOKENS if random() < 0.995 else RARE_TOKENS
    at = _at(data, random)
    data[at:at] = tokens[int(random() * len(tokens))]


def _overwrite(data: bytearray, _other: bytes, random: Random) -> None:
    token = TOKENS[int(random() * len(TOKENS))]
    at = _at(data, random)
    data[at : at + len(token)] = token


def _delete(data: bytearray, _other: bytes, random: Random) -> None:
    at = _at(data, random)
    del data[at : at + 1 + int(random() * 8)]


def _truncate(data: bytearray, _other: bytes, random: Random) -> None:
    del data[_at(data, random) :]


def _repeat(data: bytearray, _other: bytes, random: Random) -> None:
    at = _at(data, random)
    piece = data[at : at + 1 + int(random() * 16)]
    data[at:at] = piece * (1 + int(random() * 3))


def _splice(data: bytearray, other: bytes, random: Random) -> None:
    data[_at(data, random) :] = other[int(random() * (len(other) + 1)) :]


_WAYS = (
    _flip,
    _flip,
    _letter,
    _letter,
    _letter,
    _retype,
    _retype,
    _insert,
    _insert,
    _overwrite,
    _delete,
    _truncate,
    _repeat,
    _splice,
)
