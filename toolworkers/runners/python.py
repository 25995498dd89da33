"""A Python tool, run in place by the worker's own interpreter; and a command tool's plan, which is Python too.

Owns what may come of calling a stranger's function: a value, an exception of any kind, a forked child that returns.
What the function cannot return from (os._exit, a crash, a hang) is nobody's here: the pidfd tells.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from typing import Any, NamedTuple

from protocol._errors import InvalidArguments
from protocol._worker_messages import Ended
from toolworkers import _syscalls as sys_
from toolworkers._content import ContentTooLarge, to_content
from toolworkers._registry import CommandPlan, Context, Tool, ToolError
from toolworkers.runners._failures import failed, printable, tell_traceback

_streams = sys.stdout, sys.stderr
"""As the worker has them: a tool may have put others in their place."""
_EXPECTED = (ToolError, InvalidArguments)


def run(nonce: int, tool: Tool, arguments: dict[str, Any], context: Context, output_limit: int) -> Ended:
    """Call the function and flush what it printed. Always returns, in the process that called, whatever was raised.

    ``output_limit``: bytes that it may print, and that its value may have; what has more has come to its limit, as a
    command that writes too much.
    """
    caller = os.getpid()
    try:
        content = to_content(tool.call(arguments, context), output_limit)
        ended = Ended(nonce, "no_result" if content is None else "ok", content=content)
    except BaseException as error:  # noqa: BLE001  # the process's boundary: what is caught is sent
        ended = _caught(nonce, error, caller)
        if isinstance(error, ContentTooLarge) and error.size > output_limit:
            ended = Ended(nonce, "output_limit")
    ended.fingerprint = context.said_fingerprint
    _leave_if_forked(caller)
    _flush()
    return Ended(nonce, "output_limit") if _printed() > output_limit else ended


def plan(nonce: int, tool: Tool, arguments: dict[str, Any], context: Context) -> CommandPlan | Ended:
    """What a command tool wants run, or the end of its call. A plan that cannot be is the arguments' fault."""
    caller = os.getpid()
    planned: CommandPlan | Ended
    try:
        planned = _checked(tool.call(arguments, context))
    except InvalidArguments as error:
        planned = Ended(nonce, "invalid_arguments", message=printable(error))
        planned.error_class, planned.error_code = "argument", "invalid_arguments"
    except BaseException as error:  # noqa: BLE001  # as above
        planned = _caught(nonce, error, caller)
    _leave_if_forked(caller)
    _flush()
    return planned


def _checked(planned: object) -> CommandPlan:
    if not isinstance(planned, CommandPlan):
        raise ToolError(f"a command tool returned {type(planned).__name__}; allowed: CommandPlan", code="content")
    return planned


def _caught(nonce: int, error: BaseException, caller: int) -> Ended:
    _leave_if_forked(caller)
    if not isinstance(error, _EXPECTED):
        tell_traceback(error)
    return failed(nonce, error)


def _leave_if_forked(caller: int) -> None:
    """A tool's fork that returns or raises would answer the call a second time, in its parent's name."""
    if os.getpid() != caller:
        os._exit(0)


def _printed() -> int:
    """Bytes in the output file: the daemon looks every 10 ms, and this may have been faster."""
    try:
        return os.fstat(1).st_size
    except OSError:  # the tool has closed it
        return 0


def _flush() -> None:
    """Whatever happens to it (closed, no space left), a stream must not keep the answer back."""
    for stream in _streams:
        try:  # noqa: SIM105  # suppress() costs a microsecond, in every call
            stream.flush()
        except Exception:  # noqa: BLE001, S110  # the sentence above
            pass
    sys_.flush_c_streams()


class Used(NamedTuple):
    """Processor time of this process and the children it reaped, and the largest resident size, since its start."""

    cpu_ms: float
    max_rss_bytes: int


def used(before: Used | None = None) -> Used:
    """What was used until now. Since ``before`` less than a millisecond: no memory to speak of can have been touched,
    and the second question is not asked."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = time.process_time() * 1e3 + (children.ru_utime + children.ru_stime) * 1e3
    if before is not None and spent - before.cpu_ms < 1:
        return Used(spent, before.max_rss_bytes)
    largest = max(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, children.ru_maxrss)
    return Used(spent, largest * 1024)
