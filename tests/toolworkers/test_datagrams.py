from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from toolworkers._datagrams import receive_datagram, send_datagram


@pytest.fixture
def link() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with one, other:
        yield one, other


def test_descriptors_arrive_in_order_and_are_not_inheritable(link: tuple[socket.socket, socket.socket]) -> None:
    read_end, write_end = os.pipe()
    send_datagram(link[0], b"two", [read_end, write_end])
    send_datagram(link[0], b"none")
    datagram, came = receive_datagram(link[1])
    assert datagram == b"two"
    assert [os.fstat(number).st_ino for number in came] == [os.fstat(n).st_ino for n in (read_end, write_end)]
    assert not any(os.get_inheritable(number) for number in came)
    assert receive_datagram(link[1]) == (b"none", [])
    for number in (read_end, write_end, *came):
        os.close(number)


def test_the_end_is_empty(link: tuple[socket.socket, socket.socket]) -> None:
    link[0].close()
    assert receive_datagram(link[1]) == (b"", [])
    with pytest.raises(ConnectionError):
        send_datagram(link[1], b"x")


def test_flags_are_passed_on(link: tuple[socket.socket, socket.socket]) -> None:
    with pytest.raises(BlockingIOError):
        receive_datagram(link[1], socket.MSG_DONTWAIT)
