"""A command: a child of the worker in its own session, its output spliced into the raw file, its leftovers swept.

Owns one command from its plan to its Ended. The order at the end is the point: the exit is learnt from the pidfd (end
of file is not exit, exit is not end of file), then the namespace is swept, and only then is the pipe drained: when
every writer is dead, what is in it is all there will ever be. The worker's SIGTERM is passed on to the command's group.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import select
import signal
import time
from collections.abc import Mapping, Sequence

from protocol._worker_messages import Call, Ended, Progress
from toolworkers import _syscalls as sys_
from toolworkers import _world as world
from toolworkers._channel import Channel, ChannelLost
from toolworkers._programs import find_program
from toolworkers._registry import CommandPlan
from toolworkers.runners._failures import printable
from toolworkers.runners._output import Output
from toolworkers.runners._progress import INTERVAL_NS

_RESET = [signal.Signals(number) for number in (1, 2, 3, 10, 12, 13, 14, 15, 17, signal.SIGXFSZ)]
"""Default again in the command: what Python or the worker ignores or handles (an ignored signal survives exec)."""
_ORPHAN_ROUND_MS = 1000
"""How often the dead children of dead parents are reaped while a command runs: they count against its pids limit."""
_UNRUNNABLE = (errno.EACCES, errno.EPERM, errno.ENOEXEC, errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ETXTBSY)
"""Of a file that was found: not ours to run, no program, its interpreter missing, being written."""
_NOT_NOW = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)


class CommandRun:
    """One command. ``descriptors``: raw file, read end, write end, once or twice; they are closed by `close`.

    ``clean``: whether no process was left when it ended.
    """

    def __init__(self, call: Call, channel: Channel, descriptors: Sequence[int], outer_pidns: int) -> None:
        if len(descriptors) != (6 if call.split_streams else 3):
            raise ChannelLost(f"a command's call came with {len(descriptors)} descriptors")
        self._call, self._channel, self._outer_pidns = call, channel, outer_pidns
        self._output = Output(descriptors, call.output_limit)
        self._pid: int | None = None
        self._terminated = False
        self._told_bytes, self._tell_ns = 0, 0
        self._children_ms = _children_ms()
        self.clean = True

    @property
    def output(self) -> Output:
        """Where the call's output goes; the tool's own code, which makes the plan, may print into it too."""
        return self._output

    def close(self) -> None:
        """Close every descriptor of the output."""
        self._output.close()

    def terminate(self) -> None:
        """SIGTERM to the command's process group; for the worker's signal handler. Before the spawn: at the spawn."""
        self._terminated = True
        if self._pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pid, signal.SIGTERM)

    def execute(self, plan: CommandPlan, environment: Mapping[str, str]) -> Ended:
        """Run the plan to its end. Raises ChannelLost when the daemon goes meanwhile."""
        try:
            if plan.cwd is not None:
                os.chdir(_from_home(plan.cwd, environment["HOME"]))
        except (OSError, ValueError) as error:
            return self._refused("bad_cwd", error, plan.cwd)
        try:
            program = find_program(plan.argv[0], environment["PATH"])
        except FileNotFoundError as error:
            return self._refused("not_found", error)
        except PermissionError as error:
            return self._refused("cannot_run", error)
        try:
            pid = self._spawn(program, plan, environment)
        except (OSError, ValueError) as error:
            return self._not_spawned(error)
        finally:
            self._output.close_write_ends()
        ended = self._attend(pid)
        for path in plan.temporary:
            with contextlib.suppress(OSError):
                os.unlink(path)
        return ended

    # ------------------------------------------------------------ start

    def _spawn(self, program: str, plan: CommandPlan, environment: Mapping[str, str]) -> int:
        """posix_spawn: the absolute program (posix_spawnp would search the worker's PATH), own session, empty mask."""
        stdin = _standard_input(plan.stdin)
        try:
            sys_.close_on_exec_from(3)  # whatever tool code opened inheritable stays here
            actions = [(os.POSIX_SPAWN_DUP2, source, target) for target, source in enumerate(self._sources(stdin))]
            return os.posix_spawn(
                program, plan.argv, environment, file_actions=actions, setsid=True, setsigmask=[], setsigdef=_RESET
            )
        finally:
            if stdin is not None:
                os.close(stdin)

    def _sources(self, stdin: int | None) -> tuple[int, int, int]:
        return (0 if stdin is None else stdin, *self._output.write_ends)  # the worker's own 0 is /dev/null

    def _not_spawned(self, error: OSError | ValueError) -> Ended:
        number = error.errno if isinstance(error, OSError) else None
        if number in _UNRUNNABLE:
            return self._refused("cannot_run", error)
        if number is None or number == errno.E2BIG:
            return self._refused("invalid_arguments", error)
        kind = "transient_tool" if number in _NOT_NOW else "tool"
        return self._ended("raised", error_class=kind, error_code="spawn_failed", message=_say(error))

    def _refused(self, how: str, error: Exception, path: str | None = None) -> Ended:
        said = _say(error) if path is None else f"{path!r}: {_say(error)}"
        return self._ended(how, error_class="argument", error_code=how, message=printable(said))

    # ------------------------------------------------------------ until the end

    def _attend(self, pid: int) -> Ended:
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:  # it has ended, and somebody has collected it: see `_collect`
            return self._finish(pid)
        self._pid = pid
        if self._terminated:
            self.terminate()
        try:
            exited = self._wait(pid, pidfd)
        finally:
            os.close(pidfd)
        self._pid = None  # before the reap: a number that is free again must get no SIGTERM
        return self._finish(pid) if exited else self._cut_off(pid)

    def _wait(self, pid: int, pidfd: int) -> bool:
        """Move output until the command has ended (True) or has written too much (False)."""
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        poll.register(self._channel.fileno(), 0)  # nothing but its hang-up
        self._output.watch(poll)
        while True:
            exited = False
            for descriptor, _ in poll.poll(self._pause_ms()):
                if descriptor == pidfd:
                    exited = True
                elif descriptor == self._channel.fileno():
                    raise ChannelLost("the daemon has closed the socket")
                else:
                    self._output.take(descriptor, poll)
            if exited or self._output.over:
                return exited
            self._reap_orphans(pid)
            self._tell_progress()

    def _pause_ms(self) -> int:
        if self._output.size == self._told_bytes:
            return _ORPHAN_ROUND_MS
        return max(0, (self._tell_ns - time.monotonic_ns()) // 1_000_000 + 1)

    def _tell_progress(self) -> None:
        size, now = self._output.size, time.monotonic_ns()
        if size != self._told_bytes and now >= self._tell_ns:
            self._told_bytes, self._tell_ns = size, now + INTERVAL_NS
            self._channel.send_if_room(Progress(self._call.nonce, output_bytes=size))

    def _reap_orphans(self, pid: int) -> None:
        """Reap the dead that are not the command. Looking first (WNOWAIT) keeps its own status for `_finish`."""
        look = os.WEXITED | os.WNOHANG | os.WNOWAIT
        with contextlib.suppress(ChildProcessError):
            while (dead := os.waitid(os.P_ALL, 0, look)) is not None and dead.si_pid != pid:
                os.waitpid(dead.si_pid, 0)

    # ------------------------------------------------------------ the end

    def _finish(self, pid: int) -> Ended:
        """It has ended by itself: its status, then the sweep, then the rest of the pipe."""
        strays = world.end_session_of(pid, self._outer_pidns)  # before its number is free
        status, max_rss_bytes = _collect(pid)
        left = world.sweep(self._outer_pidns)
        self.clean = left.clean
        self._output.take_rest()
        ended = self._ended("output_limit" if self._output.over else "exit")
        if status is not None:
            code = os.waitstatus_to_exitcode(status)
            ended.code, ended.signal = (code, None) if code >= 0 else (None, _signal_name(-code))
        ended.left_processes = left.killed + strays
        ended.max_rss_bytes = max_rss_bytes
        return ended

    def _cut_off(self, pid: int) -> Ended:
        """It wrote more than it may: everything in the namespace ends; ``left_processes`` says how many that were."""
        began_ns = time.monotonic_ns()
        strays = world.end_session_of(pid, self._outer_pidns)
        left = world.sweep(self._outer_pidns)
        swept_us = (time.monotonic_ns() - began_ns) // 1_000
        self.clean = left.clean
        ended = self._ended("output_limit")
        ended.swept_us = swept_us if left.clean else None
        ended.left_processes = left.killed + strays
        ended.max_rss_bytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        return ended

    def _ended(self, how: str, **fields: str) -> Ended:
        ended = Ended(self._call.nonce, how, **fields)  # type: ignore[arg-type]  # words of this file; strings all
        ended.output_bytes = [stream.size for stream in self._output.streams]
        ended.cpu_ms = int(_children_ms() - self._children_ms)
        return ended


def _collect(pid: int) -> tuple[int | None, int]:
    """Wait status and largest resident size of a child that has ended. A thread that the tool's own code left here may
    have collected it first: then its status is nobody's to know (None), and no 0 (waitpid(2), ECHILD)."""
    try:
        _, status, used = os.wait4(pid, 0)
    except ChildProcessError:
        return None, 0
    return status, used.ru_maxrss * 1024


def _standard_input(text: str | bytes | None) -> int | None:
    """A descriptor to read ``text`` from: memory, so that nobody has to feed a pipe while the command runs."""
    if text is None:
        return None
    descriptor = os.memfd_create("stdin", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(text.encode() if isinstance(text, str) else text)
        os.lseek(descriptor, 0, os.SEEK_SET)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _from_home(path: str, home: str) -> str:
    """``~`` as a shell has it: those who write ``~/project`` mean the HOME that the command will see."""
    return home + path[1:] if path == "~" or path.startswith("~/") else path


def _children_ms() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) * 1e3


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def _say(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
