"""What the workers run for the suites. Imported by a zygote, so it imports next to nothing.

What one leaves alive ends by itself after `LIFETIME_S`, should a kill fail.
"""

from __future__ import annotations

import os
import time

from deadlined import Context, tool

LIFETIME_S = 60.0


@tool(name="trust_noop", read_only=True, approval="never")
def noop() -> bool:
    """Do nothing."""
    return True


@tool(name="trust_print", approval="never")
def print_some(text: str) -> str:
    """Say it on standard output as well."""
    print(text, flush=True)  # noqa: T201  # printing is what is tried
    return text


@tool(name="trust_sleep", read_only=True, approval="never")
def sleep(ms: int = int(LIFETIME_S * 1000)) -> str:
    """Sleep."""
    time.sleep(ms / 1000)
    return "slept"


@tool(name="trust_effect", approval="never")
def effect(file: str, name: str, ctx: Context, before_ms: int = 0, after_ms: int = 0) -> str:
    """One side effect: a line in a file, whole or not at all, with the key that the call came with."""
    time.sleep(before_ms / 1000)
    return write(file, name, ctx, after_ms)


@tool(name="trust_ask", approval="always")
def asked_effect(file: str, name: str, ctx: Context, after_ms: int = 0) -> str:
    """The same, and a person is asked first."""
    return write(file, name, ctx, after_ms)


@tool(name="trust_late", approval="never", timeout_ms=1_500)
def late_effect(file: str, name: str, ctx: Context) -> str:
    """The same, and then it does not come back."""
    return write(file, name, ctx, int(LIFETIME_S * 1000))


def write(file: str, name: str, ctx: Context, after_ms: int = 0) -> str:
    """The line, whole or not at all; then wait."""
    line = f"{name} {ctx.idempotency_key}\n"
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, line.encode())
    os.close(descriptor)
    time.sleep(after_ms / 1000)
    return name
