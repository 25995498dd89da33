from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from protocol._codecs import daemon_to_worker
from protocol._errors import LocalProtocolError
from protocol._framing import FRAME_HARD_LIMIT, FrameBuffer
from protocol._worker_messages import Accepted, Call, Ended, Progress, WorkerReady
from toolworkers._channel import Channel, ChannelLost


class Ends:
    """A channel, and the daemon's end of it."""

    def __init__(self) -> None:
        self.daemon, ours = socket.socketpair()
        self.codec = daemon_to_worker()
        self.channel = Channel(ours.detach())
        self.channel.send(WorkerReady(1))
        self.nonce = 0
        self.frames = FrameBuffer()

    def call(self, descriptors: list[int] | None = None, **fields: object) -> bytes:
        self.nonce += 1
        fields.setdefault("fds", len(descriptors or []))
        call = Call(nonce=self.nonce, tool="t", arguments="{}", deadline_ns=1, key="k", **fields)
        packed = self.codec.pack(call)
        if descriptors:
            socket.send_fds(self.daemon, [packed], descriptors)
        else:
            self.daemon.sendall(packed)
        return packed

    def heard(self) -> list[object]:
        return [self.codec.unpack(body) for body in self.frames.feed(self.daemon.recv(1 << 20))]


@pytest.fixture
def ends() -> Iterator[Ends]:
    ends = Ends()
    yield ends
    ends.daemon.close()
    ends.channel.close()


def test_frames_go_both_ways(ends: Ends) -> None:
    ends.call()
    call, descriptors = ends.channel.receive()
    assert (call.nonce, descriptors) == (1, [])
    ends.channel.send(Accepted(1))
    ends.channel.send(Ended(1, "ok", content=[1]))
    assert [type(message) for message in ends.heard()] == [WorkerReady, Accepted, Ended]


def test_descriptors_come_with_their_own_call(ends: Ends) -> None:
    first, second = os.pipe()
    ends.call([first])
    _, came = ends.channel.receive()
    assert os.fstat(came[0]).st_ino == os.fstat(first).st_ino
    assert not os.get_inheritable(came[0])
    ends.channel.send(Ended(1, "bad_cwd"))
    ends.call([second, first])
    _, more = ends.channel.receive()
    assert [os.fstat(one).st_ino for one in more] == [os.fstat(one).st_ino for one in (second, first)]
    for descriptor in (first, second, *came, *more):
        os.close(descriptor)


def test_a_call_in_single_bytes_is_the_same_call(ends: Ends) -> None:
    ends.nonce += 1
    packed = ends.codec.pack(Call(nonce=1, tool="t" * 50, arguments="{}", deadline_ns=1, key="k"))
    for number in range(len(packed)):
        ends.daemon.sendall(packed[number : number + 1])
    assert ends.channel.receive()[0].tool == "t" * 50


def test_a_large_call_is_whole(ends: Ends) -> None:
    import threading

    text = '{"x":"' + "y" * 2_000_000 + '"}'
    packed = ends.codec.pack(Call(nonce=1, tool="t", arguments=text, deadline_ns=1, key="k"))
    writer = threading.Thread(target=ends.daemon.sendall, args=(packed,))
    writer.start()
    assert ends.channel.receive()[0].arguments == text
    writer.join()


@pytest.mark.parametrize("data", [b"", b"\0\0\0\x05ab", b"\0\0\0\x01\xc1", (FRAME_HARD_LIMIT * 2).to_bytes(4, "big")])
def test_what_is_no_call_loses_the_channel(ends: Ends, data: bytes) -> None:
    ends.daemon.sendall(data)
    ends.daemon.shutdown(socket.SHUT_WR)
    with pytest.raises(ChannelLost):
        ends.channel.receive()


def test_descriptors_that_were_announced_and_did_not_come_lose_the_channel(ends: Ends) -> None:
    ends.call(fds=1)
    with pytest.raises(ChannelLost):
        ends.channel.receive()


def test_a_call_out_of_turn_loses_the_channel(ends: Ends) -> None:
    ends.call()
    ends.channel.receive()
    ends.call()
    with pytest.raises(ChannelLost):
        ends.channel.receive()


def test_what_is_not_ours_to_say_is_our_own_fault(ends: Ends) -> None:
    with pytest.raises(LocalProtocolError):
        ends.channel.send(Accepted(1))


def test_a_gone_daemon_loses_the_channel(ends: Ends) -> None:
    ends.call()
    ends.channel.receive()
    ends.daemon.close()
    with pytest.raises(ChannelLost):
        ends.channel.send(Accepted(1))


def test_a_full_socket_drops_what_may_be_dropped(ends: Ends) -> None:
    ends.call()
    ends.channel.receive()
    ends.channel.send(Accepted(1))
    for _ in range(5_000):
        ends.channel.send_if_room(Progress(1, text="x" * 1000))  # would block for ever if it waited
    heard = []
    ends.daemon.setblocking(False)
    while True:
        try:
            heard += ends.heard()
        except BlockingIOError:
            break
    assert 10 < len(heard) < 4_000
    ends.channel.send(Ended(1, "ok"))
    assert isinstance(ends.heard()[0], Ended)


def test_a_channel_knows_when_its_descriptor_was_taken_away(ends: Ends) -> None:
    assert ends.channel.is_whole()
    null = os.open(os.devnull, os.O_RDONLY)
    kept = os.dup(ends.channel.fileno())
    os.dup2(null, ends.channel.fileno())
    assert not ends.channel.is_whole()
    os.dup2(kept, ends.channel.fileno())
    assert ends.channel.is_whole()
    os.close(null)
    os.close(kept)
