"""Descriptors across a unix socket. One place, because the two library helpers are unsafe here: ``socket.recv_fds`` of
Python 3.11 drops its flags and hands out inheritable descriptors.
"""

from __future__ import annotations

import array
import socket
from collections.abc import Sequence

import trio

_INT = array.array("i").itemsize


def send_with(sock: socket.socket, data: bytes, descriptors: Sequence[int]) -> int:
    """sendmsg with descriptors on the first byte; how many bytes were taken. Raises BlockingIOError when none was."""
    if not descriptors:
        return sock.send(data)
    return sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))])


async def send_all_with(sock: socket.socket, datagram: bytes, descriptors: Sequence[int]) -> None:
    """The same for one datagram, waiting until the socket takes it. Raises OSError when the other end is gone."""
    while True:
        try:
            send_with(sock, datagram, descriptors)
        except BlockingIOError:
            await trio.lowlevel.wait_writable(sock)
        else:
            return


def receive_with(sock: socket.socket, size: int, most: int) -> tuple[bytes, list[int]]:
    """recvmsg of one datagram and the descriptors that came with it, all close-on-exec."""
    data, ancillary, _flags, _address = sock.recvmsg(size, socket.CMSG_SPACE(most * _INT), socket.MSG_CMSG_CLOEXEC)
    descriptors: list[int] = []
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors += array.array("i", payload[: len(payload) - len(payload) % _INT])
    return data, descriptors
