"""Programs of the bench that answer in lines of JSON and leave when their input is closed. Owns their processes: what
one says is waited for so long and no longer, and it ends with its block, with all of its process group.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from bench._daemon import REPOSITORY, child_environment, end_with_parent
from bench._oracle import ready

_CLOSES_WITHIN_S = 20.0


@contextmanager
def open_child(
    module: str, *words: str, stderr: IO[bytes] | None = None, **environment: str
) -> Iterator[subprocess.Popen[bytes]]:
    """``python -m MODULE WORDS…`` in a session of its own, with ``environment`` besides ours."""
    child = subprocess.Popen(
        [sys.executable, "-m", module, *words],
        cwd=REPOSITORY,
        env={**child_environment(), **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        start_new_session=True,
        preexec_fn=end_with_parent,  # noqa: PLW1509  # the bench has one thread
    )
    try:
        yield child
    finally:
        _end(child)


def next_line(child: subprocess.Popen[bytes], within_s: float) -> Any:
    """What it says next. Raises TimeoutError, RuntimeError when it has ended, ValueError for what is no JSON."""
    assert child.stdout is not None
    until, line = time.monotonic() + within_s, b""
    while not line.endswith(b"\n"):
        if not select.select([child.stdout], [], [], max(0.0, until - time.monotonic()))[0]:
            raise TimeoutError(f"{child.args!r} said nothing for {within_s:g} s")
        # One byte: what follows the line is the next one's.
        if not (more := os.read(child.stdout.fileno(), 1)):
            raise RuntimeError(f"{child.args!r} ended")
        line += more
    return json.loads(line)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Let it leave by itself (a daemon of its stops then), and kill its group before its number is free again."""
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.close()
    pidfd = os.pidfd_open(child.pid)
    try:
        ready(pidfd, _CLOSES_WITHIN_S)
    finally:  # whoever is interrupted here leaves nothing either
        os.close(pidfd)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
