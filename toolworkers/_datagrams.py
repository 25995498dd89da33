"""Datagrams that carry descriptors, between daemon, zygote and the zygote's children."""

from __future__ import annotations

import array
import socket
from collections.abc import Sequence

_DATAGRAM = 65_536
_INT_BYTES = array.array("i").itemsize
_SPACE = socket.CMSG_SPACE(16 * _INT_BYTES)


def send_datagram(link: socket.socket, datagram: bytes, descriptors: Sequence[int] = ()) -> None:
    """Raises OSError (a ConnectionError when the other end is gone). The descriptors stay ours."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    link.sendmsg([datagram], rights)


def receive_datagram(link: socket.socket, flags: int = 0) -> tuple[bytes, list[int]]:
    """A datagram and its descriptors, which are the caller's and not inheritable; empty at the end of the socket.

    Not socket.recv_fds: that one drops its flags (Python 3.11), and a command once saw the control socket.
    """
    datagram, ancillary, _, _ = link.recvmsg(_DATAGRAM, _SPACE, socket.MSG_CMSG_CLOEXEC | flags)
    descriptors = array.array("i")
    for _, _, packed in ancillary:
        descriptors.frombytes(packed[: len(packed) - len(packed) % _INT_BYTES])
    return datagram, list(descriptors)
