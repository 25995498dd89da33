"""One look at the real thing for `make check`: a command's whole tree ends with its deadline, and with its end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

pytestmark = pytest.mark.contract
DEADLINED = [sys.executable, "-m", "deadlined"]
TREE = 'setsid sleep "$0" & (sleep "$0" &) ; sleep "$0"'


def test_exec_ends_a_whole_tree_at_the_deadline(nothing_left: Callable[..., None]) -> None:
    seconds = f"1000.{os.getpid()}1"
    done = subprocess.run([*DEADLINED, "exec", "--deadline", "400ms", "--", "sh", "-c", TREE, seconds])
    nothing_left(seconds)
    assert done.returncode == 124


def test_exec_ends_what_a_command_leaves_behind(nothing_left: Callable[..., None]) -> None:
    seconds = f"1000.{os.getpid()}2"
    script = 'sleep "$0" & echo hi'
    done = subprocess.run([*DEADLINED, "exec", "--", "sh", "-c", script, seconds], capture_output=True, text=True)
    nothing_left(seconds)
    assert (done.returncode, done.stdout) == (0, "hi\n")
    assert "1 process left behind" in done.stderr
