"""From the fork of the zygote to a worker's first frame: descriptors, limits, namespaces, directories, privileges.

Owns the order of these steps; what each one does is `_world`. The serve loop is `_worker`. The zygote forks one child
ahead, so the first steps (which need no request) have been taken when a request comes. Namespaces are not among them:
a mount namespace is a picture of the host's mounts, and it should be that of the call and not of an hour ago.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import sys
import tempfile
import traceback
from typing import NoReturn

from protocol._codecs import zygote_to_daemon
from protocol._worker_messages import Spawn
from toolworkers import _syscalls as sys_
from toolworkers import _world as world
from toolworkers._baseline import OUT_OF_THE_WAY, Scratch
from toolworkers._channel import Channel, ChannelLost
from toolworkers._datagrams import receive_datagram
from toolworkers._rehearsal import rehearse
from toolworkers._worker import Settings, Worker

EXIT_FAILED = 70
"""The worker itself broke (its reason is on the daemon's stderr); EX_SOFTWARE of sysexits.h."""
EXIT_LOST = 71
"""The socket to the daemon ended, or a tool has taken it away."""
_codec = zygote_to_daemon()
_FROM_ZYGOTE = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


class _RefusedError(Exception):
    """The host has refused what the isolation needs; the text says what."""


def conceive(link: socket.socket, settings: Settings, guard: int | None = None) -> NoReturn:
    """In the forked child: do all that needs no request, wait for one on ``link``, become that worker. Never returns.

    ``guard``: the pid of the parent, where that is a guard and no zygote. A failure before WorkerReady goes to the
    daemon's stderr, and the exit code says so.
    """
    code = EXIT_FAILED
    last_words = 2
    try:
        last_words = fcntl.fcntl(2, fcntl.F_DUPFD_CLOEXEC, OUT_OF_THE_WAY)
        link = _leave_the_zygote(link, last_words)
        rehearse(settings.outer_pidns)
        born = _wait_for_request(link)
        if born is not None and guard in (None, os.getppid()):  # else it died before the parent-death signal was set
            _become(*born, settings, last_words)
        code = 0
    except ChannelLost:
        code = EXIT_LOST
    except _RefusedError as error:
        with contextlib.suppress(OSError):
            os.write(last_words, f"a worker could not start: {error}\n".encode())
    except BaseException:  # noqa: BLE001  # the process's boundary: said on stderr, and by the exit code
        with contextlib.suppress(OSError):
            os.write(last_words, f"a worker could not start: {traceback.format_exc()}".encode())
    finally:
        os._exit(code)


def _leave_the_zygote(link: socket.socket, last_words: int) -> socket.socket:
    """Die with the zygote, keep none of its descriptors and signals, have a session of one's own."""
    sys_.die_with_parent()
    os.setsid()
    moved = fcntl.fcntl(link, fcntl.F_DUPFD_CLOEXEC, OUT_OF_THE_WAY)
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(null, 0)
    low, high = sorted((moved, last_words))
    for first, last in ((3, low), (low + 1, high), (high + 1, 2**31 - 1)):
        os.closerange(first, last)
    for number in _FROM_ZYGOTE:
        signal.signal(number, signal.SIG_DFL)
    world.offer_to_oom_killer()
    _reseed()
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, moved)


def _wait_for_request(link: socket.socket) -> tuple[Spawn, list[int]] | None:
    """The request, as the daemon sent it, with its descriptors; None when the zygote wants no worker any more."""
    datagram, descriptors = receive_datagram(link)
    link.close()
    return (_codec.unpack(datagram), descriptors) if datagram else None


def _become(request: Spawn, descriptors: list[int], settings: Settings, last_words: int) -> NoReturn:
    world.join_cgroups(descriptors[1:])
    moved = fcntl.fcntl(descriptors[0], fcntl.F_DUPFD_CLOEXEC, OUT_OF_THE_WAY)
    os.close(descriptors[0])
    output = os.open(os.path.join(request.scratch, "out"), os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    try:
        missing = _enter(request, settings.outer_pidns != world.NO_NAMESPACE)
    except OSError as error:
        raise _RefusedError(f"this host refused its namespaces: {error.strerror}") from error
    worker = _settle_in(Channel(moved), request, missing, settings)
    worker.report(missing, request.describe, last_words)
    worker.serve()


def _enter(request: Spawn, in_namespace: bool) -> list[str]:
    """Limits and namespaces, as far as the isolation asks for them; what this host refused."""
    if request.isolation == "none":
        return []
    world.set_limits(request.limits, request.processes_of_uid)
    if request.isolation == "limits":
        return []
    if not in_namespace:
        return ["namespaces"]
    missing = world.enter_namespaces(os.path.join(request.scratch, "tmp"), request.limits.tmp_bytes)
    return missing if request.isolation == "contain" else [*missing, request.isolation]


def _settle_in(channel: Channel, request: Spawn, missing: list[str], settings: Settings) -> Worker:
    contained = request.isolation not in ("none", "limits")
    tmp, work = (os.path.join(request.scratch, name) for name in ("tmp", "work"))
    scratch = Scratch(tmp, work, contained and not {"tmp", "shm", "namespaces"} & set(missing))
    os.fchdir(scratch.work_descriptor)
    os.environ["TMPDIR"], os.environ["HOME"] = tmp, scratch.home  # the rest is as the zygote has set it
    tempfile.tempdir = None  # the zygote's choice, if it made one
    worker = Worker(channel, scratch, settings)
    if "namespaces" in missing:
        missing += world.stand_in_for_namespaces()
    if contained:
        world.drop_privileges(world.ROOT_CAPABILITIES)
    else:
        sys_.set_dumpable(False)  # whatever the tool may do: not to other workers of its uid
    return worker


def _reseed() -> None:
    """Children of one zygote would draw the same numbers. `random` sees to it at every fork (os.register_at_fork);
    libraries with generators of their own are asked by name."""
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed()
