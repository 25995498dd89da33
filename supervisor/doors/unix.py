"""The door for clients on a unix socket: who is let in, and how many. A process of a call never is, whatever its uid.
Where the socket lies is `listening`'s, what a client says `connection`'s.
"""

from __future__ import annotations

import errno
import os
import socket
from collections import Counter
from collections.abc import Callable

import trio

from supervisor.desk import Desk
from supervisor.doors.connection import Connection, DoorLimits
from supervisor.doors.peers import Peer
from supervisor.doors.refusals import Refusals


class UnixDoor:
    """Accepts clients. ``zygotes`` tells the processes whose descendants are tools, and are refused; ``refusals`` hears
    of everybody who is."""

    def __init__(
        self,
        desk: Desk,
        limits: DoorLimits,
        zygotes: Callable[[], set[int]],
        refusals: Refusals,
    ) -> None:
        self._desk, self._limits, self._zygotes, self._refusals = desk, limits, zygotes, refusals
        self._connections: set[Connection] = set()
        self._by_uid: Counter[int] = Counter()

    async def serve(self, listener: socket.socket) -> None:
        """Accept until cancelled; then every connection ends, and with it the calls attached to it."""
        async with trio.open_nursery() as nursery:
            while True:
                await trio.lowlevel.wait_readable(listener)
                try:
                    sock, _ = listener.accept()
                except BlockingIOError:
                    continue
                except OSError as error:
                    if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ECONNABORTED):
                        raise
                    await trio.sleep(0.05)  # no descriptor is free: who waits in the backlog is served a little later
                    continue
                self._admit(sock, nursery)

    def _admit(self, sock: socket.socket, nursery: trio.Nursery) -> None:
        sock.setblocking(False)
        peer = Peer(sock)
        why = self._why_unwelcome(peer)
        if why is not None:
            self._refusals.tell(peer, why)
            sock.close()
            return
        nursery.start_soon(self._serve, sock, peer.uid)

    def _why_unwelcome(self, peer: Peer) -> str | None:
        """What stands against it, in one word; None: nothing does."""
        own = os.geteuid()
        limits = self._limits
        if peer.uid not in (own, 0) and peer.gid not in limits.allow_gids:
            return "uid"
        if peer.belongs_to_call(self._zygotes()):
            return "call"
        share = limits.clients if peer.uid == own else limits.clients_of_another_uid
        if len(self._connections) >= limits.clients or self._by_uid[peer.uid] >= share:
            return "clients"
        waiting = sum(not connection.greeted for connection in self._connections)
        return "without_hello" if waiting >= limits.clients_without_hello else None

    async def _serve(self, sock: socket.socket, uid: int) -> None:
        connection = Connection(sock, uid, self._desk, self._limits)
        self._connections.add(connection)
        self._by_uid[uid] += 1
        try:
            await connection.serve()
        finally:
            self._connections.discard(connection)
            self._by_uid[uid] -= 1
