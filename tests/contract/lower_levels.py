"""Daemons of a lower level: an ordinary daemon to which, and to all it starts, system calls are refused (`refuse.py`).

Nothing of the machine is changed, and no other process is concerned.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from deadlined._private_daemon import open_private_daemon
from tests.contract.conftest import MARK, PLAIN_UID, TestedDaemon, trusting

REFUSE = str(Path(__file__).with_name("refuse.py"))
SUBREAPER, GROUP, CGROUP = "namespaces,cgroups", "namespaces,cgroups,subreaper", "namespaces"


def refusing(what: str, python: Sequence[str] = (sys.executable,)) -> list[str]:
    """The words that start an interpreter to which this is refused; ``python``: as whom (`plain_uid_python`)."""
    if os.getuid() != 0 or len(python) > 1:
        what = what.replace(",cgroups", "")  # a plain uid has none that it may write to
    return [*python, REFUSE, what, python[-1]]


@contextmanager
def open_lower(what: str, config: str = "", python: Sequence[str] = (sys.executable,)) -> Iterator[TestedDaemon]:
    """A daemon to which ``what`` is refused; at the end it must exit as expected and leave nobody."""
    directory = Path(tempfile.mkdtemp(prefix="dl-"))
    try:
        (directory / "deadlined.toml").write_text(trusting(config))
        if len(python) > 1:
            os.chown(directory, PLAIN_UID, PLAIN_UID)
        mark = f"daemon-{uuid.uuid4().hex}"
        arguments = ["--config", str(directory / "deadlined.toml")]
        words = refusing(what, python) if what else python
        with open_private_daemon(directory, {MARK: mark}, arguments, words) as private:
            daemon = TestedDaemon(private, mark, directory)
            yield daemon
        daemon.check_gone()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def helper(daemon: TestedDaemon, role: str) -> psutil.Process:
    """The daemon's killer or its zygote."""
    (found,) = [
        child for child in psutil.Process(daemon.pid).children() if f"toolworkers {role} " in " ".join(child.cmdline())
    ]
    return found


def guard_of(process: psutil.Process, daemon: TestedDaemon) -> psutil.Process:
    """The guard above a process of a call: a child of the zygote."""
    zygote = helper(daemon, "zygote").pid
    return next(one for one in [process, *process.parents()] if one.ppid() == zygote)
