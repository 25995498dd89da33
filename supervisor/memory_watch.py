"""Ends a call one of whose processes the kernel has killed for memory, though its others live on.

The memory limit is the call's and not each process's, so whoever reaches it ends the call: half a tree that goes on
without the other half gives answers that nobody can trust. Where control groups are of the second version the kernel
ends the whole group itself (memory.oom.group); those of the first are looked at here, ten times a second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import trio

from protocol._outcomes import Reason, Status
from supervisor.live_call import LiveCall

_PERIOD_S = 0.1
End = Callable[[LiveCall, Status, Reason, str], None]
TEXT = "killed: the kernel ended a process of it for memory, and the limit is the whole call's"


class MemoryWatch:
    """Over the ``live`` calls; ``end(call, status, reason, text)`` is called for those that ran out of memory."""

    def __init__(self, live: Mapping[str, LiveCall], end: End) -> None:
        self._live, self._end = live, end

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await trio.sleep(_PERIOD_S)
            for call in list(self._live.values()):
                if out_of_memory(call):
                    self._end(call, Status.KILLED, Reason.MEMORY_LIMIT, TEXT)


def out_of_memory(call: LiveCall) -> bool:
    """Whether a process of the call was killed for memory. Nobody looks for a read-only Python tool, the quickest there
    is (decision 0030); its worker's own death is looked at all the same."""
    contract = call.judged.contract
    if call.worker is None or (contract.read_only and contract.kind == "python"):
        return False
    return bool(call.worker.group.out_of_memory())
