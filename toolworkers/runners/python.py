"""A Python tool, run in place by the worker's own interpreter; and a command tool's plan, which is Python too.

Owns what may come of calling a stranger's function: a value, an exception of any kind, a forked child that returns.
What the function cannot return from (os._exit, a crash, a hang) is nobody's here: the pidfd tells.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from typing import Any

from protocol._errors import InvalidArguments
from protocol._worker_messages import Ended
from toolworkers import _syscalls as sys_
from toolworkers._registry import CommandPlan, Context, Tool, ToolError, to_content
from toolworkers.runners._failures import failed, printable, tell_traceback

_streams = sys.stdout, sys.stderr
"""As the worker has them: a tool may have put others in their place."""
_EXPECTED = (ToolError, InvalidArguments)


def run(nonce: int, tool: Tool, arguments: dict[str, Any], context: Context) -> Ended:
    """Call the function and flush what it printed. Always returns, in the process that called, whatever was raised."""
    caller = os.getpid()
    try:
        content = to_content(tool.call(arguments, context))
        ended = Ended(nonce, "no_result" if content is None else "ok", content=content)
    except BaseException as error:  # noqa: BLE001  # the process's boundary: what is caught is sent
        ended = _caught(nonce, error, caller)
    _leave_if_forked(caller)
    _flush()
    return ended


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


def _flush() -> None:
    """Whatever happens to it (closed, no space left), a stream must not keep the answer back."""
    for stream in _streams:
        with contextlib.suppress(Exception):
            stream.flush()
    sys_.flush_c_streams()


def used() -> tuple[float, int]:
    """Milliseconds of processor time of this process and the children it reaped, and its largest resident size."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
    return spent * 1e3, max(own.ru_maxrss, children.ru_maxrss) * 1024
