"""``deadlined agent`` as a person starts it: a real daemon, real tools, a model that plays a script."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deadlined import Client
from tests.contract.conftest import MARK, CommandLine, TestedDaemon, open_daemons

pytestmark = pytest.mark.contract
CONFIG = '[tool.write_file]\napproval = "on_write"\n'
WRITE = {"path": "note.txt", "text": "x"}
BOTH = pytest.mark.parametrize("where", [[], ["--local"]], ids=["hosted", "local"])


@pytest.fixture(scope="module")
def asking_daemon() -> Iterator[TestedDaemon]:
    """A daemon in which a person is asked before a file is written."""
    with open_daemons() as start:
        yield start(CONFIG)


@pytest.fixture
def agent(asking_daemon: TestedDaemon, tmp_path: Path) -> Agent:
    return Agent(CommandLine(asking_daemon.socket), tmp_path)


class Agent:
    """``deadlined agent`` with a script of these turns, working in a directory of the test's own."""

    def __init__(self, command: CommandLine, workspace: Path) -> None:
        self.command, self.workspace = command, workspace

    def words(self, turns: list[dict[str, Any]], *words: str) -> list[str]:
        script = self.workspace / f"script-{len(list(self.workspace.glob('script-*')))}.jsonl"
        script.write_text("\n".join(json.dumps(turn) for turn in turns))
        return ["agent", "do it", "--model", f"scripted:{script.name}", "--workspace", ".", *words]

    def __call__(self, turns: list[dict[str, Any]], *words: str) -> subprocess.CompletedProcess[str]:
        return self.command(*self.words(turns, *words), cwd=self.workspace)

    def start(self, turns: list[dict[str, Any]], *words: str) -> subprocess.Popen[str]:
        return self.command.start(*self.words(turns, *words), cwd=self.workspace)


def calls(*made: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    return {"calls": [{"tool": tool, "arguments": arguments} for tool, arguments in made]}


def finish(answer: str) -> dict[str, Any]:
    return calls(("finish", {"answer": answer}))


def sh(text: str, mark: str = "") -> tuple[str, dict[str, Any]]:
    return "shell", {"argv": ["sh", "-c", text], "env": {MARK: mark}}


def only_run(agent: Agent) -> str:
    """The one that goes on or waits."""
    [run] = json.loads(agent.command("run", "list", "--json").stdout)["runs"]
    return str(run["run"])


def pending(client: Client) -> str:
    """The approval that is waited for, once there is one."""
    until = time.monotonic() + 30
    while not (asked := client.approvals()):
        assert time.monotonic() < until, "nobody was asked"
        time.sleep(0.02)
    return asked[0].approval


def wait_until_heard(pid: int) -> None:
    """Until no SIGINT is pending any more: two at once are one."""
    while any(re.findall(r"^(?:Shd|Sig)Pnd:\t\w+[2367abef]$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)):
        time.sleep(0.01)
    time.sleep(0.3)  # the interpreter's own half of it


@BOTH
def test_steps_go_to_stderr_the_answer_to_stdout_whoever_steers(agent: Agent, where: list[str]) -> None:
    turns = [
        calls(("list_files", {"path": "."})),
        {"status": 429},
        calls(("nonsense", {}), sh("exit 3")),
        finish("too early"),
        calls(sh("touch mended")),
        finish("it is 7"),
    ]
    done = agent(turns, *where, "--check", "test -e mended", "--limit", "tokens_total=100000")
    assert (done.returncode, done.stdout) == (0, "it is 7\n"), done.stderr
    told = re.sub(r"\d+ m \d\d s|[\d.]+ m?s\b|tokens_total \d+|\(\d+ %\)|r_\w+", "N", done.stderr)
    first, *lines = told.splitlines()
    assert first == "N · profile default · N left · done when: test -e mended"
    assert lines[:5] == [
        "step 1 of 25 · N left · N of 100000 N",
        '  list_files {"path": "."}',
        "    list_files: ok after N",
        "step 2 of 25 · N left · N of 100000 N",
        "  the model again in N: http_status: scripted status 429",
    ]
    assert any(line.startswith("  nonsense: not done (unknown_tool): there is no tool") for line in lines)
    assert "    shell: error after N" in lines
    assert any(line.startswith("  the end is refused (1): check 'test -e mended'") for line in lines)
    assert lines[-1] == "Completed after 5 steps and N."


def test_json_is_the_log_without_a_gap_and_the_stop_record_last(agent: Agent) -> None:
    done = agent([calls(("list_files", {})), {"text": "there you are"}], "--json")
    *events, stop = map(json.loads, done.stdout.splitlines())
    assert (done.returncode, done.stderr) == (0, "")
    assert [event["data"]["run_seq"] for event in events] == list(range(1, len(events) + 1))
    assert (events[0]["kind"], events[-1]["kind"]) == ("run_admitted", "run_settled")
    assert (stop["status"], stop["reason"], stop["answer"]) == ("completed", "final_text", "there you are")


@pytest.mark.behaviour("M133")
def test_a_budget_that_is_used_up_ends_with_a_last_word_and_what_was_found(agent: Agent) -> None:
    made = [calls(sh("echo first")), calls(sh("echo second")), {"text": "half of it is known"}]
    done = agent(made, "--limit", "tool_calls=1")
    assert (done.returncode, done.stdout) == (3, "half of it is known\n")
    said = done.stderr.splitlines()
    assert any(line.startswith("  budget: ") for line in said)
    assert any(line.startswith("Budget exhausted (tool_call_budget)") for line in said)
    assert "found: shell: ok: first" in said
    assert "what would help: a larger budget" in said


@BOTH
def test_ctrl_c_ends_the_call_in_flight_and_lists_what_nobody_knows(
    agent: Agent,
    where: list[str],
    mark: str,
    somebody_alive: Callable[..., list[str]],
    nothing_left: Callable[..., None],
) -> None:
    with agent.start([calls(sh("sleep 1000", mark))], *where) as child:
        somebody_alive(mark)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=30)
    nothing_left(mark)
    assert (child.returncode, out) == (5, "")
    assert "Cancelled (client) after 1 step" in err
    assert re.search(
        r"unknown: whether c_\w+ \(shell\) did its work; look for the key \w+, then: deadlined effects", err
    )


def test_a_second_ctrl_c_leaves_at_once_and_the_run_ends_without_it(
    agent: Agent,
    asking_daemon: TestedDaemon,
    mark: str,
    somebody_alive: Callable[..., list[str]],
    nothing_left: Callable[..., None],
) -> None:
    with agent.start([calls(sh("sleep 1000", mark))]) as child:
        somebody_alive(mark)
        run = only_run(agent)
        os.kill(asking_daemon.pid, signal.SIGSTOP)  # it confirms nothing now
        try:
            child.send_signal(signal.SIGINT)
            wait_until_heard(child.pid)
            assert child.poll() is None
            child.send_signal(signal.SIGINT)
            _, err = child.communicate(timeout=30)
        finally:
            os.kill(asking_daemon.pid, signal.SIGCONT)
    assert child.returncode == 130
    assert "Traceback" not in err
    with Client(asking_daemon.socket) as client:
        assert client.attach_run(run).wait().status == "cancelled"
    nothing_left(mark, 5)


@pytest.mark.parametrize("keep", [False, True], ids=["by default", "with --keep"])
def test_a_task_ends_with_its_command_unless_it_is_kept(
    agent: Agent, asking_daemon: TestedDaemon, keep: bool, mark: str, somebody_alive: Callable[..., list[str]]
) -> None:
    turns = [calls(sh("until test -e go; do sleep 0.05; done", mark)), finish("it went")]
    with agent.start(turns, *(["--keep"] if keep else [])) as child:
        somebody_alive(mark)
        run = only_run(agent)
        child.kill()
    with Client(asking_daemon.socket) as client:
        if keep:
            (agent.workspace / "go").touch()
        stop = client.attach_run(run).wait()
    assert (stop.status, stop.reason) == (("completed", "finish_accepted") if keep else ("cancelled", "disconnect"))


def test_a_local_loop_waits_for_a_person_in_place(agent: Agent, asking_daemon: TestedDaemon) -> None:
    turns = [calls(("write_file", WRITE)), calls(("ask_user", {"question": "which?"})), finish("that one")]
    with agent.start(turns, "--local") as child, Client(asking_daemon.socket) as client:
        approval = pending(client)
        run = client.approvals()[0].run
        client.approve(approval)
        steered = client.attach_run(str(run))
        until = time.monotonic() + 30
        while steered.view().status != "needs_input":
            assert time.monotonic() < until
            time.sleep(0.02)
        assert (agent.workspace / "note.txt").read_text() == "x"
        steered.resume("this")
        out, err = child.communicate(timeout=30)
    assert (child.returncode, out) == (0, "that one\n")
    assert f"answer it: deadlined run resume {run} --answer TEXT" in err
    assert "it goes on: this" in err


def test_resume_goes_on_with_what_a_person_decides_also_in_another_life_of_the_daemon(
    start_daemon: Callable[..., TestedDaemon], tmp_path: Path
) -> None:
    first = start_daemon(CONFIG)
    agent = Agent(CommandLine(first.socket), tmp_path)
    written = agent([calls(("write_file", WRITE), sh("echo once >> ran")), finish("it is written")], "--json")
    asked = agent([calls(("ask_user", {"question": "which order?"})), finish("order 4711")], "--json")
    assert (written.returncode, asked.returncode) == (4, 4)
    writing, asking = (json.loads(done.stdout.splitlines()[-1])["run"] for done in (written, asked))

    first.private.stop()
    second = start_daemon(CONFIG, after=first)
    waits = agent.command("agent", "resume", writing)
    with Client(second.socket) as client:
        approval = pending(client)
        assert waits.returncode == 4
        assert f"decide: deadlined approve {approval}" in waits.stderr
        client.approve(approval)
    done = agent.command("agent", "resume", writing)
    assert (done.returncode, done.stdout) == (0, "it is written\n"), done.stderr
    assert (tmp_path / "note.txt").read_text() == "x"
    assert (tmp_path / "ran").read_text() == "once\n", "a call that ran in an earlier life is not made again"

    done = agent.command("agent", "resume", asking, "--answer", "4711")
    assert (done.returncode, done.stdout) == (0, "order 4711\n"), done.stderr
    assert done.stderr.startswith("it goes on: 4711")
