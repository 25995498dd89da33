"""The daemon's log: one JSON object a line on stderr, or a readable line when stderr is a terminal."""

from __future__ import annotations

import contextlib
import os
import sys

import structlog


class _Logger(structlog.PrintLogger):
    """Nobody may listen any more, or the disk may be full: no reason for a daemon to end, nor to end with another code.

    Straight to the descriptor: what a text stream could not write stays in its buffer, and failing again at exit it
    would turn a clean end into exit 120.
    """

    def msg(self, message: str) -> None:
        """One line."""
        with contextlib.suppress(OSError):
            os.write(2, f"{message}\n".encode(errors="backslashreplace"))

    log = debug = info = warn = warning = error = exception = critical = fatal = msg


def open_log() -> structlog.stdlib.BoundLogger:
    """Configure and return the daemon's logger."""
    shown: structlog.types.Processor = (
        structlog.dev.ConsoleRenderer() if sys.stderr.isatty() else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[structlog.processors.add_log_level, structlog.processors.TimeStamper(fmt="iso"), shown],
        logger_factory=lambda *_: _Logger(sys.stderr),
    )
    log: structlog.stdlib.BoundLogger = structlog.get_logger()
    return log
