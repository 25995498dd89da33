"""The examples of README and docs/tools.md, and the examples folder, on the real product."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.contract.conftest import REPOSITORY, CommandLine, TestedDaemon

pytestmark = pytest.mark.contract


def blocks(document: str, language: str) -> list[str]:
    text = (REPOSITORY / document).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_the_python_of_the_readme_runs_as_it_stands(daemon: TestedDaemon) -> None:
    (code,) = blocks("README.md", "python")
    environment = {**os.environ, "DEADLINED_SOCKET": daemon.socket}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    first, second, third = done.stdout.splitlines()
    assert first == "killed time_budget"
    assert re.fullmatch(r"[1-9]\d* killed, confirmed: True", second)
    assert third == "2598960"


@pytest.fixture
def documented_tools(start_daemon: Callable[..., TestedDaemon], tmp_path: Path) -> CommandLine:
    """The tools of docs/tools.md, served: its modules and its configuration as they stand."""
    words, commands = blocks("docs/tools.md", "python")
    (tmp_path / "my_tools.py").write_text(words)
    (tmp_path / "my_commands.py").write_text(commands)
    (tmp_path / "notes.txt").write_text("a b a\nc a b\n")
    more = f'[tool.git_grep]\nkind = "python"\nmodule = "my_commands"\npath = "{tmp_path}"\n'
    configuration = "\n".join([*blocks("docs/tools.md", "toml"), more]).replace('path = "."', f'path = "{tmp_path}"')
    return CommandLine(start_daemon(configuration).socket)


def test_the_tools_of_the_documents_do_what_is_said_of_them(documented_tools: CommandLine, tmp_path: Path) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    for words in (["init", "-q"], ["add", "notes.txt"], ["commit", "-q", "-m", "First"]):
        subprocess.run([*git, *words], check=True)

    def call(tool: str, **arguments: object) -> dict[str, object]:
        done = documented_tools("call", tool, json.dumps(arguments), "--cwd", str(tmp_path), "--json")
        result: dict[str, object] = json.loads(done.stdout)
        return result

    assert call("word_count", path="notes.txt", top=2)["content"] == {"a": 3, "b": 2}
    missing = call("word_count", path="nowhere.txt")
    assert (missing["status"], missing["error"]["code"]) == ("error", "unreadable")  # type: ignore[index]  # an object
    assert call("word_count", path="notes.txt", top=0)["reason"] == "invalid_arguments"
    assert "notes.txt:2:c a b" in call("git_grep", pattern="c a")["output"]["view"]  # type: ignore[index]  # likewise
    assert "First" in call("git_log", dir=str(tmp_path), count=1)["output"]["view"]  # type: ignore[index]  # likewise
    assert call("git_log", dir="--exec-path", count=1)["reason"] == "invalid_arguments"


def test_what_survives_shows_what_the_readme_says() -> None:
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "examples" / "what_survives.py")], capture_output=True, text=True, timeout=60
    )
    rows = {line[:32].strip(): (line[32:72].strip(), line[72:].strip()) for line in done.stdout.splitlines()[1:]}
    assert rows["deadlined exec"] == ("nothing", "nothing")
    for tool in ("asyncio.wait_for", "future.result(timeout=)", "subprocess.run(timeout=)", "timeout -k"):
        assert "daemon" in rows[tool][1], "what the README says of the others must stay true as well"
    assert done.returncode == 0


@pytest.mark.behaviour("M132")
def test_the_looping_agent_is_stopped_and_the_polling_one_is_not(standing_daemon: TestedDaemon) -> None:
    environment = {**os.environ, "DEADLINED_SOCKET": standing_daemon.socket}
    said = {}
    for name in ("looping_agent", "polling_agent"):
        file = REPOSITORY / "examples" / f"{name}.py"
        done = subprocess.run([sys.executable, file], env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        assert len(file.read_text(encoding="utf-8").splitlines()) < 80
        said[name] = done.stdout
    assert said["looping_agent"].count("call ") < 10, "of forty"
    assert "Stuck (no_progress)" in said["looping_agent"]
    assert said["polling_agent"].startswith("Completed after 60 steps"), "not one warning"


def test_a_scripted_model_mends_the_example_and_may_not_finish_while_its_suite_is_red(
    standing_daemon: TestedDaemon,
) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "DEADLINED_SOCKET": standing_daemon.socket, "PATH": path}
    run = REPOSITORY / "examples" / "fix_a_test" / "run.sh"
    done = subprocess.run(["sh", str(run)], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "edit_file: error" in done.stderr, "the first edit misses"
    red = done.stderr.index("the end is refused (1): check 'python3 -B -m unittest -q'")
    assert red < done.stderr.index("Completed after 8 steps")
    assert "+    return total(prices) * (100 - percent) // 100" in done.stdout
    assert "test_totals" not in done.stdout, "the tests are as they were"


def test_a_decision_function_of_ones_own_is_forty_lines(standing_daemon: TestedDaemon) -> None:
    file = REPOSITORY / "examples" / "own_loop.py"
    environment = {**os.environ, "DEADLINED_SOCKET": standing_daemon.socket}
    done = subprocess.run([sys.executable, file], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.match(r"[1-9]\d* lines of Python \(Completed after 3 steps", done.stdout)
    assert len(file.read_text(encoding="utf-8").splitlines()) <= 40
