"""The first process of a one-shot call where there is no namespace: a guard, and the killer as well.

Owns what differs from pid 1 (`_oneshot.FirstProcess`): who is signalled, how everybody's end is learnt, and its own
exit code, which is the receipt: 0 says that it had no child left. It is a subreaper, so what loses its parent below it
becomes its child; so is the starting process, wherever it had no children before, and ends what a killed guard leaves.

No parent-death signal, as for every guard: it would die before those it is to end. Its starting process's end hangs up
the control pipe, which is the same reason to end the call (rule 4 there).
"""

from __future__ import annotations

import os

from toolworkers import _signals, _world
from toolworkers import _syscalls as sys_
from toolworkers._children import direct_children
from toolworkers._oneshot import FirstProcess, outrank_the_command
from toolworkers._oneshot_report import OneShot, Report

TYPE_CHECKING = False  # what `typing` says, without the 5 ms of loading it
if TYPE_CHECKING:
    from typing import NoReturn

_STOPPING = (20, 21, _signals.SIGTTOU)
"""SIGTSTP, SIGTTIN: the terminal's keys stop the command, and not who holds its deadline (pid 1 need not say so)."""
EXIT_NOT_CLEAN = 1
"""Somebody is left, who could not be signalled or did not die within the sweep's budget."""


def live(call: OneShot, hear: int, to_report: int, fell_back: bool) -> NoReturn:
    """The process boundary of a one-shot's guard. ``fell_back``: a namespace was wanted and not given."""
    code = EXIT_NOT_CLEAN
    try:
        life = GuardProcess(call, hear, to_report, fell_back)
        try:
            life.settle_in()
            life.run()
        except BaseException as error:  # noqa: BLE001  # nothing may leave into the code of the starting process
            life.tell(Report("broken", f"{type(error).__name__}: {error}"))
            life.end_all()
        code = EXIT_NOT_CLEAN if direct_children() else 0
    finally:
        os._exit(code)


class GuardProcess(FirstProcess):
    """The guard of one call. `FirstProcess` has its life."""

    def __init__(self, call: OneShot, hear: int, to_report: int, fell_back: bool) -> None:
        super().__init__(call, hear, to_report, _world.NO_NAMESPACE)
        self._fell_back = fell_back

    def settle_in(self) -> None:
        """Become the reaper of all below; limits and privileges as far as the isolation asks for them."""
        _signals.block(_STOPPING)
        sys_.become_subreaper()
        direct_children()  # raises OSError where there is no such list, and then there is no way to end anybody
        _world.offer_to_oom_killer()
        outrank_the_command()
        if self._call.limited:
            from protocol._contracts import Limits  # here, because it costs as much as all the rest

            _world.set_limits(Limits(), None)
        if self._fell_back:
            self._missing = ["namespaces", "signal_scope"]  # a scope of its own would hold us as well
            if os.getuid() == 0:  # nobody else may, nor gains anything by it under no_new_privs
                self._drop_bounding_set()
            _world.drop_privileges(_world.ROOT_CAPABILITIES)
        else:
            sys_.set_dumpable(False)

    def end_all(self) -> int:
        """SIGKILL to every direct child, one death, and again until there is none; how many died by it. Blocks."""
        killed = 0
        while _world.kill_children():
            killed += self._reap_one() + super()._reap(os.WNOHANG)
        return killed

    def _reap_one(self) -> int:
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return 0
        return self._note(pid, status)

    def _reap(self, flags: int) -> int:
        return super()._reap(flags) if flags else self.end_all()

    def _signal_all(self, number: int) -> None:
        """SIGKILL to direct children (the others follow, see `end_all`); any other signal to all that descend."""
        if number == _signals.SIGKILL:
            _world.kill_children()
            return
        from toolworkers._kindred import kindred, open_same

        for process in kindred(direct_children(), None):
            if (pidfd := open_same(process)) is not None:
                _send(pidfd, number)

    def _count(self) -> int:
        from toolworkers._kindred import kindred

        return len(kindred(direct_children(), None))


def _send(pidfd: int, number: int) -> None:
    try:
        _signals.send_by_pidfd(pidfd, number)
    except (ProcessLookupError, PermissionError):
        return
    finally:
        os.close(pidfd)
