"""The guard on the most dangerous call of the product. How one-shot calls end is proven in tests/contract."""

from __future__ import annotations

import signal
from unittest import mock

import pytest

from toolworkers import _oneshot, _world
from toolworkers._oneshot_report import OneShot


def outside_of_any_namespace(outer: int) -> _oneshot.FirstProcess:
    return _oneshot.FirstProcess(OneShot("/bin/true", ["true"], {}, 0), -1, -1, outer)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_everybody_is_signalled_only_by_pid_1(number: int) -> None:
    with mock.patch("os.kill") as kill, pytest.raises(RuntimeError, match="outside the call's own pid namespace"):
        outside_of_any_namespace(outer=0)._signal_all(number)
    kill.assert_not_called()


def test_everybody_is_signalled_only_outside_the_callers_namespace() -> None:
    first = outside_of_any_namespace(outer=_world.pid_namespace())
    with mock.patch("os.kill") as kill, mock.patch("os.getpid", return_value=1), pytest.raises(RuntimeError):
        first._signal_all(signal.SIGKILL)
    kill.assert_not_called()
