"""Tools of an imaginary shop: one pays, one looks a payment up. The bank is a file."""

from __future__ import annotations

import time
from pathlib import Path

from deadlined import Context, ToolError, tool


@tool(timeout_ms=5_000)
def pay(order: str, cents: int, bank: str, ctx: Context, slowly_ms: int = 0) -> str:
    """Pay once: the bank knows a payment by its idempotency key, and takes the same one only once."""
    paid = Path(bank) / ctx.idempotency_key
    if paid.exists():
        return f"{order}: paid before"
    time.sleep(slowly_ms / 1_000)
    paid.write_text(f"{order} {cents}")
    time.sleep(slowly_ms / 1_000)
    return f"{order}: paid"


@tool(read_only=True, timeout_ms=2_000)
def payments(bank: str, slowly_ms: int = 0) -> list[str]:
    """Every payment that the bank knows."""
    time.sleep(slowly_ms / 1_000)
    if not Path(bank).is_dir():
        raise ToolError(f"no bank at {bank}", code="no_bank", class_="argument")
    return sorted(path.read_text() for path in Path(bank).iterdir())
