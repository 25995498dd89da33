from __future__ import annotations

import pytest

from protocol._errors import LocalProtocolError
from protocol._worker_messages import Progress
from toolworkers.runners import _progress
from toolworkers.runners._progress import INTERVAL_NS, ProgressSink


class Recorder:
    """A channel that keeps what it is given."""

    def __init__(self) -> None:
        self.sent: list[Progress] = []

    def send_if_room(self, message: Progress) -> None:
        self.sent.append(message)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    now = [10**9]
    monkeypatch.setattr(_progress.time, "monotonic_ns", lambda: now[0])
    return now


def test_ten_a_second_and_the_rest_dropped(clock: list[int]) -> None:
    channel = Recorder()
    sink = ProgressSink(channel, 4)
    for _ in range(1000):
        sink(1, 2, "t")
        clock[0] += INTERVAL_NS // 100
    assert len(channel.sent) == 10
    assert channel.sent[0] == Progress(4, done=1.0, total=2.0, text="t")


def test_after_the_end_nothing_is_said(clock: list[int]) -> None:
    channel = Recorder()
    sink = ProgressSink(channel, 4)
    sink.close()
    sink(1, None, None)
    assert channel.sent == []


def test_a_number_that_is_none_is_the_tools_mistake(clock: list[int]) -> None:
    sink = ProgressSink(Recorder(), 4)
    with pytest.raises(ValueError, match="could not convert"):
        sink("much", None, None)


def test_a_thread_of_an_earlier_call_is_dropped(clock: list[int]) -> None:
    class Strict(Recorder):
        def send_if_room(self, message: Progress) -> None:
            raise LocalProtocolError("not now")

    ProgressSink(Strict(), 1)(1, None, None)
