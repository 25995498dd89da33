"""The examples of docs/runs.md as they stand, on the real product: a shell script, Python, raw JSON lines; and what was
counted of them."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from deadlined import Client, RunStopped
from tests.contract.conftest import REPOSITORY, TestedDaemon, open_daemons

pytestmark = pytest.mark.contract
PAGE = (REPOSITORY / "docs" / "runs.md").read_text(encoding="utf-8")
SHOWN_RUN = "r_4f2a000001"
LOOSE = ("remaining_ms",)
"""Fields whose numbers are those of one day."""


CONFIG = """
[alerts]
calls_per_run = 2

[tool.write_file]
approval = "on_write"
"""


@pytest.fixture(scope="module")
def daemon_that_warns() -> Iterator[TestedDaemon]:
    with open_daemons() as start:
        yield start(CONFIG)


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def play(daemon: TestedDaemon, words: list[str], directory: Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "DEADLINED_SOCKET": daemon.socket, "PATH": path}
    return subprocess.run(words, env=environment, cwd=directory, capture_output=True, text=True, timeout=60)


def test_the_loop_of_the_shell_script_runs_and_ends_completed(daemon_that_warns: TestedDaemon, tmp_path: Path) -> None:
    done = play(daemon_that_warns, ["sh", "-ec", blocks("sh")[0]], tmp_path)
    assert done.returncode == 0, done.stderr
    step, charged, evidence, *end = done.stdout.splitlines()
    assert step.startswith("step 1 of 3")
    assert charged.startswith("model_calls 1 · tokens_in 700 · tokens_out 90 · tokens_total 790")
    assert evidence == "new"
    assert end[0].startswith("completed (finish_accepted) at step 1")
    assert (tmp_path / "mended").exists()


def test_the_loop_in_python_ends_where_the_page_says(daemon_that_warns: TestedDaemon, tmp_path: Path) -> None:
    [code] = blocks("python")
    done = play(daemon_that_warns, [sys.executable, "-c", code], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "budget_exhausted token_budget"


def test_the_conversation_in_json_lines_goes_as_it_is_shown(daemon_that_warns: TestedDaemon, tmp_path: Path) -> None:
    [shown] = [block for block in blocks("") if "open_run" in block]
    lines = re.findall(r"^([CD]): (.*)$", shown, re.MULTILINE)
    run = SHOWN_RUN
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(daemon_that_warns.socket)
        client.settimeout(30)
        heard = client.makefile("rb")
        for speaker, line in lines:
            line = line.replace(SHOWN_RUN, run)
            if speaker == "C":
                client.sendall(line.encode() + b"\n")
                continue
            answer = json.loads(heard.readline())
            if answer["op"] == "run_opened":
                run = answer["run"]["run"]
                line = line.replace(SHOWN_RUN, run)
            assert_within(json.loads(line), answer)


def assert_within(shown: Any, answer: Any) -> None:
    """Every field that is shown is there and is the same."""
    for name, value in shown.items():
        if isinstance(value, dict):
            assert_within(value, answer[name])
        elif name in LOOSE:
            assert type(answer[name]) is type(value)
        else:
            assert answer[name] == value, name


@pytest.mark.behaviour("M126")
@pytest.mark.behaviour("M127")
@pytest.mark.behaviour("M128")
def test_what_a_run_came_to_is_counted_as_soon_as_it_was_told(daemon_that_warns: TestedDaemon, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("a\n")
    with Client(daemon_that_warns.socket) as client, counting(client) as moved, client.run() as run:
        with run.model("m", max_in=100, max_out=100) as model:
            model.usage(tokens_in=70, tokens_out=9)
        for _ in range(2):
            assert run.call("read_file", {"path": "notes.txt"}, cwd=tmp_path).status == "ok"
        run.finish("done")
    assert moved["deadlined_runs_settled_total", ("reason", "finish_accepted"), ("status", "completed")] == 1
    assert moved[("deadlined_run_tool_calls_sum",)] == 2
    assert moved["deadlined_run_tokens_sum", ("direction", "in")] == 70
    assert moved["deadlined_run_tokens_sum", ("direction", "out")] == 9
    assert moved["deadlined_repeated_calls_total", ("tool", "read_file")] == 1
    assert moved[("deadlined_run_seconds_count",)] == 1


@pytest.mark.behaviour("M129")
@pytest.mark.behaviour("M130")
@pytest.mark.behaviour("M131")
@pytest.mark.behaviour("M145")
def test_runs_that_go_wrong_are_counted_by_how(daemon_that_warns: TestedDaemon, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("a\nb\nc\n")
    with Client(daemon_that_warns.socket) as client, counting(client) as moved:
        with Client(daemon_that_warns.socket) as leaving:
            abandoned = leaving.open_run(on_disconnect="cancel")
            abandoned.step()
            for lines in ("many", "few", 1, 2, 3):
                abandoned.call("read_file", {"path": "notes.txt", "max_lines": lines}, cwd=tmp_path)
        assert client.attach_run(abandoned.id).wait().reason == "disconnect"
        with client.run() as run:
            asked = run.call("write_file", {"path": "notes.txt", "text": ""}, cwd=tmp_path)
            assert (asked.status, asked.approval is not None) == ("waiting_for_approval", True)
            client.reject(str(asked.approval))
            run.finish("without it")
        with client.run(limits={"steps": 1}) as run:
            run.step()
            with pytest.raises(RunStopped):
                run.step()
    assert moved["deadlined_runs_abandoned_total", ("how", "disconnect")] == 1
    assert moved["deadlined_human_interruptions_total", ("for", "approval")] == 1
    assert moved[("deadlined_runs_interrupted_total",)] == 1
    assert moved[("deadlined_runs_reached_step_limit_total",)] == 1
    assert moved["deadlined_retries_total", ("by", "client"), ("class", "argument")] == 2
    assert moved["deadlined_alerts_total", ("kind", "calls")] == 1


@contextmanager
def counting(client: Client) -> Iterator[dict[Any, float]]:
    """By how much each number moves in the block; filled at its end."""
    moved: dict[Any, float] = {}
    before = numbers(client)
    yield moved
    moved.update({name: value - before.get(name, 0) for name, value in numbers(client).items()})


def numbers(client: Client) -> dict[Any, float]:
    families = text_string_to_metric_families(client.metrics())
    return {(one.name, *sorted(one.labels.items())): one.value for family in families for one in family.samples}
