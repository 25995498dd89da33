"""What runs short or dies under the daemon costs the calls it must and no others; the daemon goes on."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time

import psutil
import pytest

from deadlined import Client
from tests.contract.conftest import TestedDaemon

pytestmark = pytest.mark.contract


def zygotes(daemon: TestedDaemon) -> list[psutil.Process]:
    return [child for child in psutil.Process(daemon.pid).children() if "toolworkers zygote " in _words(child)]


def _words(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:  # it is ending
        return ""


def wait_for_another_zygote(daemon: TestedDaemon, old: psutil.Process) -> psutil.Process:
    until = time.monotonic() + 20
    while not (found := [zygote for zygote in zygotes(daemon) if zygote.pid != old.pid]):
        assert time.monotonic() < until, "no other zygote was started"
    return found[0]


def test_a_zygote_killed_while_it_starts_is_started_again(daemon):
    (zygote,) = zygotes(daemon)
    for _ in range(3):
        zygote.kill()
        zygote = wait_for_another_zygote(daemon, zygote)
    with Client(daemon.socket) as client:
        assert client.call("shell", {"argv": ["echo", "again"]}, deadline_ms=30_000).output.view == "again\n"


def test_a_killer_that_stays_stopped_is_replaced(daemon):
    """Warm workers are soon used up, and a new one serves nobody before a killer has acknowledged it."""
    killer = next(child for child in psutil.Process(daemon.pid).children() if "toolworkers killer " in _words(child))
    killer.suspend()
    with Client(daemon.socket) as client:
        for _ in range(6):
            assert client.call("python", {"code": "1"}, deadline_ms=30_000).content == 1
    assert not killer.is_running()


def test_a_killed_zygote_with_many_idle_workers_does_not_shut_the_pool(daemon):
    with Client(daemon.socket) as client:
        handles = [client.submit("shell", {"argv": ["sleep", "0.5"]}, deadline_ms=30_000) for _ in range(12)]
        assert {handle.wait().status for handle in handles} == {"ok"}
        assert client.status().idle_workers > 10
        zygotes(daemon)[0].kill()
        until = time.monotonic() + 10
        while client.status().workers > 8:
            assert time.monotonic() < until, "the workers outlived their zygote"
            time.sleep(0.02)
        result = client.call("shell", {"argv": ["true"]}, deadline_ms=30_000)
        if result.status != "ok":  # it was placed on a worker that was dying
            assert (result.reason, result.delivery) == ("worker_lost", "not_delivered")
            assert client.call("shell", {"argv": ["true"]}, deadline_ms=30_000).status == "ok"
        assert client.status().degraded == []


def test_idle_workers_of_one_flavour_make_room_for_the_calls_of_another(start_daemon):
    """Five kinds of worker, and slots for three workers: each call is served before any idle worker would end."""
    tools = "".join(
        f'[tool.t{number}]\nkind = "command"\nargv = ["true"]\n[tool.t{number}.limits]\nopen_files = {100 + number}\n'
        for number in range(5)
    )
    daemon = start_daemon(f"[daemon]\nin_flight = 2\nspares = 0\n{tools}")
    with Client(daemon.socket) as client:
        for _ in range(2):
            handles = [client.submit(f"t{number}", {}, deadline_ms=20_000) for number in range(5)]
            assert [handle.wait().status for handle in handles] == ["ok"] * 5


@pytest.mark.skipif(os.getuid() != 0, reason="only root may count the descriptors of a daemon that is not dumpable")
def test_without_descriptors_calls_are_refused_as_overloaded_and_later_served(start_daemon):
    daemon = start_daemon("[daemon]\nspares = 1\n")
    with Client(daemon.socket) as client:
        usual = resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE)
        for room in range(12):
            few = psutil.Process(daemon.pid).num_fds() + room
            resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (few, usual[1]))
            handles = [client.submit("shell", {"argv": ["true"]}, deadline_ms=1_000) for _ in range(3)]
            for result in [handle.wait() for handle in handles]:
                assert (result.status, result.reason) in [
                    ("ok", None),
                    ("not_executed", "overloaded"),
                    ("not_executed", "pool_unhealthy"),
                    ("not_executed", "time_budget"),
                ]
        resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, usual)
        until = time.monotonic() + 60  # a breaker may be open
        while client.call("shell", {"argv": ["true"]}, deadline_ms=5_000).status != "ok":
            assert time.monotonic() < until
            time.sleep(0.5)


def test_an_environment_that_is_no_utf_8_and_a_log_that_nobody_reads_do_no_harm(tmp_path):
    (tmp_path / "run").mkdir(mode=0o700)
    argv = [sys.executable, "-m", "deadlined", "serve", "--socket", str(tmp_path / "run" / "s")]
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "LATIN": "\udce4"}
    daemon = subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert daemon.stdout is not None
    assert daemon.stderr is not None
    try:
        assert daemon.stdout.readline().startswith(b"ready ")
        daemon.stderr.close()
        daemon.stdout.close()
        with Client(str(tmp_path / "run" / "s")) as client:
            assert client.call("shell", {"argv": ["true"]}, deadline_ms=20_000).status == "ok"
        daemon.terminate()
        assert daemon.wait(30) == 0
    finally:
        daemon.kill()
        daemon.wait()
