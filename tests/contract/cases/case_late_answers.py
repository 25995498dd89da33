"""Python tools that answer late, twice, or for a call that they are not."""

from __future__ import annotations

import gc
import time
from typing import Any

from deadlined import Context, tool
from protocol._worker_messages import Call, Ended
from toolworkers._channel import Channel


@tool(read_only=True, approval="never")
def echo(token: str) -> str:
    """Say it again."""
    return token


@tool(read_only=True, approval="never", term_grace_ms=5_000)
def answers_when_cancelled(ctx: Context) -> str:
    """Answer only when nobody wants it any more."""
    while not ctx.cancelled:
        time.sleep(0.005)
    return "late"


@tool(read_only=True, approval="never")
def says(answers: list[str], nonce: int, hangs: bool = False) -> str:
    """Say answers on the worker's own socket, for the call ``nonce`` or (0) for this one; then answer, or hang."""
    channel = next(thing for thing in gc.get_objects() if isinstance(thing, Channel))
    mine = max((thing.nonce for thing in _everything() if isinstance(thing, Call)), default=0)
    for text in answers:
        channel._socket.sendall(channel.pack(Ended(nonce or mine, "ok", content=text)))
    if hangs:
        time.sleep(1000)
    return "itself"


def _everything() -> list[Any]:
    """Also what no collector follows: the locals of whoever called us."""
    import sys

    frame = sys._getframe()
    found: list[Any] = []
    while frame is not None:
        found += frame.f_locals.values()
        frame = frame.f_back  # type: ignore[assignment]  # None ends the loop
    return found
