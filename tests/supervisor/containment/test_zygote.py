"""The daemon's link to a zygote: what can be shown with a test at the zygote's end of it."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

import pytest
import trio
import trio.testing

from protocol._codecs import zygote_to_daemon
from protocol._worker_messages import Spawn, Spawned
from supervisor.containment.descriptors import send_with
from supervisor.containment.zygote import SpawnError, ZygoteLink


def answered_and_lost(link: ZygoteLink, _scope: trio.CancelScope) -> None:
    link._receive()
    link._close("zygote_lost", "the zygote died")


def interrupted_and_answered(link: ZygoteLink, scope: trio.CancelScope) -> None:
    scope.cancel()
    link._receive()


@pytest.mark.parametrize("then", [answered_and_lost, interrupted_and_answered])
def test_a_pidfd_that_nobody_takes_any_more_is_closed(then: Callable[[ZygoteLink, trio.CancelScope], None]) -> None:
    async def main() -> None:
        link, scope = ZygoteLink({}), trio.CancelScope()
        link._socket, zygote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        reader, writer = os.pipe()  # stands for a process: the writer is what is passed
        failed: list[SpawnError] = []

        async def ask() -> None:
            with scope:
                try:
                    await link.spawn(Spawn(7, "/nowhere"), [])
                except SpawnError as error:
                    failed.append(error)

        with zygote:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                await trio.testing.wait_all_tasks_blocked()
                send_with(zygote, zygote_to_daemon().pack(Spawned(7, 1234)), [writer])
                os.close(writer)
                then(link, scope)
            os.set_blocking(reader, False)
            assert os.read(reader, 1) == b"", "somebody still has it"
            os.close(reader)
            link._close("shutdown", "over")
        assert [error.code for error in failed] == (["zygote_lost"] if then is answered_and_lost else [])

    trio.run(main)
