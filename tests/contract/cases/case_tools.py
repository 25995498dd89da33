"""Python tools for the public cases: large answers, frames of a chosen size, writes to every stream there is."""

from __future__ import annotations

import inspect
import os
import socket
import struct
import sys
import time
from typing import Any

import msgspec

from deadlined import CommandPlan, command, tool


@tool(read_only=True, approval="never")
def answer(size: int) -> str:
    """A text of so many bytes."""
    return "x" * size


@tool(read_only=True, approval="never")
def announce(size: int, send: int, hang: bool = False) -> str:
    """Speak on the worker's own socket: a frame that is announced with ``size`` bytes and of which ``send`` follow.

    The whole of it is a progress report of this call.
    """
    body = _progress(send)
    with _socket() as link:
        link.sendall(struct.pack(">I", size) + body)
    if hang:
        time.sleep(600)
    return "said"


@tool(read_only=True, approval="never")
def print_then_hang(text: str, point: str) -> None:
    """Print without a flush, make the file ``point``, and sleep."""
    print(text)  # noqa: T201  # printing is what is tested
    with open(point, "w"):
        pass
    time.sleep(600)


@tool(read_only=True, approval="never")
def write_everywhere() -> str:
    """Write to stdout by every way there is; and say which descriptors a child of this tool sees."""
    print("hello", flush=True)  # noqa: T201  # printing is what is tested
    os.write(1, b"raw\n")
    os.system("echo child; echo open: $(ls /proc/self/fd)")
    sys.stdout.buffer.write(b"\x93\x01\n")
    sys.stdout.buffer.flush()
    return "answered"


@command(read_only=True, approval="never")
def planned(fail: bool = False) -> CommandPlan:
    """Print while the command is being planned, here and in a child."""
    print("planning")  # noqa: T201  # printing is what is tested
    os.system("echo planning on >&2")
    if fail:
        raise ValueError("no plan")
    return CommandPlan(["echo", "done"])


@tool(read_only=True, approval="never")
def write_bytes(hexadecimal: str) -> str:
    """Write these bytes to descriptors 0 (if it lets us), 1 and 2."""
    data = bytes.fromhex(hexadecimal)
    for descriptor in (0, 1, 2):
        try:
            os.write(descriptor, data)
        except OSError:
            continue
    return "written"


@tool(read_only=True, approval="never")
def not_a_number(kind: str) -> object:
    """Return what JSON has no word for."""
    value = float(kind)
    return {"alone": value, "deep": [{"delay_s": value}]}


@tool(read_only=True, approval="never")
def delay(delay_s: float) -> str:
    """Sleep; the argument is a number as any schema has it."""
    time.sleep(delay_s)
    return "slept"


def _progress(size: int) -> bytes:
    """A progress frame of exactly ``size`` bytes (more than 70 KiB: the text's header has its largest form)."""
    empty = msgspec.msgpack.encode({"op": "progress", "nonce": _nonce(), "text": ""})
    text = "x" * (size - len(empty) - 4)
    return msgspec.msgpack.encode({"op": "progress", "nonce": _nonce(), "text": text})


def _nonce() -> int:
    """Of the call being served: it stands in a frame above us."""
    frame = inspect.currentframe()
    while frame is not None:
        call: Any = frame.f_locals.get("call")
        if hasattr(call, "nonce"):
            return int(call.nonce)
        frame = frame.f_back
    raise LookupError("no call above")


def _socket() -> socket.socket:
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                return socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue
    raise LookupError("no socket")


@tool(approval="never", reusable=True)
def append(file: str, line: str) -> str:
    """One side effect, by a worker that may serve the next call too: a line in a file."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)
    return line
