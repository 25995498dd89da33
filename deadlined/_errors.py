"""What a client raises when something broke. How a call ended is a value (CallResult); a bad argument a ValueError."""

from __future__ import annotations

import shlex

from protocol._errors import ProtocolError
from protocol._outcomes import ErrorInfo
from protocol._places import default_socket
from protocol._runs import StopRecord


class DeadlinedError(Exception):
    """Whatever a client may raise about the daemon."""


class DaemonNotRunning(DeadlinedError):  # noqa: N818  # says what happened, as callers will read it
    """Nobody can be reached at the socket; the text says how to start a daemon there."""

    def __init__(self, path: str, cause: OSError) -> None:
        super().__init__(_how_to_start(path, cause))
        self.path = path


class ConnectionLost(DeadlinedError):  # noqa: N818  # says what happened, as callers will read it
    """The connection ended before an answer. The outcome of calls that were attached to it is unknown to this client:
    a daemon that is alive ends them, and they end with a daemon that is dead.
    """


class DaemonSilent(DeadlinedError):  # noqa: N818  # says what happened, as callers will read it
    """The daemon is there and did not answer in time: it is stopped or overloaded. The connection stays open."""

    def __init__(self, awaited: str, timeout_s: float) -> None:
        super().__init__(f"no {awaited} from the daemon within {timeout_s:g} s: it is stopped or overloaded")


class RequestRefused(DeadlinedError):  # noqa: N818  # says what happened, as callers will read it
    """The daemon understood the request and cannot answer it (no such call, say); ``error`` says why."""

    def __init__(self, error: ErrorInfo) -> None:
        super().__init__(f"{error.message} [{error.code}]")
        self.error = error


class RunStopped(DeadlinedError):  # noqa: N818  # says what happened, as callers will read it
    """The run does not run any more, and nothing goes on in it; ``stop`` says why, and what would help."""

    def __init__(self, stop: StopRecord) -> None:
        super().__init__(f"the run is {stop.status} ({stop.reason}): {stop.text}")
        self.stop = stop


class NotUnderstood(ConnectionLost, ProtocolError):  # noqa: N818  # says what happened, as callers will read it
    """The peer at the socket said what no daemon says; the connection was closed."""


def _how_to_start(path: str, cause: OSError) -> str:
    if isinstance(cause, PermissionError):
        return f"may not connect to {path}: it belongs to another user's daemon, or its directory does"
    start = "deadlined serve" if path == default_socket() else f"deadlined serve --socket {shlex.quote(path)}"
    why = cause.strerror or str(cause)
    return f"no daemon answers at {path} ({why}); start one with: {start}"
