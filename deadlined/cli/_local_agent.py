"""``deadlined agent --local``: the loop in this process, in a thread beside the one that watches its run."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import TYPE_CHECKING

import click
import trio

from deadlined.agent import steer
from deadlined.async_client import AsyncClient
from deadlined.cli._agent_wishes import Wanted

if TYPE_CHECKING:
    from supervisor.core.model_events import Gateway

_CLOSING_S = 1.0
_LEAVING_S = 15.0


class LocalAgent:
    """One task. Its thread does not outlive the process: then the connection ends, and with it the run."""

    def __init__(self, path: str, wanted: Wanted, gateway: Gateway) -> None:
        self._path, self._wanted, self._gateway = path, wanted, gateway
        self._opened: Future[str] = Future()
        self._ended: Future[None] = Future()
        self._token: trio.lowlevel.TrioToken | None = None
        self._scope = trio.CancelScope()

    def start(self) -> str:
        """Open the run; its id. Raises what opening raises: DaemonNotRunning, RequestRefused."""
        threading.Thread(target=self._run, name="agent", daemon=True).start()
        return self._opened.result()

    def cancel(self) -> None:
        """End the run and its calls."""
        if self._token is not None:
            with suppress(trio.RunFinishedError):  # it has ended by itself, and its end was not heard of yet
                self._token.run_sync_soon(self._scope.cancel)

    def wait(self) -> None:
        """Until the thread has left the run, which has stopped; not for ever. Raises what it could not go on for."""
        if wait([self._ended], _LEAVING_S).done:
            self._ended.result()

    def _run(self) -> None:
        try:
            trio.run(self._steer)
            self._ended.set_result(None)
        except BaseException as error:  # noqa: BLE001  # raised again in the thread that waits for it
            self._ended.set_exception(error)
            if not self._opened.done():
                self._opened.set_exception(error)

    async def _steer(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        task, _, constraints, plan, options = self._wanted
        opened = self._opened.set_result
        try:
            with self._scope:
                async with AsyncClient(self._path, name="agent") as client:
                    await steer(
                        client, task, self._gateway, constraints=constraints, plan=plan, opened=opened, **options
                    )
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + _CLOSING_S):
                await self._gateway.aclose()


def choose(model: str | None) -> Gateway:
    """The model by its name, with the keys of this process's environment. Raises click.UsageError."""
    from supervisor.models.choosing import GatewayError, gateway  # with what a model needs, where one is wanted

    try:
        return gateway(model, os.environ)
    except GatewayError as error:
        raise click.UsageError(error.text) from error
