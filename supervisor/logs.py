"""The daemon's log: one JSON object a line on stderr, or a readable line when stderr is a terminal.

Whatever happens, it ends nobody, keeps nobody waiting and fills no disk: what comes again and again is counted and
summed up (`Repeats`), long texts are cut, and what cannot be written is counted too and told once it can be.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import sys
from typing import Any

import structlog

from supervisor.clock import now_ns
from supervisor.core.redaction import Redaction
from supervisor.core.repeats import Repeats, RepeatSettings

_TEXT = 4_096
"""The longest text in a line, in characters: both ends of it, half each."""
_STEERING = dict.fromkeys((*range(9), *range(0x0B, 0x20), *range(0x7F, 0xA0)), "?")
"""What steers a terminal; line ends and tabs do not."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""A disk that will have room again. A stderr that nobody reads (any more) is no trouble of ours."""


class Log:
    """One per process. Straight to the descriptor: what a text stream could not write stays in its buffer, and failing
    again at exit it would turn a clean end into exit 120."""

    def __init__(self, descriptor: int = 2, settings: RepeatSettings | None = None) -> None:
        self._descriptor = descriptor
        self._repeats = Repeats(settings)
        self._room = select.poll()
        self._room.register(descriptor, select.POLLOUT)
        self._lost = 0
        self._torn = False
        self.redaction = Redaction()
        """Takes out what nobody may read."""
        self.trouble: str | None = None
        """Why lines cannot be written at the moment."""

    def write(self, text: str) -> None:
        """One line, or one more that is lost."""
        if not (self._tell_lost() and self._put(text)):
            self._lost += 1

    def _tell_lost(self) -> bool:
        if self._lost and self._put(f'{{"event": "log_lines_lost", "level": "warning", "count": {self._lost}}}'):
            self._lost = 0
        return not self._lost

    def _put(self, text: str) -> bool:
        line = ("\n" if self._torn else "") + text + "\n"
        data = line.encode(errors="backslashreplace")
        try:
            # A full pipe would block the daemon for as long as its reader likes.
            written = os.write(self._descriptor, data) if self._room.poll(0) else 0
        except OSError as error:
            self.trouble = f"the log cannot be written: {error.strerror}" if error.errno in _FULL else None
            return False
        self.trouble = None
        self._torn = 0 < written < len(data) or (self._torn and not written)
        return written == len(data)

    def only_news(self, _logger: Any, _name: str, event: structlog.types.EventDict) -> structlog.types.EventDict:
        """A processor: drops what has been told often enough; the next of its kind says how many those were."""
        left_out = self._repeats.on_event(str(event.get("event")), now_ns())
        if left_out is None:
            raise structlog.DropEvent
        return {**event, "left_out_before": left_out} if left_out else event

    def without_secrets(self, _logger: Any, _name: str, event: structlog.types.EventDict) -> structlog.types.EventDict:
        """A processor: whatever a text quotes, no secret of a tool's contract stands in it."""
        return self.redaction.value(event) if self.redaction else event

    def sum_up(self, log: structlog.stdlib.BoundLogger) -> None:
        """Tell what was left out of kinds that have fallen silent, and what was lost. To be called now and then."""
        self._tell_lost()
        for kind, count in self._repeats.over(now_ns()).items():
            log.warning("left_out", of=kind, count=count)


LOG = Log()
"""What `open_log` configures for everybody: structlog is configured once for a process."""


class _Logger(structlog.PrintLogger):
    """Takes the lines that structlog has finished."""

    def msg(self, message: str) -> None:
        """One line."""
        LOG.write(message)

    log = debug = info = warn = warning = error = exception = critical = fatal = msg


def open_log() -> structlog.stdlib.BoundLogger:
    """Configure and return the daemon's logger."""
    shown: list[structlog.types.Processor] = (
        [without_steering, structlog.dev.ConsoleRenderer()]
        if sys.stderr.isatty()
        else [structlog.processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[
            LOG.only_news,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            LOG.without_secrets,
            short,
            *shown,
        ],
        logger_factory=lambda *_: _Logger(sys.stderr),
    )
    log: structlog.stdlib.BoundLogger = structlog.get_logger()
    return log


def say(text: str) -> None:
    """A line on stdout, for whoever started the daemon. Nobody need listen."""
    with contextlib.suppress(OSError):
        os.write(1, f"{text}\n".encode(errors="surrogateescape"))


def short(_logger: Any, _name: str, event: structlog.types.EventDict) -> structlog.types.EventDict:
    """A processor: no text is longer than 4 Ki characters, however much a peer has made an error quote."""
    return {key: _ends_of(value) if isinstance(value, str) else value for key, value in event.items()}


def _ends_of(text: str) -> str:
    return text if len(text) <= _TEXT else f"{text[: _TEXT // 2]}\n[...]\n{text[-_TEXT // 2 :]}"


def without_steering(_logger: Any, _name: str, event: structlog.types.EventDict) -> structlog.types.EventDict:
    """A processor for terminals: no text of a peer, a tool or a path may move the cursor or set a title."""
    return {key: value.translate(_STEERING) if isinstance(value, str) else value for key, value in event.items()}
