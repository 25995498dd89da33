"""A run in an event loop that goes on when it is over, as in a server, until stdin is closed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable


def run(work: Callable[[], Awaitable[str]], over: Callable[[str], None]) -> None:
    """What ``work`` returns or raises is what the caller gets."""

    async def main() -> None:
        closed = asyncio.Event()
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), closed.set)
        over(await outcome(work))
        await closed.wait()

    asyncio.run(main())


async def outcome(work: Callable[[], Awaitable[str]]) -> str:
    """The answer, or the exception by its name."""
    try:
        return await work()
    except Exception as error:  # noqa: BLE001  # every way to tell a caller counts
        return described(error)


def described(error: BaseException) -> str:
    """An exception as one line."""
    return f"{type(error).__name__}: {error}"
