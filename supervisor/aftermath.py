"""What is done when a call did not end by itself, before its result is told: its contract's ``after_kill`` command is
run, its ``lock_files`` are looked for, and the tool that its contract names is asked what became of it (`reconciling`).
Owns the order, the first two and the notices they become; that a command is placed, contained and killed at its own
deadline is everybody else's work, because it is a call like any other.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable

import msgspec
import trio

from protocol._contracts import AfterKill, Contract
from protocol._deadlines import instant_after
from protocol._outcomes import CallResult, Delivery, Notice, Status
from supervisor.clock import now_ns
from supervisor.live_call import LiveCall
from supervisor.lock_files import left_behind
from supervisor.reconciling import Reconciler

_ENDED = frozenset((Status.KILLED, Status.CANCELLED, Status.CRASHED))
_LOOK_S = 0.5
_STOPPING_MS = 1_000
_OUTPUT_BYTES = 1 << 20


class Aftermath:
    """``start(call)`` places a call that needs no admission; ``stopping()``: whether there is little time left."""

    def __init__(self, start: Callable[[LiveCall], None], stopping: Callable[[], bool], reconciler: Reconciler) -> None:
        self._start, self._stopping, self._reconciler = start, stopping, reconciler

    def due(self, call: LiveCall, result: CallResult) -> bool:
        """Whether there is something to do: the call had begun, and nobody saw its end."""
        if self._reconciler.due(call, result):
            return True
        contract = call.judged.contract
        if contract.after_kill is None and not contract.lock_files:
            return False
        return result.status in _ENDED and result.delivery is Delivery.UNKNOWN

    async def see_to(self, call: LiveCall, result: CallResult) -> None:
        """Do it, and note in the result what came of it. Bounded by the command's own deadline and half a second;
        cancelling it leaves the command to that deadline."""
        contract = call.judged.contract
        if contract.after_kill is not None:
            result.notices.append(await self._run(call, contract.after_kill))
        if contract.lock_files:
            result.notices += await _look(call, result)
        if self._reconciler.due(call, result):  # last: what the others did to it is then done
            await self._reconciler.see_to(call, result)

    async def _run(self, call: LiveCall, hook: AfterKill) -> Notice:
        timeout_ms = min(hook.timeout_ms, _STOPPING_MS) if self._stopping() else hook.timeout_ms
        now, told, hooked = now_ns(), trio.Event(), call.judged.contract
        judged = msgspec.structs.replace(
            call.judged,
            contract=Contract("command", remote=False, secrets=hooked.secrets),
            deadline_ns=instant_after(now, timeout_ms),
            deadline_ms=timeout_ms,
            output_limit=_OUTPUT_BYTES,
            resource=None,
            split_streams=False,
            after_kill=True,
        )
        after = LiveCall(f"{call.id}.after_kill", call.uid, call.key, judged, now)
        after.detached = True
        after.watchers[self, 0] = lambda _: told.set()
        self._start(after)
        await told.wait()
        assert after.result is not None
        return _note(hook, after.result)


def _note(hook: AfterKill, outcome: CallResult) -> Notice:
    good = outcome.status is Status.OK
    said = f"after_kill ({' '.join(hook.argv)}): {outcome.summary.partition(': ')[2]}"
    if outcome.error is not None:
        said += f"; {outcome.error.message}"
    if not good:
        said += "; what the call had asked others to do may go on"
    return Notice("after_kill", "info" if good else "warn", f"{said} (call {outcome.call})")


async def _look(call: LiveCall, result: CallResult) -> list[Notice]:
    found: list[str] = []
    look = functools.partial(left_behind, call.judged.contract.lock_files, _start_of(call, result), found)
    with trio.move_on_after(_LOOK_S) as patience:
        await trio.to_thread.run_sync(look, abandon_on_cancel=True)
    left = list(found)  # the abandoned thread may still be at it
    notices = [
        Notice("lock_files", "warn", f"{path} is there after the kill: a lock that nobody holds any more, perhaps")
        for path in left
    ]
    if patience.cancelled_caught:
        notices.append(Notice("lock_files", "warn", "whether lock files were left could not be seen in time"))
    return notices


def _start_of(call: LiveCall, result: CallResult) -> str:
    """Where the call ran: its directory (kept, when it was its own), and below that its argument ``cwd``."""
    start = call.judged.cwd or result.workdir or "/nonexistent"
    where = msgspec.json.decode(call.judged.arguments).get("cwd")
    return os.path.join(start, os.path.expanduser(where)) if isinstance(where, str) and "\0" not in where else start
