"""Entry of the command ``deadlined``.

Before anything else it checks that ``protocol``, ``toolworkers`` and ``supervisor`` are ours: PyPI's Supervisor has a
top-level ``supervisor`` too, and pip overwrites silently. ``exec`` is dispatched by hand, because one call without a
daemon must not pay for a command-line library; everything else goes to `deadlined.cli.app`.
"""

from __future__ import annotations

import time

STARTED_NS = time.monotonic_ns()
"""The clock as early as this process can read it; a deadline of ``exec`` counts from here."""

import os  # noqa: E402  # the clock comes first
import sys  # noqa: E402

TYPE_CHECKING = False  # what `typing` says, without the 5 ms of loading it
if TYPE_CHECKING:
    from typing import NoReturn

_OURS = ("protocol", "toolworkers", "supervisor")
_FAILED = 125
_CURE = "give deadlined a virtual environment of its own, for instance: pipx install deadlined"


def main() -> int:
    """Run the command line; the exit code. Does not return for ``exec``."""
    if (complaint := foreign_module()) is not None:
        print(f"deadlined: {complaint}; {_CURE}", file=sys.stderr)  # noqa: T201  # the command line's own voice
        return _FAILED
    if sys.argv[1:2] == ["exec"]:
        _exec(sys.argv[2:])
    from deadlined.cli.app import main as command_line

    return command_line()


def foreign_module() -> str | None:
    """What is wrong with our top-level packages; None when all three are ours."""
    for name in _OURS:
        try:
            module = __import__(name)
        except Exception as error:  # noqa: BLE001  # a foreign module may raise anything; it is told, never swallowed
            return f"the module {name!r} cannot be loaded ({type(error).__name__}: {error})"
        if getattr(module, "__owner__", None) != "deadlined":
            where = getattr(module, "__file__", None) or "unknown place"
            return f"the module {name!r} at {where} belongs to another distribution, which has overwritten ours"
    return None


def _exec(words: list[str]) -> NoReturn:
    """No way back: the interpreter's orderly end would cost milliseconds and has nothing of ours to end."""
    from toolworkers import _signals

    if not _signals.is_ignored(_signals.SIGINT):
        _signals.set_default(_signals.SIGINT)  # Python's own handler answers an early Ctrl-C with a traceback
    from deadlined.cli import exec as one_call

    os._exit(one_call.run(words, STARTED_NS))


if __name__ == "__main__":
    sys.exit(main())
