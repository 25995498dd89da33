"""The daemon on one page: the order in which it starts and stops.

Start: configuration → socket lock → state directories → journal, and what the last life left in it → control groups →
killer → zygotes and first workers → a real throw-away tree is killed → door → ``ready``.
Stop: no new calls → running ones end by themselves within the drain budget → the rest are killed → the kernel
confirms → door, workers, groups, directories, socket.
Exit 0: clean; 70: something survived; 75: another daemon owns the socket; 2: the configuration cannot be used; 125:
workers cannot be contained on this host, and why.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import json
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING, Any

import trio

from protocol._events import EventKind
from protocol._outcomes import Reason, Status
from protocol._places import PlaceError, find_socket
from supervisor.assembly import Parts, assemble, product_version
from supervisor.clock import now_ns, wall_ms
from supervisor.clock_watch import ClockWatch
from supervisor.config import Config, ConfigError, load
from supervisor.containment.cgroups import ControlGroups
from supervisor.containment.probe import ProbeFailed
from supervisor.containment.zygote import SpawnError
from supervisor.doors.listening import DoorError, SocketTakenError, open_socket
from supervisor.journal.store import StoreError
from supervisor.logs import LOG, open_log, say
from supervisor.revival import revive
from supervisor.run_recovery import recall_runs
from supervisor.runtime import StateDirectory, StateError, TooFewDescriptorsError, protect_self, reserve_descriptors
from supervisor.workforce import start_workforce
from supervisor.zygote_options import BARE

if TYPE_CHECKING:
    import structlog

EXIT_CLEAN, EXIT_USAGE, EXIT_SURVIVORS, EXIT_TAKEN, EXIT_FAILED = 0, 2, 70, 75, 125
_CLOSE_BUDGET_S = 3.0
_REMOVE_BUDGET_S = 5.0
_EXPIRY_PERIOD_S = 5.0
RETENTION_MS = 7 * 86_400_000
"""How long events and delivery keys are remembered."""
MOST_EVENTS = 1_000_000


def main(config_path: str | None, socket_path: str | None, as_json: bool = False) -> int:
    """Run a daemon in this process until it is told to stop; its exit code. Says why on stderr when it cannot start.

    ``as_json``: ``ready`` is said as one JSON object.
    """
    try:
        config = load(config_path)
        path = find_socket(config.daemon.socket if socket_path is None else socket_path)
        reserve_descriptors(config.daemon.clients, config.daemon.in_flight + config.daemon.spares)
        with open_socket(path, config.daemon.allow_gids) as listener:
            return trio.run(Daemon(config, path, open_log(), as_json).run, listener)
    except SocketTakenError as error:
        return _fail(EXIT_TAKEN, str(error))
    except (ConfigError, PlaceError) as error:
        return _fail(EXIT_USAGE, str(error))
    except (DoorError, StateError, StoreError, TooFewDescriptorsError) as error:
        return _fail(EXIT_FAILED, str(error))


def _fail(code: int, text: str) -> int:
    print(f"deadlined: {text}", file=sys.stderr)  # noqa: T201  # a person at a terminal reads this
    return code


class Daemon:
    """Starts the parts in order, stops them in the opposite one."""

    def __init__(self, config: Config, socket_path: str, log: structlog.stdlib.BoundLogger, as_json: bool) -> None:
        self._config, self._socket_path, self._log, self._as_json = config, socket_path, log, as_json
        self._stop, self._stop_now = trio.Event(), trio.Event()

    async def run(self, listener: socket.socket) -> int:
        """Serve until told to stop; the exit code."""
        protect_self()
        state = StateDirectory(self._config.daemon.state_dir, _name_of(self._socket_path))
        state.open()
        revival = revive(state, self._config.daemon.result_ttl_ms)
        groups = ControlGroups()
        groups.open()
        parts = assemble(self._config, self._socket_path, state, groups, revival.store)
        parts.journal.alarm = revival.alarm
        parts.calls.recall(revival.recovered)
        recall_runs(parts.runs, revival.runs)
        parts.approvals.recall(revival.approvals)
        code = EXIT_FAILED
        try:
            code = await self._live(parts, listener)
        except* (SpawnError, ProbeFailed) as errors:
            code = _say_why(_first(errors))
        finally:
            await parts.journal.close()
            parts.table.close()
            groups.close()
            with trio.move_on_after(_REMOVE_BUDGET_S, shield=True):  # the next start's sweep finishes what is left
                await trio.to_thread.run_sync(state.close, abandon_on_cancel=True)
        return code

    async def _live(self, parts: Parts, listener: socket.socket) -> int:
        async with trio.open_nursery() as nursery:
            await self._start(parts, nursery)
            if not self._stop.is_set():
                await self._serve(parts, listener)
            survivors = await self._close(parts)
            nursery.cancel_scope.cancel()
        return EXIT_SURVIVORS if survivors else EXIT_CLEAN

    async def _serve(self, parts: Parts, listener: socket.socket) -> None:
        async with trio.open_nursery() as doors:
            doors.start_soon(parts.doors.unix.serve, listener)
            oldest_s = (wall_ms() - RETENTION_MS) / 1_000
            doors.start_soon(
                functools.partial(trio.to_thread.run_sync, parts.state.sweep, oldest_s, abandon_on_cancel=True)
            )
            self._say_ready(parts)
            doors.start_soon(parts.calls.reconciler.ask_about_open)
            await self._stop.wait()
            await self._drain(parts)
            doors.cancel_scope.cancel()

    async def _start(self, parts: Parts, nursery: trio.Nursery) -> None:
        await nursery.start(self._hear_signals)
        await nursery.start(parts.journal.run)
        await nursery.start(parts.doors.readers.run)
        await nursery.start(parts.killer.run)
        await nursery.start(parts.calls.run)
        await nursery.start(parts.runs.run)
        await nursery.start(parts.approvals.run)
        nursery.start_soon(parts.second_line.run)
        await start_workforce(parts, self._config.daemon, self._config.limits, BARE, nursery)
        for key in self._config.budgets.missing_tools(parts.tools.names()):
            self._log.warning("limit_of_no_tool", key=key)
        _settle_memory()
        await nursery.start(parts.doors.metrics.run)
        await nursery.start(parts.doors.hosting.run)
        nursery.start_soon(self._expire, parts)
        nursery.start_soon(parts.endings.run)

    def _say_ready(self, parts: Parts) -> None:
        containment = parts.host.containment
        self._log.info("ready", socket=self._socket_path, containment=containment, limits=parts.groups.limits)
        parts.journal.note(
            EventKind.DAEMON_STARTED, pid=os.getpid(), version=product_version(), containment=containment
        )
        ready = (
            json.dumps({"ready": self._socket_path, "pid": os.getpid()})
            if self._as_json
            else f"ready {self._socket_path}"
        )
        say(ready)  # the contract of `deadlined serve`

    async def _hear_signals(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """The first SIGTERM or SIGINT drains, the second stops at once, and no later one cuts the cleaning up short."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)  # what the receiver puts back when it closes
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received:
            task_status.started()
            async for _ in received:
                (self._stop_now if self._stop.is_set() else self._stop).set()

    async def _expire(self, parts: Parts) -> None:
        clocks = ClockWatch(parts.journal.note)
        while True:
            await trio.sleep(_EXPIRY_PERIOD_S)
            clocks.look()
            parts.endings.expire(now_ns())
            LOG.sum_up(self._log)
            await parts.journal.prune(RETENTION_MS, MOST_EVENTS, RETENTION_MS)
            parts.runs.prune(wall_ms() - RETENTION_MS)

    # ------------------------------------------------------------ stop

    async def _drain(self, parts: Parts) -> None:
        """Let calls end by themselves for a while, then end them; each is settled and told like any other."""
        parts.calls.gate.close()
        budget_s = self._config.daemon.shutdown_drain_ms / 1_000
        with trio.move_on_after(budget_s):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._cancel_on_second_signal, nursery.cancel_scope)
                await parts.calls.wait_idle()
                nursery.cancel_scope.cancel()
        for call in list(parts.calls.live.values()):
            parts.calls.end(call, Status.CANCELLED, Reason.SHUTDOWN, "the daemon is stopping")
        parts.runs.shut_down()
        with trio.move_on_after(_CLOSE_BUDGET_S):
            await parts.calls.wait_idle()
            await parts.runs.wait_told()

    async def _cancel_on_second_signal(self, scope: trio.CancelScope) -> None:
        await self._stop_now.wait()
        scope.cancel()

    async def _close(self, parts: Parts) -> int:
        """End all workers; how many the kernel did not confirm."""
        with trio.move_on_after(_CLOSE_BUDGET_S):
            async with trio.open_nursery() as nursery:
                for pool in parts.pools.values():
                    nursery.start_soon(pool.close)
        survivors = sum(len(pool.alive) for pool in parts.pools.values())
        parts.journal.note(EventKind.DAEMON_STOPPED, survivors=survivors)
        self._log.info("stopped", survivors=survivors)
        return survivors


def _name_of(socket_path: str) -> str:
    """One state directory per socket: whoever owns the socket's lock owns it."""
    return hashlib.sha256(os.fsencode(socket_path)).hexdigest()[:16]


def _settle_memory() -> None:
    """What is loaded stays: the collector need not look at it again, nor run every few calls."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def _say_why(error: BaseException) -> int:
    """The daemon did not come to life: why, and the exit code for it."""
    if isinstance(error, SpawnError) and error.code == "configuration":
        return _fail(EXIT_USAGE, str(error))
    return _fail(EXIT_FAILED, f"tools cannot be contained on this host: {error}")


def _first(errors: BaseExceptionGroup[Any]) -> BaseException:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
