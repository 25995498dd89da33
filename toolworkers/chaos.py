"""Tools that misbehave on purpose, for this product's tests and its users' own. No daemon has them unless its
configuration asks for the module ``toolworkers.chaos``.

Each does one wrong thing and says which. What they leave alive ends by itself after `LIFETIME_S`, so that a supervisor
that fails its test does not also fail the machine.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable
from typing import Annotated, Any, Literal, NoReturn

from msgspec import Meta

from toolworkers._context import Context
from toolworkers._tools import ToolError, tool

LIFETIME_S = 600
"""Seconds after which anything started here ends on its own."""
Few = Annotated[int, Meta(ge=1, le=100)]
Then = Literal["return", "hang", "exit"]


# ---------------------------------------------------------------- ordinary, for comparison


@tool(name="chaos_noop", read_only=True, approval="never")
def noop() -> bool:
    """Do nothing: the floor of every measurement."""
    return True


@tool(name="chaos_constant_error", read_only=True, approval="never")
def constant_error() -> NoReturn:
    """Fail in the same way each time (M005)."""
    raise ToolError("the constant error", code="constant")


@tool(name="chaos_constant_empty", read_only=True, approval="never")
def constant_empty() -> None:
    """Return nothing each time (M005)."""


@tool(name="chaos_constant_timeout", read_only=True, approval="never", timeout_ms=100)
def constant_timeout() -> NoReturn:
    """Outlive a deadline of 100 ms each time (M005)."""
    _hang()


# ---------------------------------------------------------------- does not end


@tool(name="chaos_sleep", read_only=True, approval="never")
def sleep(ctx: Context, ms: Annotated[int, Meta(ge=0)] = LIFETIME_S * 1000, heed_cancel: bool = False) -> str:
    """Sleep; with ``heed_cancel`` end as soon as the call is asked to."""
    until = time.monotonic() + ms / 1000
    while (rest := until - time.monotonic()) > 0:
        if heed_cancel and ctx.cancelled:
            return "cancelled"
        time.sleep(min(rest, 0.01) if heed_cancel else rest)
    return "slept"


@tool(name="chaos_spin", approval="never")
def spin() -> int:
    """Compute in C and hold the interpreter's lock: no Python code of this process runs again, no handler either."""
    return sum(range(LIFETIME_S * 50_000_000))  # roughly that many seconds on a quick machine


@tool(name="chaos_ignore_sigterm", approval="never")
def ignore_sigterm() -> NoReturn:
    """Refuse SIGTERM and sleep."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _hang()


@tool(name="chaos_print_then_hang", approval="never")
def print_then_hang(text: str = "before the hang") -> NoReturn:
    """Print a line and sleep: the line must be in the output of the killed call."""
    print(text)  # noqa: T201  # printing is what is tested
    _hang()


@tool(name="chaos_flood", approval="never")
def flood(mib: Annotated[int, Meta(ge=1)] = 1 << 20) -> NoReturn:
    """Write to stdout without end (``mib`` MiB), then sleep."""
    block = b"the same line, over and over again\n" * 1872  # just under 64 KiB
    for _ in range(mib * 16):
        _write_all(1, block)
    _hang()


@tool(name="chaos_allocate", approval="never")
def allocate(mib: Annotated[int, Meta(ge=1)], then: Then = "hang") -> str:
    """Allocate memory and touch every page of it."""
    held = [bytearray(b"\1") * (1 << 20) for _ in range(mib)]
    return _then(then, f"{len(held)} MiB")


# ---------------------------------------------------------------- starts processes and threads


@tool(name="chaos_fork", approval="never")
def fork(count: Few = 3, then: Then = "return") -> str:
    """Fork children that sleep and hold every descriptor of this worker, its protocol socket too."""
    return _then(then, " ".join(str(_child(_sleep_and_leave)) for _ in range(count)))


@tool(name="chaos_setsid", approval="never")
def setsid(count: Few = 1, then: Then = "return") -> str:
    """Fork children that sleep in sessions of their own, out of reach of a signal to the group."""

    def leave_session() -> None:
        os.setsid()
        _sleep_and_leave()

    return _then(then, " ".join(str(_child(leave_session)) for _ in range(count)))


@tool(name="chaos_daemon", approval="never")
def daemon(then: Then = "return") -> str:
    """Fork twice with a session in between, as daemons do: the grandchild has no parent of ours."""

    def second_fork() -> None:
        os.setsid()
        _child(_sleep_and_leave)

    first = _child(second_fork)
    os.waitpid(first, 0)
    return _then(then, str(first))


@tool(name="chaos_threads", approval="never", reusable=True)
def threads(count: Few = 2) -> int:
    """Leave threads behind, though the contract promises that nothing is left."""
    for _ in range(count):
        threading.Thread(target=time.sleep, args=(LIFETIME_S,), daemon=True).start()
    return threading.active_count()


# ---------------------------------------------------------------- breaks its worker


@tool(name="chaos_close_descriptors", approval="never")
def close_descriptors(then: Then = "return") -> str:
    """Close every descriptor of the worker."""
    os.closerange(0, 65_536)
    return _then(then, "closed")


@tool(name="chaos_garbage", approval="never")
def garbage(count: Annotated[int, Meta(ge=1, le=1 << 20)] = 64, then: Then = "return") -> str:
    """Write bytes that are no frame to the protocol socket."""
    return _say_to_daemon(b"\xff" * count, then)


@tool(name="chaos_half_frame", approval="never")
def half_frame(then: Then = "hang") -> str:
    """Write a frame's header and a part of its body to the protocol socket."""
    return _say_to_daemon(struct.pack(">I", 100) + b"\x81\xa2op", then)


@tool(name="chaos_say", approval="never")
def say(hex: str, then: Then = "return") -> str:  # noqa: A002  # the argument's published name
    """Write any bytes, given in hexadecimal, to the protocol socket."""
    return _say_to_daemon(bytes.fromhex(hex), then)


@tool(name="chaos_exit", approval="never")
def exit_at_once(code: Annotated[int, Meta(ge=0, le=255)] = 7) -> NoReturn:
    """End the worker without a word."""
    os._exit(code)


@tool(name="chaos_segfault", approval="never")
def segfault() -> NoReturn:
    """Read address 0."""
    ctypes.string_at(0)
    raise AssertionError("address 0 was readable")


@tool(name="chaos_abort", approval="never")
def abort() -> NoReturn:
    """Call abort(3)."""
    os.abort()


@tool(name="chaos_dirty", approval="never", reusable=True)
def dirty() -> str:
    """Change directory, environment and umask and leave an open file, though the contract promises otherwise."""
    os.chdir("/")
    os.environ["DEADLINED_CHAOS"] = "was here"
    os.umask(0)
    os.open("/dev/null", os.O_RDONLY)
    return "dirty"


# ---------------------------------------------------------------- fails to answer well


@tool(name="chaos_raise", approval="never")
def raise_error(
    kind: Literal["ValueError", "TimeoutError", "SystemExit", "KeyboardInterrupt", "tool"] = "ValueError",
) -> NoReturn:
    """Raise; a TimeoutError of a tool is an error of the tool and no deadline."""
    raisable: dict[str, BaseException] = {
        "ValueError": ValueError("raised on purpose"),
        "TimeoutError": TimeoutError("the tool's own timeout"),
        "SystemExit": SystemExit(3),
        "KeyboardInterrupt": KeyboardInterrupt(),
        "tool": ToolError("raised on purpose", code="on_purpose", class_="transient_tool"),
    }
    raise raisable[kind]


@tool(name="chaos_content", approval="never")
def content(kind: Literal["deep", "cyclic", "object", "nan", "huge_integer", "surrogate", "large"] = "deep") -> Any:
    """Return what no result can carry."""
    return _UNSAYABLE[kind]()


# ---------------------------------------------------------------- parts


def _hang() -> NoReturn:
    time.sleep(LIFETIME_S)
    os._exit(3)


def _then(then: Then, answer: str) -> str:
    if then == "hang":
        _hang()
    if then == "exit":
        os._exit(7)
    return answer


def _child(work: Callable[[], None]) -> int:
    """A forked child that does ``work`` and never returns into the worker's code; its pid."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return pid


def _sleep_and_leave() -> None:
    time.sleep(LIFETIME_S)


def _say_to_daemon(data: bytes, then: Then) -> str:
    _write_all(_protocol_socket(), data)
    return _then(then, f"{len(data)} bytes")


def _protocol_socket() -> int:
    """The worker's own socket, found as any tool could find it."""
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        try:
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode) and _is_stream(descriptor):
                return descriptor
        except OSError:
            continue  # the listing's own descriptor is gone by now
    raise ToolError("this process has no stream socket", code="no_socket")


def _is_stream(descriptor: int) -> bool:
    with socket.socket(fileno=os.dup(descriptor)) as opened:
        return opened.family == socket.AF_UNIX and opened.type == socket.SOCK_STREAM


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _deep() -> list[Any]:
    box: list[Any] = []
    for _ in range(1_000):
        box = [box]
    return box


def _cyclic() -> list[Any]:
    box: list[Any] = []
    box.append(box)
    return box


_UNSAYABLE: dict[str, Callable[[], Any]] = {
    "deep": _deep,
    "cyclic": _cyclic,
    "object": object,
    "nan": lambda: float("nan"),
    "huge_integer": lambda: 1 << 70,
    "surrogate": lambda: "\ud800",
    "large": lambda: "x" * (17 << 20),
}
