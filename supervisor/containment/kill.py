"""The second line: the SIGKILL that leaves when the first line (the killer; pid 1 of a one-shot call) was not enough.

Owns the act and how long it holds back. Leaves to others when a call is due (the deadline table, the command line of
``exec``) and that it is dead (whoever polls the pidfd).

No Trio and no ``signal`` in here: ``deadlined exec`` imports this on its way to a 20 ms start, and a second line that
had to import something at the moment it is needed would fail for the very reason that the first one did.
"""

from __future__ import annotations

from _signal import SIGKILL, pidfd_send_signal  # type: ignore[import-not-found]  # typeshed describes `signal` only

SECOND_LINE_NS = 10_000_000
"""How long after the deadline the second line acts: longer than the first is ever late, too short to be noticed."""


def kill_by_pidfd(pidfd: int) -> bool:
    """SIGKILL to the process that a pidfd names: for pid 1 of a pid namespace the end of everything in it.

    False when it was dead and reaped already; a pidfd never hits a stranger that got its number. Returns before the
    death: wait for the pidfd. Raises PermissionError for a process of another user.
    """
    try:
        pidfd_send_signal(pidfd, SIGKILL)
    except ProcessLookupError:
        return False
    return True
