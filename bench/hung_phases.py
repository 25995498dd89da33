"""A run whose deadline passes while one of its phases hangs: the model that decides, a tool that spins inside C, the
check of its completion. How long after its beginning the run has ended, and how often the phase that hung is the one
that is told. And a loop whose decision takes most of its time: the tool behind it has what is left.

The times are those of the stop record, whole milliseconds of the run's own. A run that had not come so far when its
time was up is counted, and has no figure.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable

import trio

from bench._daemon import BenchDaemon, open_daemon
from bench._plan import Plan
from bench._report import Count, Line, Row, Section, Target
from deadlined import RunStopped
from deadlined.agent import call, steer
from deadlined.async_client import AsyncClient
from deadlined.async_runs import AsyncRun
from protocol._runs import StopRecord
from supervisor.core.model_events import ModelEvent, Request, Stop, ToolCall

_SHORT_MS, _WHOLE_MS, _DECIDE_S = 10, 80, 0.06
_EVER, _PATIENCE_S = "sleep 60", 30


class OneTurn:
    """A model that asks for one call, in its time."""

    model = "bench"

    def __init__(self, asked: ToolCall, after_s: float) -> None:
        self._asked, self._after_s = asked, after_s

    async def stream(self, _request: Request) -> AsyncGenerator[ModelEvent, None]:
        """As `Gateway.stream`."""
        await trio.sleep(self._after_s)
        yield self._asked
        yield Stop("tools")

    async def aclose(self) -> None:
        """As `Gateway.aclose`."""


def run(plan: Plan) -> Section:
    """See the module."""
    with open_daemon() as daemon:
        return trio.run(_measure, plan, daemon)


async def _measure(plan: Plan, daemon: BenchDaemon) -> Section:
    ended: dict[str, list[list[float]]] = {phase: [] for phase in _HANGS}
    left: list[list[float]] = []
    runs = 0
    async with AsyncClient(daemon.socket, name="bench") as client:
        await _decide_then_hang(client, 1_000)  # the first run pays for what is imported
        for _ in range(plan.of(5, 2)):
            for phase in plan.shuffled(_HANGS):
                stops = [await _hang(client, phase) for _ in range(plan.of(8, 3))]
                ended[phase].append([float(stop.deadline.elapsed_ms) for stop in stops if stop.phase == phase])
                runs += len(stops)
            stops = [await _decide_then_hang(client, _WHOLE_MS) for _ in range(plan.of(4, 2))]
            left.append([float(stop.deadline.elapsed_ms) for stop in stops if stop.phase == "tool"])
            runs += len(stops)
        working = (await client.status()).calls_in_flight
    return _section(ended, left, runs, working)


async def _decide(run: AsyncRun) -> None:
    async with run.model("bench"):
        await run.wait()


async def _tool(run: AsyncRun) -> None:
    await run.call("bench_spin")


async def _complete(run: AsyncRun) -> None:
    await run.finish("done")


_HANGS: dict[str, Callable[[AsyncRun], Awaitable[None]]] = {"decide": _decide, "tool": _tool, "complete": _complete}


async def _hang(client: AsyncClient, phase: str) -> StopRecord:
    with trio.fail_after(_PATIENCE_S):
        run = await client.open_run(deadline_ms=_SHORT_MS, checks=[_EVER])
        with contextlib.suppress(RunStopped):
            await _HANGS[phase](run)
        return await run.wait()


async def _decide_then_hang(client: AsyncClient, deadline_ms: int) -> StopRecord:
    model = OneTurn(call("bench_spin"), _DECIDE_S)
    with trio.fail_after(_PATIENCE_S):
        return (await steer(client, "hang", model, deadline_ms=deadline_ms, wrapup=False)).stop


def _section(ended: dict[str, list[list[float]]], left: list[list[float]], runs: int, working: int) -> Section:
    said = {
        f"{phase} hangs, budget {_SHORT_MS} ms: the run has ended after": (rounds, Target(p50=20))
        for phase, rounds in ended.items()
    }
    said[f"{1e3 * _DECIDE_S:.0f} ms to decide, then a tool hangs, budget {_WHOLE_MS} ms"] = (
        left,
        Target(p50=95, most=140),
    )
    rows = {what: (list(filter(None, rounds)), target) for what, (rounds, target) in said.items()}
    lines: list[Line] = [Row(what, "ms", rounds, (), target) for what, (rounds, target) in rows.items() if rounds]
    in_time = sum(len(one) for rounds, _ in rows.values() for one in rounds)
    lines.append(Count("runs that had come to what hangs, and whose stop names it", in_time, runs, None))
    lines.append(Count("calls in flight afterwards", working, runs))
    return Section("a phase that hangs", lines)
