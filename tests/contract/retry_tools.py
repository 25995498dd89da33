"""Tools that fail as often as they are told to. Each attempt leaves a line in a ledger: its key."""

from __future__ import annotations

import os
from pathlib import Path

from deadlined import Context, tool
from toolworkers._tools import ToolError

_ALWAYS = 1_000


def _entered(ctx: Context, ledger: str) -> int:
    """Which attempt this is, from 1; counted where no attempt can take it away."""
    with Path(ledger).open("a") as file:
        file.write(f"{ctx.idempotency_key}\n")
    return len(Path(ledger).read_text().splitlines())


@tool(read_only=True)
def flaky(ctx: Context, ledger: str, failures: int = _ALWAYS, class_: str = "transient_tool") -> int:
    """Fail ``failures`` times with an error of ``class_``, then return which attempt it was."""
    attempt = _entered(ctx, ledger)
    os.write(1, f"attempt {attempt}\n".encode())
    if attempt <= failures:
        raise ToolError(f"HTTP 429 from the other side, {attempt} times now", "busy", class_)
    return attempt


@tool(read_only=True, retry={"base_ms": 60_000, "cap_ms": 60_000})
def patient(ctx: Context, ledger: str) -> None:
    """Fail, and want to be tried again in a minute."""
    _entered(ctx, ledger)
    raise ToolError("come back later", "busy", "transient_tool")


@tool(approval="never")
def writes(ctx: Context, ledger: str) -> None:
    """Fail in a way that passes, after something may have been done."""
    _entered(ctx, ledger)
    raise ToolError("the answer was lost", "busy", "transient_tool")


@tool(approval="never", idempotent=True, retry={"attempts": 3, "on": ["worker_lost"], "base_ms": 1})
def dies_once(ctx: Context, ledger: str) -> int:
    """Lose the first worker."""
    attempt = _entered(ctx, ledger)
    if attempt == 1:
        os._exit(9)
    return attempt


@tool(
    approval="never",
    idempotent=True,
    retry={"attempts": 3, "on": ["memory_limit"], "base_ms": 1},
    limits={"memory_bytes": 64 << 20},
)
def always_too_much(ctx: Context, ledger: str) -> int:
    """Need more memory than there is, each time."""
    _entered(ctx, ledger)
    return len([bytearray(b"x") * (1 << 20) for _ in range(400)])
