"""The daemon's log: one JSON object a line on stderr, or a readable line when stderr is a terminal."""

from __future__ import annotations

import sys

import structlog


def open_log() -> structlog.stdlib.BoundLogger:
    """Configure and return the daemon's logger."""
    shown: structlog.types.Processor = (
        structlog.dev.ConsoleRenderer() if sys.stderr.isatty() else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[structlog.processors.add_log_level, structlog.processors.TimeStamper(fmt="iso"), shown],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    log: structlog.stdlib.BoundLogger = structlog.get_logger()
    return log
