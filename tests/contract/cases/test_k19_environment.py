"""Public reports on what a call finds around it: a directory that another call has left, secrets of everybody else, a
variable that is missing without a word, arguments that no kernel takes."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deadlined import CallResult, Client
from tests.contract.conftest import CommandLine, TestedDaemon, open_daemons

pytestmark = pytest.mark.contract
CONFIG = f"""
[daemon]
spares = 1
in_flight = 4
frame_limit = "16MiB"
[tool.around]
kind = "python"
module = "case_environment"
path = "{os.path.dirname(__file__)}"
[tool.unlocked]
kind = "command"
argv = ["sh", "-c", 'echo "have $VAULT_SESSION"; exit 3']
secrets = ["VAULT_SESSION"]
[tool.declares]
kind = "command"
argv = ["env"]
env = ["DB_URL"]
read_only = true
[tool.wants_the_model]
kind = "command"
argv = ["env"]
env = ["LLM_API_KEY", "LLM_BASE_URL", "DB_URL"]
read_only = true
"""
CANARY, SESSION, DECLARED, MODEL_KEY = "canary-123-api", "session-canary-77", "canary-of-db", "model-canary-55"
OWN = {
    "API_KEY": CANARY,
    "SSH_AUTH_SOCK": f"/tmp/{CANARY}.sock",
    "PYTHONPATH": f"/nonexistent/{CANARY}",
    "LD_PRELOAD": "libm.so.6",
    "GIT_DIR": CANARY,
    "DB_URL": DECLARED,
    "VAULT_SESSION": SESSION,
    "LLM_API_KEY": MODEL_KEY,
    "LLM_BASE_URL": f"http://127.0.0.1:9/{MODEL_KEY}",
}
MS = 30_000


@pytest.fixture(scope="module")
def daemon() -> Iterator[TestedDaemon]:
    with open_daemons() as start:
        yield start(CONFIG, **OWN)


@pytest.fixture
def client(daemon: TestedDaemon) -> Iterator[Client]:
    with Client(daemon.socket) as client:
        yield client


@pytest.fixture
def where() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="dl-k19-"))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def ask(client: Client, tool: str, arguments: dict[str, Any] | None = None, **more: Any) -> CallResult:
    return client.call(tool, arguments or {}, deadline_ms=MS, **more)


def records(daemon: TestedDaemon) -> bytes:
    """All that the journal's files and the log hold."""
    files = [*daemon.directory.glob("state/*/journal.db*"), daemon.directory / "daemon.log"]
    assert len(files) > 1
    return b"".join(path.read_bytes() for path in files)


# ---------------------------------------------------------------- B129: what another call has left


@pytest.mark.case("B129")
@pytest.mark.parametrize("what", ["cwd", "umask", "environment", "signals", "locale", "path"])
def test_a_call_starts_in_the_declared_state_whatever_the_one_before_has_changed(
    client: Client, where: Path, what: str
) -> None:
    def looks() -> dict[str, Any]:
        seen: dict[str, Any] = ask(client, "looks", cwd=str(where)).content
        for name in ("worker",):
            seen.pop(name)
        for name in ("TMPDIR", "HOME"):  # a worker's own
            seen["environment"].pop(name)
        return seen

    before = looks()
    for _ in range(3):  # whichever worker is next
        assert ask(client, "changes", {"what": what}, cwd=str(where)).content == what
        assert looks() == before


@pytest.mark.case("B129")
def test_a_directory_that_a_command_went_to_is_not_where_the_next_one_starts(client: Client, where: Path) -> None:
    (where / "sub").mkdir()
    went = ask(client, "script", {"text": "cd sub; umask 0; export LEFT=1; pwd"}, cwd=str(where))
    assert went.output.view == f"{where}/sub\n"
    found = ask(client, "script", {"text": "pwd; umask; echo left=$LEFT"}, cwd=str(where))
    assert found.output.view.splitlines()[0] == str(where)
    assert found.output.view.splitlines()[1:] != ["0000", "left=1"]
    assert "left=\n" in found.output.view


# ---------------------------------------------------------------- B130: what nobody has asked for


@pytest.mark.case("B130")
def test_a_tool_sees_what_it_declares_and_no_secret_of_others_and_none_is_on_record(
    daemon: TestedDaemon, client: Client
) -> None:
    seen = ask(client, "shell", {"argv": ["env"]}).output.view
    assert not [name for name in OWN if f"\n{name}=" in f"\n{seen}"]
    assert "PATH=" in seen
    names = ask(client, "looks").content["environment"]
    assert not set(OWN) & set(names)
    assert f"DB_URL={DECLARED}" in ask(client, "declares").output.view
    for pid in ("1", "self", "$PPID", str(daemon.pid)):
        text = f"cat /proc/{pid}/environ 2>&1 | tr '\\0' '\\n'"
        assert CANARY not in ask(client, "script", {"text": text}).output.view
    for number in (1, os.getpid(), daemon.pid):
        assert CANARY not in ask(client, "environment_of", {"pid": number}).content
    ask(client, "no_such_tool")
    ask(client, "shell", {"argv": []})
    assert CANARY not in json.dumps([event.data for event in client.events()])
    assert CANARY.encode() not in records(daemon)


@pytest.mark.case("B130")
def test_a_secret_reaches_its_tool_and_no_record(daemon: TestedDaemon, client: Client) -> None:
    assert ask(client, "unlocks").content == str(len(SESSION))
    told = [ask(client, "unlocks", {"says": True}), ask(client, "unlocked", key="with a secret")]
    assert told[0].content == "it is [VAULT_SESSION]"
    assert told[1].output.view == "have [VAULT_SESSION]\n"
    assert "VAULT_SESSION" not in ask(client, "looks").content["environment"], "on no worker that had it"
    assert SESSION not in repr(told)
    assert SESSION.encode() not in records(daemon)
    raw = b"".join(client.handle(told[1].call).output())
    assert raw == f"have {SESSION}\n".encode(), "the raw output is as the tool wrote it"


@pytest.mark.case("B130")
def test_what_a_tool_does_not_declare_is_not_in_its_memory_either(client: Client) -> None:
    def found(text: str) -> int:
        count: int = ask(client, "finds_in_its_memory", {"turned": [byte ^ 1 for byte in text.encode()]}).content
        return count

    assert found(os.environ["PATH"]) > 0, "this one it may see, so the search finds what is there"
    assert (found(CANARY), found(SESSION), found(MODEL_KEY)) == (0, 0, 0)


@pytest.mark.case("B130")
def test_the_way_to_the_models_reaches_no_tool_that_asks_for_it(client: Client) -> None:
    seen = ask(client, "wants_the_model").output.view
    assert f"DB_URL={DECLARED}" in seen
    assert "LLM_" not in seen


# ---------------------------------------------------------------- B131: what no kernel takes

LIMIT = 131_072
"""Bytes of one element, its NUL included (execve(2), MAX_ARG_STRLEN)."""


@pytest.mark.case("B131")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"argv": ["echo", "x" * LIMIT]}, "131072 bytes; allowed: at most 131071"),
        ({"argv": ["echo"], "env": {"BIG": "x" * (2 << 20)}}, "env.BIG"),
        ({"argv": ["echo", "a\0b"]}, "NUL"),
        ({"argv": []}, "argv"),
        ({"argv": [""]}, "argv"),
    ],
    ids=["an element", "the environment", "NUL", "no argv", "no program"],
)
def test_what_the_kernel_would_not_take_is_refused_by_name(
    client: Client, arguments: dict[str, Any], said: str
) -> None:
    told = ask(client, "shell", arguments)
    assert (told.status, told.reason) == ("not_executed", "invalid_arguments"), told.error
    assert told.error is not None
    assert said in told.error.message
    assert told.delivery == "not_delivered"


@pytest.mark.case("B131")
@pytest.mark.parametrize(
    "argv",
    [["echo", "x" * (LIMIT - 1)], ["true", *["x" * 100_000] * 40], ["true", *["x"] * 100_000]],
    ids=["the longest", "four megabytes", "a hundred thousand"],
)
def test_what_is_large_runs_or_is_refused_and_nothing_crashes_or_hangs(client: Client, argv: list[str]) -> None:
    told = ask(client, "shell", {"argv": argv})
    if told.status == "ok":
        assert told.output.bytes == (LIMIT if argv[0] == "echo" else 0)
    else:
        assert argv[0] == "true"
        assert told.error is not None
        assert "rgument list too long" in told.error.message
    large = ask(client, "shell", {"argv": ["wc", "-c"], "stdin": "x" * (4 << 20)})
    assert large.output.view.strip() == str(4 << 20), "large data goes by stdin"


# ---------------------------------------------------------------- B132: what is missing


@pytest.mark.case("B132")
def test_a_secret_that_nobody_has_set_is_named_when_the_tool_is_called(daemon: TestedDaemon, client: Client) -> None:
    told = ask(client, "lacks")
    assert (told.status, told.reason, told.delivery) == ("not_executed", "missing_secret", "not_delivered")
    assert told.error is not None
    assert "needs NOBODY_HAS_SET_IT" in told.error.message
    assert "NOBODY_HAS_SET_IT" in (daemon.directory / "daemon.log").read_text(), "and in the log at the start"


@pytest.mark.case("B132")
def test_the_names_that_are_passed_missed_and_kept_back_are_shown_and_no_value(daemon: TestedDaemon) -> None:
    deadlined = CommandLine(daemon.socket)
    shown = deadlined("tools", "unlocks").stdout
    lines = {line.split(":")[0].strip(): line for line in shown.splitlines() if ":" in line}
    assert "VAULT_SESSION" in lines["passed"]
    assert {"API_KEY", "DB_URL", "SSH_AUTH_SOCK"} <= set(lines["kept back"].replace(",", " ").split())
    assert "NOBODY_HAS_SET_IT" in deadlined("tools", "lacks").stdout.split("named and not set:")[1].splitlines()[0]
    assert not [value for value in (CANARY, SESSION, DECLARED) if value in shown]
