"""The zygote: started once with every import done, forks workers that are ready in a millisecond.

Owns: its own pid namespace (so that its death is the death of all workers), the fork of a worker into a namespace of
its own nested in it, and the word that a worker has been reaped. Leaves what a worker becomes to `_birth`, and what is
done where there shall be no namespace, or can be none, to `_guarded_zygote`.

Rules
1. One thread, no tool code, no signal that ends it but SIGKILL; it goes when its socket ends or its launcher dies.
2. unshare(NEWPID) changes only where the next child is born. Every fork is followed by setns back, else the second
   worker would be pid 2 in the namespace of the first.
3. A worker is reaped when its pidfd is readable: then every process of its namespace is dead and reaped.
4. One child is forked ahead of its request and waits; what it has done by then nobody waits for (see `_birth`).
5. Descriptors that came with a request belong to the worker alone: an inherited copy of one would hide its end.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, NoReturn

import msgspec

from protocol._codecs import zygote_to_daemon
from protocol._errors import ProtocolError
from protocol._worker_messages import FromZygote, Reaped, Spawned, SpawnFailed, ZygoteReady
from toolworkers import _birth
from toolworkers import _syscalls as sys_
from toolworkers import _world as world
from toolworkers._datagrams import receive_datagram, send_datagram
from toolworkers._lent import LentEnvironment
from toolworkers._refusal import why_no_namespaces
from toolworkers._registry import RegistryError, builtin_registry
from toolworkers._worker import Settings

EXIT_CONFIGURATION = 78
"""The tools cannot be loaded; the reason is on stderr. EX_CONFIG of sysexits.h."""
EXIT_REFUSED = 69
"""This host gives no namespaces; the daemon has been told why. EX_UNAVAILABLE of sysexits.h."""
_IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


class Config(msgspec.Struct, forbid_unknown_fields=True):
    """The JSON of the command line. ``outer_pidns``: inode of the daemon's pid namespace, where no sweep may happen.
    ``held_by``: what is to end the workers."""

    outer_pidns: int
    held_by: Literal["namespaces", "guards"] = "namespaces"
    modules: list[str] = []
    path: list[str] = []
    commands: dict[str, dict[str, Any]] = {}
    tools: dict[str, dict[str, Any]] = {}
    user_env: dict[str, str] = {}
    lent: dict[str, tuple[int, int]] | None = None
    """In place of ``user_env``: where its values lie in the file that came with it."""


def main(control: int, given: str, lent: int | None = None) -> NoReturn:
    """Enter the namespaces, load the tools, serve. The first process stays outside, as launcher, to the end. ``lent``:
    a descriptor for what ``Config.lent`` describes."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    sys_.die_with_parent()
    sys_.close_on_exec_from(3)
    link = socket.socket(fileno=control)
    plain_uid = os.geteuid() != 0
    try:
        config = msgspec.json.decode(_read_whole(int(given)) if given.isdigit() else given, type=Config)
    except msgspec.MsgspecError as error:
        _exit_over_configuration(error)
    user = None if lent is None else LentEnvironment(lent, config.lent or {})
    if config.held_by == "guards":
        sys_.die_with_parent(0)
        os._exit(_live_with_guards(link, config, user))
    try:
        _enter_namespaces(plain_uid)
    except OSError as error:
        _tell_refusal(link, why_no_namespaces(f"no pid namespace: {error.strerror}", not plain_uid))
        os._exit(EXIT_REFUSED)
    sys_.die_with_parent()  # the change of credentials has taken it back (prctl(2))
    zygote = os.fork()
    if zygote:
        link.close()
        if user is not None:
            user.close()
        _, status = os.waitpid(zygote, 0)
        os._exit(max(0, os.waitstatus_to_exitcode(status)) or 70 * os.WIFSIGNALED(status))
    os._exit(_live(link, config, user, plain_uid))


def _exit_over_configuration(error: Exception) -> NoReturn:
    print(f"toolworkers: {error}", file=sys.stderr)  # noqa: T201  # the daemon's log
    os._exit(EXIT_CONFIGURATION)


def _enter_namespaces(plain_uid: bool) -> None:
    if plain_uid:
        world.own_user_namespace(sys_.CLONE_NEWPID | sys_.CLONE_NEWNS | sys_.CLONE_NEWIPC)
    else:
        sys_.drop_bounding_set(world.ROOT_CAPABILITIES)
        sys_.unshare(sys_.CLONE_NEWPID)


def _tell_refusal(link: socket.socket, why: str) -> None:
    """The one word of a zygote that this host does not let be: why, and what would have to change."""
    with contextlib.suppress(OSError):
        send_datagram(link, zygote_to_daemon().pack(SpawnFailed(0, "containment", why)), ())


def _read_whole(descriptor: int) -> str:
    with open(descriptor, encoding="utf-8") as file:
        file.seek(0)  # a memory file, written by the daemon through the same open file
        return file.read()


def _live(link: socket.socket, config: Config, user: LentEnvironment | None, plain_uid: bool) -> int:
    """The life of pid 1; its exit code."""
    sys_.die_with_parent()
    if plain_uid:  # its own mount namespace: an unmount on the host must reach it
        try:
            sys_.mount("none", "/", None, sys_.MS_SLAVE | sys_.MS_REC)
        except OSError as error:  # a user namespace without its privileges, as AppArmor of Ubuntu gives it
            _tell_refusal(link, why_no_namespaces(f"no mount namespace: {error.strerror}", is_root=False))
            return EXIT_REFUSED
    settings = _settings_or_exit(config, user)
    with contextlib.suppress(ConnectionError):  # whatever was to be said: the daemon is gone
        zygote = Zygote(link, settings)
        zygote.say(ZygoteReady(os.getpid(), plain_uid))
        zygote.serve()
    return 0


def _live_with_guards(link: socket.socket, config: Config, user: LentEnvironment | None) -> int:
    """The life of a zygote without a namespace; its exit code. No parent-death signal: see `_guarded_zygote`."""
    from toolworkers._guarded_zygote import GuardedZygote

    reaps_orphans = True
    try:
        sys_.become_subreaper()
    except OSError:
        reaps_orphans = False
    sys_.set_dumpable(False)  # what a tool of our uid may not ptrace
    zygote = GuardedZygote(link, _settings_or_exit(config, user))
    with contextlib.suppress(ConnectionError):
        zygote.say(ZygoteReady(os.getpid(), userns=False, subreaper=reaps_orphans))
        zygote.serve()
    zygote.end()
    return 0


def _settings_or_exit(config: Config, user: LentEnvironment | None) -> Settings:
    try:
        return settings_of(config, user)
    except RegistryError as error:
        _exit_over_configuration(error)
    finally:
        if user is not None:
            user.close()


def load_settings(config_json: str) -> Settings:
    """Every tool, imported and described. Raises RegistryError or msgspec.MsgspecError that say what is wrong."""
    return settings_of(msgspec.json.decode(config_json, type=Config))


def settings_of(config: Config, lent: Mapping[str, str] | None = None) -> Settings:
    """The same from what is decoded. Raises RegistryError."""
    user = config.user_env if lent is None else lent
    # Libraries that start a thread per core at import would make every fork a gamble.
    one_thread = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    os.environ.clear()
    os.environ.update(world.command_environment("/", "/", one_thread, user))
    sys.path.extend(config.path)
    registry = builtin_registry()
    for module in config.modules:
        registry.load_module(module)
    for name, table in config.commands.items():
        registry.add_command_template(name, table, user.get("PATH"))
    for name, fields in config.tools.items():
        registry.override(name, fields)
    declared = {name for tool in registry for name in tool.contract.env}
    outer = config.outer_pidns if config.held_by == "namespaces" else world.NO_NAMESPACE
    return Settings(registry, outer, world.handed_on(user, declared))


class Unborn(NamedTuple):
    """A child that waits on ``link`` to be told which worker it is."""

    pid: int
    pidfd: int
    link: socket.socket


class Zygote:
    """The serve loop over the daemon's socket and the children's pidfds."""

    _more_descriptors = 0

    def __init__(self, link: socket.socket, settings: Settings) -> None:
        self._link, self._settings = link, settings
        self._codec = zygote_to_daemon()
        self._workers: dict[int, tuple[int, int]] = {}
        self._next: Unborn | None = None
        self._may_fork_ahead = True
        self._poll = select.poll()
        self._poll.register(link, select.POLLIN)
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        self._prepare()
        # What a tool's module has set at its import would collect our children, or have the kernel throw their statuses
        # away (sigaction(2), SIGCHLD).
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _settle_memory()

    def _prepare(self) -> None:
        self._own_namespace = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)

    def say(self, message: FromZygote, descriptors: tuple[int, ...] = ()) -> None:
        """One datagram. Raises OSError when the daemon is gone."""
        send_datagram(self._link, self._codec.pack(message), descriptors)

    def serve(self) -> None:
        """Fork and reap until the daemon's end of the socket is closed."""
        while True:
            if not self._poll.poll(0):
                self._fork_ahead()
            for descriptor, _ in self._poll.poll():
                if descriptor != self._link.fileno():
                    self._reap(descriptor)
                elif not self._hear():
                    return

    def _hear(self) -> bool:
        """Serve one request; False at the end of the socket, or when what came is no request."""
        descriptors: list[int] = []
        try:
            datagram, descriptors = receive_datagram(self._link)
            if not datagram:
                return False
            self._spawn(datagram, descriptors)
        except (ConnectionError, ProtocolError):
            return False
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        return True

    def _spawn(self, datagram: bytes, descriptors: list[int]) -> None:
        request = self._codec.unpack(datagram)
        wanted = 1 + request.cgroups + self._more_descriptors
        if len(descriptors) != wanted:
            came = f"{len(descriptors)} descriptors came with a request that needs {wanted}"
            self.say(SpawnFailed(request.worker, "descriptors", came))
            return
        try:
            child = self._next or self._fork()
        except OSError as error:  # EAGAIN, ENOMEM, ENOSPC: a limit of this host was reached
            self.say(SpawnFailed(request.worker, "fork", str(error)))
            return
        self._next, self._may_fork_ahead = None, True
        self._workers[child.pidfd] = (child.pid, request.worker)
        # Told first: once it knows its name the child competes with us for the processor, and the daemon has work too.
        self.say(Spawned(request.worker, child.pid), (child.pidfd,))
        self._hand_over(child, request.worker, datagram, descriptors)

    def _hand_over(self, child: Unborn, _worker: int, datagram: bytes, descriptors: list[int]) -> None:
        with child.link, contextlib.suppress(ConnectionError):  # it has died: the wait status that follows will tell
            send_datagram(child.link, datagram, descriptors)

    def _fork_ahead(self) -> None:
        """Have the next child ready. Once per request: a child that cannot live must not be forked for ever."""
        if self._next is None and self._may_fork_ahead:
            self._may_fork_ahead = False
            with contextlib.suppress(OSError):  # the next request tries again, and is told
                self._next = self._fork()

    def _fork(self) -> Unborn:
        """Fork pid 1 of a new namespace; rule 2. Raises OSError when this host has no room for it."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            sys_.unshare(sys_.CLONE_NEWPID)
            try:
                pid = os.fork()
                if pid == 0:
                    _birth.conceive(theirs, self._settings)
            finally:
                sys_.setns(self._own_namespace, sys_.CLONE_NEWPID)
        pidfd = os.pidfd_open(pid)
        self._poll.register(pidfd, select.POLLIN)
        return Unborn(pid, pidfd, ours)

    def _reap(self, pidfd: int) -> None:
        self._poll.unregister(pidfd)
        os.close(pidfd)
        if self._next is not None and pidfd == self._next.pidfd:
            self._next.link.close()
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._next.pid, 0)
            self._next = None
            return
        pid, worker = self._workers.pop(pidfd)
        try:
            _, status, used = os.wait4(pid, 0)
        except ChildProcessError:  # a thread of a tool's module has collected it: how it ended nobody can say any more
            self._buried(Reaped(worker, None, None, 0, 0))
            return
        code = os.waitstatus_to_exitcode(status)
        cpu_ms = int((used.ru_utime + used.ru_stime) * 1e3)
        exit_code, signal_number = (code, None) if code >= 0 else (None, -code)
        self._buried(Reaped(worker, exit_code, signal_number, cpu_ms, used.ru_maxrss * 1024))

    def _buried(self, message: Reaped) -> None:
        self.say(message)


def _settle_memory() -> None:
    """What is loaded now is shared with every worker, for as long as no collector writes into it."""
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a file; write_through would lose output
    gc.collect()
    gc.freeze()
