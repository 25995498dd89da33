"""The daemon's ends of a guard: the bell that makes it end its worker, and the receipt that it leaves.

A guard stands between the zygote and a worker where there is no namespace (`toolworkers/_guard.py`). Its pidfd alone
confirms nothing: a guard that was killed has ended nobody. Its receipt is written when it has no child left.
"""

from __future__ import annotations

import contextlib
import os
import signal

from protocol import _codecs as codecs
from protocol._errors import RemoteProtocolError
from protocol._slots import GUARD_NS, PATIENT_NS
from protocol._worker_messages import Reaped

_RECEIPT_BYTES = 4_096
_CODEC = codecs.daemon_to_zygote()


class GuardEnds:
    """Of one guard. Both descriptors that are passed on are the guard's; the killer gets the bell as well.

    ``orphans_come_home``: whether the zygote can end what a killed guard leaves (not at level ``group``).
    """

    def __init__(self, orphans_come_home: bool) -> None:
        self.orphans_come_home = orphans_come_home
        self.patience_ns = GUARD_NS if orphans_come_home else PATIENT_NS
        self._receipt, self._write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            self.bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        except OSError:
            self._close(self._receipt, self._write_end)
            raise

    def passed(self) -> tuple[int, int]:
        """Descriptors for the end of a Spawn."""
        return self._write_end, self.bell

    def handed_over(self) -> None:
        """The guard has its copy: ours would hide that it died without a receipt."""
        if self._write_end >= 0:
            os.close(self._write_end)
            self._write_end = -1

    def ring(self, pidfd: int) -> None:
        """End the worker. ``pidfd``: the guard's, whom somebody may have stopped."""
        with contextlib.suppress(OSError):  # dead, or not ours to signal: the bell rings all the same
            signal.pidfd_send_signal(pidfd, signal.SIGCONT)
        os.eventfd_write(self.bell, 1)

    def receipt(self) -> Reaped | None:
        """What it left once it is dead: its worker's wait status, and the word that nobody is left. None: nothing."""
        with contextlib.suppress(BlockingIOError, RemoteProtocolError):
            message = _CODEC.unpack(os.read(self._receipt, _RECEIPT_BYTES))
            return message if isinstance(message, Reaped) else None
        return None

    def close(self) -> None:
        """Close what is open. A guard that still lives takes the end of its receipt's reader for the daemon's."""
        self.handed_over()
        self._close(self._receipt, self.bell)

    def _close(self, *descriptors: int) -> None:
        for descriptor in descriptors:
            os.close(descriptor)
