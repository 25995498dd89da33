"""What a contract wants done when a call did not end by itself: a command, a look for locks, a word of warning."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deadlined import Client
from tests.contract.conftest import MARK, TestedDaemon, open_daemons

pytestmark = pytest.mark.contract

MODULE = """
import time
from deadlined import tool

@tool(after_kill={"argv": ["sh", "-c", 'echo "$1" > ended_by_python', "sh", "{job}"], "timeout_ms": 10_000})
def delegates(job: str) -> str:
    time.sleep(1000)

@tool(read_only=True)
def reads_long() -> str:
    time.sleep(1000)

@tool(read_only=True, remote=True)
def queries_long() -> str:
    time.sleep(1000)
"""
CONFIG = """
[daemon]
in_flight = 1
[tool.more]
kind = "python"
module = "more_tools"
path = "."
[tool.asks]
kind = "command"
argv = ["sh", "-c", "echo begun; test $2 = quick || sleep 1000", "sh", "{job}", "{how}"]
arguments = { job = "str", how = "str" }
after_kill = { argv = ["sh", "-c", 'echo "$1 $DEADLINED_IDEMPOTENCY_KEY"; echo "$1" >> ended', "sh", "{job}"] }
[tool.asks_a_hanging_one]
kind = "command"
argv = ["sleep", "1000"]
after_kill = { argv = ["sh", "-c", "setsid sleep 1001 & sleep 1001"], timeout_ms = "300ms" }
[tool.asks_nobody_there]
kind = "command"
argv = ["sleep", "1000"]
after_kill = { argv = ["no-such-program-anywhere"] }
[tool.shell]
lock_files = [".git/*.lock"]
"""


@pytest.fixture(scope="module")
def served() -> Iterator[TestedDaemon]:
    """A daemon with one place, so that whatever waited for a second one would wait for ever."""
    with open_daemons() as start:
        directory = Path(tempfile.mkdtemp(prefix="dl-tools-"))
        try:
            (directory / "more_tools.py").write_text(MODULE)
            yield start(CONFIG.replace('path = "."', f'path = "{directory}"'))
        finally:
            shutil.rmtree(directory)


@pytest.fixture
def client(served) -> Iterator[Client]:
    with Client(served.socket) as client:
        yield client


def killed(client: Client, tool: str, arguments: dict[str, Any], left: Path | None = None, **more: Any) -> Any:
    """A call that was killed at its deadline after it had begun, and had left a file: longer and longer deadlines until
    the machine is quick enough for that."""
    for deadline_ms in (400, 1_600, 6_400, 25_600):
        result = client.call(tool, arguments, deadline_ms=deadline_ms, **more)
        if result.delivery == "unknown" and (left is None or left.exists()):
            break
    assert (result.status, result.reason) == ("killed", "time_budget")
    return result


def noticed(result, detector: str) -> list[str]:
    return [notice.text for notice in result.notices if notice.detector == detector]


def test_after_a_kill_its_command_runs_with_the_calls_arguments_and_key(client, tmp_path):
    result = killed(client, "asks", {"job": "j 1", "how": "slow"}, cwd=str(tmp_path))
    assert result.kill.confirmed
    (said,) = noticed(result, "after_kill")
    assert "ok after" in said
    assert (tmp_path / "ended").read_text() == "j 1\n"
    assert noticed(result, "remote_work_possible") == []
    after = client.handle(f"{result.call}.after_kill").wait()
    assert after.output.view == f"j 1 {result.idempotency_key}\n"


def test_it_runs_after_a_cancel_too_and_not_after_a_call_that_ended_by_itself(client, tmp_path):
    handle = client.submit("asks", {"job": "cancelled", "how": "slow"}, deadline_ms=60_000, cwd=str(tmp_path))
    assert next(handle.output()) == b"begun\n"
    handle.cancel()
    assert handle.wait().status == "cancelled"
    assert client.call("asks", {"job": "quick", "how": "quick"}, cwd=str(tmp_path)).notices == []
    assert (tmp_path / "ended").read_text() == "cancelled\n"


def test_a_python_tool_has_one_as_well(client, tmp_path):
    result = killed(client, "delegates", {"job": "p"}, cwd=str(tmp_path))
    assert (tmp_path / "ended_by_python").read_text() == "p\n"
    assert len(noticed(result, "after_kill")) == 1


def test_a_command_that_hangs_is_killed_at_its_own_deadline_and_that_is_told(client, mark, nothing_left):
    result = killed(client, "asks_a_hanging_one", {})
    (said,) = noticed(result, "after_kill")
    assert "killed (time_budget)" in said
    assert "may go on" in said
    assert client.call("shell", {"argv": ["true"], "env": {MARK: mark}}).status == "ok"
    assert not [row for row in client.processes() if row.state == "busy"]


def test_one_that_is_not_there_is_told_too(client):
    result = killed(client, "asks_nobody_there", {})
    (said,) = noticed(result, "after_kill")
    assert "no-such-program-anywhere" in said
    assert [notice.level for notice in result.notices] == ["warn"]


@pytest.mark.case("B024")
def test_without_one_what_may_go_on_elsewhere_is_mentioned_unless_the_tool_only_reads(client):
    assert noticed(killed(client, "shell", {"argv": ["sleep", "1000"]}), "remote_work_possible")
    assert not noticed(killed(client, "reads_long", {}), "remote_work_possible")
    assert noticed(killed(client, "queries_long", {}), "remote_work_possible")
    assert client.call("shell", {"argv": ["true"]}).notices == []


LOCKS = "mkdir -p .git && : > .git/index.lock && sleep 1000"


@pytest.mark.case("B075")
def test_a_lock_that_a_killed_call_has_left_is_named_and_stays(client, tmp_path):
    (tmp_path / "below").mkdir()
    for where, cwd in ((tmp_path, {}), (tmp_path / "below", {"cwd": "below"})):
        lock = where / ".git" / "index.lock"
        arguments = {"argv": ["sh", "-c", LOCKS], **cwd}
        result = killed(client, "shell", arguments, left=lock, cwd=str(tmp_path))
        (said,) = noticed(result, "lock_files")
        assert str(lock) in said
        assert lock.exists(), "files are the user's"
        assert "locks left behind" in result.next_action
    quick = client.call("shell", {"argv": ["true"]}, cwd=str(tmp_path))
    assert noticed(quick, "lock_files") == []


def test_a_lock_in_the_calls_own_directory_is_found_where_that_was_kept(client):
    handle = client.submit("shell", {"argv": ["sh", "-c", f"{LOCKS.replace('sleep', 'echo ready && sleep')}"]})
    assert next(handle.output()) == b"ready\n"
    handle.cancel()
    result = handle.wait()
    (said,) = noticed(result, "lock_files")
    assert f"{result.workdir}/.git/index.lock" in said


def test_the_contract_is_shown(client):
    (shown,) = client.tools("asks")
    assert json.loads(json.dumps(list(shown.contract.after_kill.argv)))[-1] == "{job}"
    assert shown.contract.after_kill.timeout_ms == 1_000
