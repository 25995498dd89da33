"""Tools that turn on the daemon itself: it goes on, answers everybody once, and no other call pays for it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator

import pytest

from deadlined import Client, RequestRefused
from tests.contract.conftest import TestedDaemon

pytestmark = pytest.mark.contract

CONFIG = (
    f'[daemon]\nspares = 1\nin_flight = 1\n[tool.plain]\nkind = "python"\nmodule = "hostile_tools"\n'
    f'path = ["{os.path.dirname(__file__)}"]\n'
)


@pytest.fixture
def client(start_daemon: Callable[..., TestedDaemon]) -> Iterator[Client]:
    """Of a daemon that uses one worker again and again."""
    with Client(start_daemon(CONFIG).socket) as client:
        yield client


def goes_on(client: Client) -> None:
    for _ in range(3):
        result = client.call("plain", {"text": "hi"}, deadline_ms=20_000)
        assert (result.status, result.content, result.output.bytes, result.notices) == ("ok", "plain", 2, [])


@pytest.mark.parametrize("name", ["put_a_fifo_in_place_of_the_output", "remove_the_output"])
def test_an_output_that_a_tool_took_away_is_said_to_be_lost_and_blocks_nothing(client, name):
    handle = client.submit(name, deadline_ms=20_000)
    result = handle.wait()
    assert (result.status, [notice.detector for notice in result.notices]) == ("ok", ["output_lost"])
    with contextlib.suppress(RequestRefused):  # of what was seen being printed: gone; of the other: nothing is known
        assert list(handle.output()) == []
    goes_on(client)


def test_a_work_directory_that_a_forged_answer_left_elsewhere_ends_nobody(client):
    assert client.call("move_the_directory_and_forge", deadline_ms=20_000).content == "forged"
    goes_on(client)


def test_a_worker_that_can_be_given_no_output_file_costs_one_call_at_most(client):
    assert client.call("occupy_the_output_and_forge", deadline_ms=20_000).content == "forged"
    time.sleep(1)  # by then it has taken the name
    first = client.call("plain", deadline_ms=20_000)
    assert (first.status, first.reason, first.retryable) in [
        ("not_executed", "overloaded", True),
        ("ok", None, False),
    ]
    goes_on(client)


def test_what_a_command_wrote_is_kept_when_it_removed_its_directory(client):
    script = 'echo important; rmdir "$PWD"; sleep 1000'
    result = client.call("shell", {"argv": ["sh", "-c", script]}, deadline_ms=1_000)
    assert (result.status, result.output.view) == ("killed", "important\n")
    assert "output_lost" not in {notice.detector for notice in result.notices}
    goes_on(client)


def test_a_raw_file_replaced_by_a_fifo_blocks_nobody(client):
    """A tool of the daemon's uid finds the raw files; the result of this call suffers, nobody else's."""
    handle = client.submit("shell", {"argv": ["sh", "-c", "read line; echo x"], "stdin": "x\n"}, deadline_ms=20_000)
    assert handle.wait().status == "ok"
    path = handle.wait().output.path
    os.unlink(path)
    os.mkfifo(path)
    with pytest.raises(RequestRefused, match="output_gone"):
        list(handle.output())
    goes_on(client)


def test_a_worker_that_answers_a_call_it_has_not_read_ends_nobody(start_daemon):
    """Two frames that do not fit wait for one worker: the second may not be queued behind the first."""
    daemon = start_daemon(CONFIG)
    large = {"text": "x" * 400_000}
    with Client(daemon.socket) as client:
        assert client.call("answer_without_reading", {"seconds": 1.0}, deadline_ms=20_000).content == "forged"
        assert client.call("plain", large, deadline_ms=20_000).status in ("ok", "crashed", "killed")
        assert client.call("plain", large, deadline_ms=20_000).status in ("ok", "crashed", "killed")
        goes_on(client)


DEEP = "import os\nfor _ in range(3000):\n    os.mkdir('d')\n    os.chdir('d')\n"


@pytest.mark.parametrize("end", ["", "import time; time.sleep(600)"], ids=["its worker's", "kept after a kill"])
def test_a_tree_deeper_than_any_path_is_removed(start_daemon, end):
    daemon = start_daemon(f"[daemon]\noutput_ttl_ms = 1\nstate_dir = 'state'\n{CONFIG.removeprefix('[daemon]')}")
    with Client(daemon.socket) as client:
        script = {"text": DEEP + end, "interpreter": "python3"}
        assert client.call("script", script, deadline_ms=3_000).status == ("killed" if end else "ok")
        goes_on(client)
    until = time.monotonic() + 20  # files are looked at every five seconds
    while deep := [*daemon.directory.glob("state/*/work/*/work/d"), *daemon.directory.glob("state/*/outputs/*.work")]:
        assert time.monotonic() < until, deep
        time.sleep(0.2)
