"""One call without a daemon: the namespaces of ``deadlined exec`` and their first process, which is itself the killer.

Owns: entering the pid namespace, pid 1's whole life (world, spawn, deadline, kill, sweep) and the report it leaves.
Leaves to the starting process: options, signals from outside, the second line, the terminal, the exit code; and what is
done without a namespace to `_oneshot_guard`.

Rules of pid 1
1. It runs no tool code and its descriptors are close-on-exec; the command is its child and never pid 1 (as pid 1 a
   program would ignore SIGTERM and SIGALRM, and an orphan would become its business).
2. At ``kill_ns`` it sends SIGKILL to everything but itself, in one system call. ``term_ns`` lies before it.
3. What it observes at or after ``kill_ns`` is overdue, even an exit: a process that was stopped must not report a late
   success.
4. When the starting process is gone nobody is left to tell: everything is killed (PDEATHSIG, or the control pipe's HUP
   for a parent that died before PDEATHSIG was set: getppid() is 0 in here and says nothing).
5. It reports before the command is touched, at the kill, and after the last process is reaped; the last line holds.
   Without a line the command has not run. Its own end is the confirmation: the kernel lets nobody see it before every
   process of the namespace is dead and reaped.
"""

from __future__ import annotations

import errno
import os
import select
import time

from toolworkers import _children, _signals, _world
from toolworkers import _syscalls as sys_
from toolworkers._oneshot_report import OneShot, Report

TYPE_CHECKING = False  # what `typing` says, without the 5 ms of loading it
if TYPE_CHECKING:
    from typing import Any, NoReturn

END, INTERRUPT, QUIT = b"e", b"i", b"q"
"""What may be written to `Started.control`: end the call (twice: now); pass on a key press that did not reach it."""
_FORWARDED = {INTERRUPT[0]: _signals.SIGINT, QUIT[0]: _signals.SIGQUIT}
_SPLICE_BYTES = 1 << 20
_DISK_IS_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_RESET_FOR_COMMAND = (_signals.SIGPIPE, _signals.SIGXFSZ, _signals.SIGCHLD)
"""Ignored by a Python process; a command that inherited that would write into closed pipes for ever."""


class Refused(Exception):  # noqa: N818  # what the host did, not what went wrong in here
    """This host gives no namespace; the text says which step was refused."""


class Started:
    """A running call, seen from outside: ``pidfd`` is readable when all of it is gone; read ``report`` after that.

    ``guarded``: it is the pidfd of a guard, and all is gone if that exits with 0. ``strays_come_here``: what a killed
    guard leaves becomes the starting process's child.
    """

    __slots__ = ("control", "guarded", "pid", "pidfd", "report", "strays_come_here")

    def __init__(self, pid: int, report: int, control: int, guarded: bool, strays_come_here: bool) -> None:
        self.pid, self.pidfd, self.report, self.control = pid, os.pidfd_open(pid), report, control
        self.guarded, self.strays_come_here = guarded, strays_come_here


def start(call: OneShot) -> Started:
    """Enter a new pid namespace and start its first process. From the main thread only (PDEATHSIG follows a thread),
    SIGCHLD blocked, and once in a process: the namespace for children cannot be entered twice.

    Raises Refused where the host gives no namespace and the call demands one, OSError when there is no process or
    descriptor left.
    """
    if call.usage:
        import resource  # noqa: F401  # before the fork: pid 1 has another /proc and better things to do
    outer = _world.pid_namespace()
    report, to_report = os.pipe()
    hear, control = os.pipe()
    os.set_blocking(control, False)
    guarded = call.holder == "guard" or not _entered_pid_namespace(call.holder == "namespace")
    strays_come_here = guarded and _adopts_strays()
    pid = os.fork()
    if pid == 0:
        os.close(report)
        os.close(control)
        if guarded:
            from toolworkers import _oneshot_guard

            _oneshot_guard.live(call, hear, to_report, fell_back=call.holder != "guard")
        _live(call, hear, to_report, outer)
    os.close(to_report)
    os.close(hear)
    return Started(pid, report, control, guarded, strays_come_here)


def _entered_pid_namespace(demanded: bool) -> bool:
    try:
        _enter_pid_namespace()
    except Refused:
        if demanded:
            raise
        return False
    return True


def _adopts_strays() -> bool:
    """Not where we had children before, of the program whose place we took: their orphans would come to us as well."""
    try:
        if _children.direct_children():
            return False
        sys_.become_subreaper()
    except OSError:
        return False
    return True


def _enter_pid_namespace() -> None:
    try:
        if os.getuid() == 0 and _unshared_as_root():
            return
        _world.own_user_namespace(sys_.CLONE_NEWPID)
    except OSError as error:
        raise Refused(f"no pid namespace: {error.strerror}") from error


def _unshared_as_root() -> bool:
    """False in a container whose root lacks CAP_SYS_ADMIN; a user namespace may still be allowed there."""
    try:
        sys_.unshare(sys_.CLONE_NEWPID)
    except PermissionError:
        return False
    return True


def _live(call: OneShot, hear: int, to_report: int, outer: int) -> NoReturn:
    """The process boundary of pid 1: whatever happens in here ends as a report and an exit."""
    try:
        sys_.die_with_parent(_signals.SIGKILL)
        life = FirstProcess(call, hear, to_report, outer)
        try:
            life.settle_in()
        except OSError as error:
            life.tell(Report("refused", f"no namespaces of its own: {error.strerror}"))
            os._exit(1)
        life.run()
    except BaseException as error:  # noqa: BLE001  # nothing may leave into the code of the starting process
        os.write(to_report, Report("broken", f"{type(error).__name__}: {error}").encode())
    finally:
        os._exit(0)  # the kernel kills whatever is left in the namespace before anybody sees us dead


class FirstProcess:
    """Pid 1 of the call's namespace. ``outer`` is the inode of the pid namespace that must never be signalled."""

    def __init__(self, call: OneShot, hear: int, to_report: int, outer: int) -> None:
        self._call, self._hear, self._to_report, self._outer = call, hear, to_report, outer
        self._kill_ns = call.deadline_ns
        self._term_ns = call.deadline_ns - call.term_grace_ns if call.term_grace_ns else 0
        self._why = "deadline"
        self._termed = False
        self._command = 0
        self._status: int | None = None
        self._missing: list[str] = []
        self._report = Report("begun")
        self._room = call.output_limit
        self._sinks = {read_end: raw for _, read_end, _, raw in call.outputs}

    def settle_in(self) -> None:
        """The world of the call: private mounts and IPC, an own /proc, few privileges. Raises OSError if refused."""
        _world.offer_to_oom_killer()
        outrank_the_command()
        self._missing = _world.enter_namespaces(None, 0)
        self._drop_bounding_set()
        _world.drop_privileges(_world.ROOT_CAPABILITIES)

    def _drop_bounding_set(self) -> None:
        """no_new_privs keeps root from getting capabilities back by exec; this keeps it should that ever be undone."""
        try:
            sys_.drop_bounding_set(_world.ROOT_CAPABILITIES)
        except PermissionError:
            self._missing.append("bounding_set")

    def run(self) -> None:
        """Spawn the command, see it end or end it, report."""
        call = self._call
        self._report.missing = ",".join(self._missing)
        if time.monotonic_ns() >= self._kill_ns:
            self.tell(Report("too_late"))
            return
        poll, children, timer = select.poll(), sys_.open_signals([_signals.SIGCHLD]), sys_.open_timer()
        self.tell(self._report)
        try:
            self._spawn()
        except OSError as error:
            self.tell(Report("cannot_run", f"{call.program}: {error.strerror}"))
            return
        for descriptor in (children, timer, self._hear, *self._sinks):
            poll.register(descriptor, select.POLLIN)
        while not self._over():
            sys_.set_timer(timer, min(self._term_ns or self._kill_ns, self._kill_ns))
            for descriptor, events in poll.poll():
                if descriptor == children:
                    os.read(children, 4096)
                    self._reap(os.WNOHANG)
                elif descriptor == self._hear:
                    self._listen()
                elif descriptor != timer and not self._move(descriptor, events):
                    poll.unregister(descriptor)

    def tell(self, report: Report) -> None:
        """One line to the starting process, which may be gone."""
        try:
            os.write(self._to_report, report.encode())
        except BrokenPipeError:
            self._kill_ns = 0

    def _spawn(self) -> None:
        call = self._call
        actions = [(os.POSIX_SPAWN_DUP2, call.stdin, 0)] if call.stdin is not None else []
        for targets, _, write_end, _ in call.outputs:
            actions += [(os.POSIX_SPAWN_DUP2, write_end, target) for target in targets]
        group: dict[str, Any] = {"setpgroup": 0} if call.own_group else {}
        try:
            self._command = os.posix_spawn(
                call.program,
                call.argv,
                call.environment,
                file_actions=actions,
                setsigmask=[],
                setsigdef=_RESET_FOR_COMMAND,
                **group,
            )
        except FileNotFoundError as error:
            # The file is there, so what is missing is the interpreter that its first line names.
            raise OSError(errno.ENOEXEC, "its interpreter is missing") from error
        self._report.started_ns = time.monotonic_ns()
        for _, _, write_end, _ in call.outputs:
            os.close(write_end)

    def _over(self) -> bool:
        """Act on what is due now; True when the call has ended and is reported (rule 3: the clock is asked first)."""
        now = time.monotonic_ns()
        if now >= self._kill_ns:
            self._strike()
        elif self._status is not None:
            self._finish()
        else:
            if self._term_ns and now >= self._term_ns:
                self._terminate()
            return False
        return True

    def _listen(self) -> None:
        said = os.read(self._hear, 16)
        if not said:
            self._kill_ns = 0
        for word in said:
            if word == END[0]:
                self._end()
            else:
                self._forward(_FORWARDED[word])

    def _end(self) -> None:
        """Asked to end: after the grace, or now when asked again."""
        now = time.monotonic_ns()
        grace = 0 if self._why == "cancelled" else self._call.term_grace_ns
        self._why = "cancelled"
        self._term_ns = now if grace and not self._termed else 0
        self._kill_ns = min(self._kill_ns, now + grace)

    def _forward(self, number: int) -> None:
        """A key press reaches the terminal's foreground group: the command too, unless it has left for its own."""
        group = os.getpgid(self._command) if self._status is None else os.getpgid(0)
        if group != os.getpgid(0):
            os.killpg(group, number)

    def _terminate(self) -> None:
        self._termed, self._term_ns = True, 0
        self._signal_all(_signals.SIGTERM)
        self._signal_all(_signals.SIGCONT)  # a stopped process would not see the SIGTERM in time

    def _strike(self) -> None:
        """Told before it is done: without real-time priority a hundred dying processes outrun us for 50 ms, while the
        second line ends us. kill(2) itself is never interrupted."""
        report = self._report
        report.how, report.due_ns, report.killed = self._why, self._kill_ns, 1
        report.signalled_ns = time.monotonic_ns()
        self.tell(report)
        self._signal_all(_signals.SIGKILL)
        report.killed = max(1, self._count())
        self.tell(report)  # the second line may end us while we wait for large ones to die
        report.killed = max(report.killed, self._reap(0))
        self._close()

    def _finish(self) -> None:
        """The command has ended: so does what it left. After a SIGTERM of ours it is ours, whatever its exit."""
        self._report.how = self._why if self._termed else "exited"
        self._report.left = _world.sweep(self._outer).killed
        self._close()

    def _close(self) -> None:
        report = self._report
        report.code = None if self._status is None else os.waitstatus_to_exitcode(self._status)
        if self._call.usage:
            import resource

            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            report.cpu_us, report.rss_kib = int((used.ru_utime + used.ru_stime) * 1e6), used.ru_maxrss
        self.tell(report)

    def _signal_all(self, number: int) -> None:
        """kill(-1): everything in this namespace but us. The two facts that make it safe are checked right here."""
        if os.getpid() != 1 or _world.pid_namespace() == self._outer:
            raise RuntimeError("kill(-1) outside the call's own pid namespace")
        try:
            os.kill(-1, number)
        except ProcessLookupError:
            return  # nobody is left, which is what was wanted

    def _count(self) -> int:
        """Processes of the call, from its own /proc: right after the signal, while the dying are still listed. A parent
        may reap a child in between, so this is a lower bound, as is the number we reap ourselves."""
        if "proc" in self._missing:
            return 0
        return sum(name.isdigit() for name in os.listdir("/proc")) - 1

    def _reap(self, flags: int) -> int:
        """Reap until nobody is left (or, with WNOHANG, nobody more is dead); how many died by SIGKILL."""
        killed = 0
        while True:
            try:
                pid, status = os.waitpid(-1, flags)
            except ChildProcessError:
                return killed
            if pid == 0:
                return killed
            killed += self._note(pid, status)

    def _note(self, pid: int, status: int) -> int:
        """Somebody was reaped; 1 if a SIGKILL ended it."""
        if pid == self._command:
            self._status = status
        return int(os.WIFSIGNALED(status) and os.WTERMSIG(status) == _signals.SIGKILL)

    def _move(self, read_end: int, events: int) -> bool:
        """Captured output, pipe → raw file in the kernel; False at its end. More than the cap: the call is over."""
        if self._room == 0:
            if events & select.POLLIN:
                self._why, self._kill_ns = "output_limit", min(self._kill_ns, time.monotonic_ns())
            return False
        try:
            moved = os.splice(read_end, self._sinks[read_end], min(_SPLICE_BYTES, self._room))
        except OSError as error:
            if error.errno not in _DISK_IS_FULL:
                raise
            moved = self._drop(read_end)
        self._room -= moved
        return moved > 0

    def _drop(self, read_end: int) -> int:
        """The disk is full: the command goes on, its output is counted and lost, and the report says so."""
        discarded = len(os.read(read_end, min(65_536, self._room)))
        self._report.dropped += discarded
        return discarded


def outrank_the_command() -> None:
    """Real-time priority where it may be had (root): on a machine with a load of 7 the SIGKILL leaves 0.5 ms after the
    deadline at worst, and 44 ms without. Our children start without it, at nice 0: so not for a caller who was niced.
    """
    if os.sched_getscheduler(0) != os.SCHED_OTHER or os.getpriority(os.PRIO_PROCESS, 0) != 0:
        return
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except OSError:
        return  # a plain uid, or a cgroup without real-time budget: it runs as everybody does
