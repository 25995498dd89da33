"""`python -m tests.trust.rigged RIG serve …`: a daemon with something done to it, else as ``deadlined serve``.

``dies=POINT:N``    kills itself with SIGKILL when it arrives at a point of `deaths` for the N-th time after SIGUSR1
``weighed``         says on stderr, at SIGUSR2, how much memory it has in use; forgets old results twice a second, so
                    that none is in this figure; its /proc may be read by its own uid
``overhears=FILE``  writes what each model that plays a script is asked, one JSON object a turn
"""

from __future__ import annotations

import ctypes
import gc
import json
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import apsw

from tests.trust import deaths

if TYPE_CHECKING:
    from supervisor.core.model_events import ModelEvent, Request
    from supervisor.models.scripted import ScriptedGateway

IN_USE = "in use: "


def main() -> int:
    name, _, more = sys.argv.pop(1).partition("=")
    RIGS[name](more)
    from deadlined.__main__ import main as command

    return command()


def _weighed(_: str) -> None:
    from supervisor import daemon

    _replace(daemon, "protect_self", lambda: None)
    _replace(daemon, "_EXPIRY_PERIOD_S", 0.5)
    signal.signal(signal.SIGUSR2, lambda *_: _say_memory())


def _replace(module: ModuleType, name: str, value: object) -> None:
    """Only what is there: a rig that changes nothing would prove nothing."""
    if not hasattr(module, name):
        raise SystemExit(f"{module.__name__} has no {name} any more: mend this rig")
    setattr(module, name, value)


def _say_memory() -> None:
    """First CPython's own account of its small objects, then what everybody else has from malloc, SQLite apart: its
    cache has a bound of its own."""
    gc.collect()
    sys._debugmallocstats()
    sys.stderr.write(f"{IN_USE}{_malloced() - apsw.memory_used()}\n")
    sys.stderr.flush()


class _Mallinfo2(ctypes.Structure):
    """mallinfo(3)."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    )


def _malloced() -> int:
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):  # glibc 2.33
        return 0
    libc.mallinfo2.restype = _Mallinfo2
    info = libc.mallinfo2()
    return int(info.uordblks + info.hblkhd)


def _overhears(path: str) -> None:
    from supervisor.models.scripted import ScriptedGateway

    real = ScriptedGateway.stream

    async def stream(self: ScriptedGateway, request: Request) -> AsyncGenerator[ModelEvent, None]:
        with Path(path).open("a") as file:
            file.write(json.dumps(_asked(request)) + "\n")
        async with aclosing(real(self, request)) as events:
            async for event in events:
                yield event

    ScriptedGateway.stream = stream  # type: ignore[method-assign]  # that is what a rig is


def _asked(request: Request) -> dict[str, object]:
    """What holds whatever was said, and what was."""
    pinned = "\n".join(message.text for message in request.messages if message.pinned)
    others = [message for message in request.messages if not message.pinned and message.role != "system"]
    said = "\n".join(f"{one.text} {' '.join(call.arguments for call in one.calls)}" for one in others)
    goal = pinned.partition("goal:\n- ")[2].partition("\n")[0]
    return {"goal": goal, "pinned": pinned, "others": said}


RIGS = {"dies": deaths.rig, "weighed": _weighed, "overhears": _overhears}


if __name__ == "__main__":
    sys.exit(main())
