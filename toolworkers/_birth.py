"""From the fork of the zygote to a worker's first frame: descriptors, limits, namespaces, directories, privileges.

Owns the order of these steps; what each one does is `_world`. The serve loop is `_worker`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import tempfile
import traceback
from typing import NoReturn

from protocol._worker_messages import Spawn
from toolworkers import _syscalls as sys_
from toolworkers import _world as world
from toolworkers._baseline import OUT_OF_THE_WAY, Scratch
from toolworkers._channel import Channel, ChannelLost
from toolworkers._worker import Settings, Worker

EXIT_FAILED = 70
"""The worker itself broke (its reason is on the daemon's stderr); EX_SOFTWARE of sysexits.h."""
EXIT_LOST = 71
"""The socket to the daemon ended, or a tool has taken it away."""
_FROM_ZYGOTE = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


def become(request: Spawn, descriptors: list[int], settings: Settings) -> NoReturn:
    """In the forked child: take on the world of a worker, report, serve. Never returns.

    A failure before WorkerReady goes to the daemon's stderr, and the exit code says so.
    """
    code = EXIT_FAILED
    complaints = 2
    try:
        world.join_cgroups(descriptors[1:])
        sys_.die_with_parent()
        os.setsid()
        complaints = fcntl.fcntl(2, fcntl.F_DUPFD_CLOEXEC, OUT_OF_THE_WAY)
        channel = Channel(_take_descriptors(descriptors[0], complaints, request.scratch))
        missing = _enter(request)
        worker = _settle_in(channel, request, missing, settings)
        worker.report(missing, request.describe, complaints)
        worker.serve()
    except ChannelLost:
        code = EXIT_LOST
    except BaseException:  # noqa: BLE001  # the process's boundary: said on stderr, and by the exit code
        with contextlib.suppress(OSError):
            os.write(complaints, f"worker {request.worker}: {traceback.format_exc()}".encode())
    finally:
        os._exit(code)


def _take_descriptors(channel: int, complaints: int, scratch: str) -> int:
    """0 ← /dev/null, 1 and 2 ← the standing output file, the socket out of the way, everything else closed."""
    moved = fcntl.fcntl(channel, fcntl.F_DUPFD_CLOEXEC, OUT_OF_THE_WAY)
    output = os.open(os.path.join(scratch, "out"), os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for source, target in ((null, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    low, high = sorted((moved, complaints))
    for first, last in ((3, low), (low + 1, high), (high + 1, 2**31 - 1)):
        os.closerange(first, last)
    return moved


def _enter(request: Spawn) -> list[str]:
    """Limits, namespaces, privileges, as far as the isolation asks for them; what this host refused."""
    world.offer_to_oom_killer()
    if request.isolation == "none":
        return []
    world.set_limits(request.limits, request.processes_of_uid)
    if request.isolation == "limits":
        return []
    missing = world.enter_namespaces(os.path.join(request.scratch, "tmp"), request.limits.tmp_bytes)
    return missing if request.isolation == "contain" else [*missing, request.isolation]


def _settle_in(channel: Channel, request: Spawn, missing: list[str], settings: Settings) -> Worker:
    contained = request.isolation not in ("none", "limits")
    tmp, work = (os.path.join(request.scratch, name) for name in ("tmp", "work"))
    scratch = Scratch(tmp, work, contained and not {"tmp", "shm"} & set(missing))
    os.fchdir(scratch.work_descriptor)
    os.environ["TMPDIR"], os.environ["HOME"] = tmp, scratch.home  # the rest is as the zygote has set it
    tempfile.tempdir = None  # the zygote's choice, if it made one
    _reseed()
    for number in _FROM_ZYGOTE:
        signal.signal(number, signal.SIG_DFL)
    worker = Worker(channel, scratch, settings)
    if contained:
        world.drop_privileges(world.ROOT_CAPABILITIES)
    return worker


def _reseed() -> None:
    """Children of one zygote would draw the same numbers. `random` sees to it at every fork (os.register_at_fork);
    libraries with generators of their own are asked by name."""
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed()
