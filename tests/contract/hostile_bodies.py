"""Workers whose body is a hostile program: tool code that puts one in the worker's place, with the protocol's socket.

A worker is forked and never started anew, so this is how a program comes to speak in its name. `HOSTILE_FD` says where.
"""

from __future__ import annotations

import os
import resource
import sys
from typing import NoReturn

from hostile_tools import protocol_socket  # lies beside this module, where the zygote looks

from deadlined import tool
from toolworkers._worker import Worker

DEAF = 77
"""``limits.open_files`` of tools whose workers never read a call: they have become `never_reads`."""
_serve = Worker.serve


@tool(approval="never")
def become(program: str, environment: dict[str, str]) -> str:
    """Be ``program`` from here on: the call has been accepted, and nobody else will answer it."""
    _become(program, environment)


@tool(approval="never", read_only=True)
def listen(text: str) -> int:
    """Be given ``text``."""
    return len(text)


def _become(program: str, environment: dict[str, str]) -> NoReturn:
    link = protocol_socket().detach()
    os.set_inheritable(link, True)
    os.execve(sys.executable, [sys.executable, program], {**environment, "HOSTILE_FD": str(link)})


def _serve_or_not(worker: Worker) -> NoReturn:
    """In place of a worker's serve loop, which begins when it has said that it is ready."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] == DEAF:
        here = os.path.dirname(os.path.abspath(__file__))
        _become(os.path.join(here, "..", "hostile", "never_reads.py"), {"DEADLINED_HOSTILE": "1"})
    _serve(worker)


Worker.serve = _serve_or_not  # type: ignore[method-assign]  # in the zygote of this test's daemon, nowhere else
