"""K05: a program waits for input that nobody gives: at a pipe, at a prompt, at the terminal of the supervisor."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.cases.conftest import PATIENCE_S
from tests.contract.conftest import TestedDaemon, open_daemons

pytestmark = pytest.mark.contract

LONG_MS = 600_000
"""A deadline that no test lives to see: whoever waits for it fails."""
READS_ALL = "import sys; print(len(sys.stdin.read()), 'got eof')"
ON_TERMINAL = (
    "import os, sys\nos.setsid()\nterminal = os.open(os.environ['DEADLINED_TEST_TERMINAL'], os.O_RDWR)\n"
    "os.dup2(terminal, 0)\nos.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)
"""A session leader's first terminal becomes its controlling one; the daemon is what it turns into."""


@pytest.fixture(scope="module")
def typed_at() -> Iterator[tuple[int, str]]:
    """The far end of a terminal, on which a person has typed a line, and the terminal's name."""
    ours, theirs = os.openpty()
    os.write(ours, b"typed by a person\n")
    yield ours, os.ttyname(theirs)
    os.close(ours)
    os.close(theirs)


@pytest.fixture(scope="module")
def module_daemon(typed_at) -> Iterator[TestedDaemon]:
    """A daemon that was started in a terminal, on which a person has typed."""
    with open_daemons() as start:
        daemon = start(python=(sys.executable, "-c", ON_TERMINAL), DEADLINED_TEST_TERMINAL=typed_at[1])
        assert _terminal_of(daemon.pid) != 0, "it has no controlling terminal: nothing would be shown"
        yield daemon


def _terminal_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[4])


@pytest.mark.case("B027")
@pytest.mark.parametrize(
    ("argv", "output"),
    [
        (["cat"], ""),
        (["python3", "-c", READS_ALL], "0 got eof\n"),
        (["sh", "-c", "cat; cat <&0; echo end"], "end\n"),
        (["sh", "-c", "read x || echo eof"], "eof\n"),
    ],
)
def test_b027_standard_input_has_ended_where_none_was_given(calls, argv, output):
    result = calls.run(*argv, deadline_ms=LONG_MS)
    assert (result.status, result.exit.code, result.output.view) == ("ok", 0, output)


@pytest.mark.case("B027")
def test_b027_also_for_a_script_and_a_python_tool(calls):
    script = calls.tool("script", {"text": "cat; echo end", "interpreter": "sh"}, deadline_ms=LONG_MS)
    assert (script.status, script.output.view) == ("ok", "end\n")
    python = calls.tool("python", {"code": "import sys; sys.stdin.read()"}, deadline_ms=LONG_MS)
    assert (python.status, python.content) == ("ok", "")


@pytest.mark.case("B027")
@pytest.mark.parametrize("given", ["", "one line\n", "no newline", "x" * 300_000], ids=["none", "line", "cut", "long"])
def test_b027_what_was_given_ends_too_and_is_the_calls_alone(calls, given):
    read = calls.run("python3", "-c", READS_ALL, deadline_ms=LONG_MS, stdin=given)
    assert (read.status, read.output.view) == ("ok", f"{len(given)} got eof\n")
    unread = calls.run("true", deadline_ms=LONG_MS, stdin=given)
    after = calls.run("cat", deadline_ms=LONG_MS)
    assert (unread.status, after.status, after.output.bytes) == ("ok", "ok", 0)


@pytest.mark.case("B028")
@pytest.mark.parametrize(
    ("line", "output"),
    [
        ('printf "Password: "; read x; echo $x', "Password: \n"),
        ('printf "Sure? [y/N] " >&2; read x || echo " no"', "Sure? [y/N]  no\n"),
        ('printf "Name: "; exec python3 -c "input()" 2>/dev/null || echo none', "Name: "),
    ],
)
def test_b028_a_prompt_is_answered_by_the_end_and_shown(calls, line, output):
    result = calls.run("sh", "-c", line, deadline_ms=LONG_MS)
    assert (result.status in ("ok", "error"), result.output.view) == (True, output)


@pytest.mark.case("B028")
def test_b028_a_prompt_that_insists_ends_at_the_limit_of_its_own_call(calls):
    """Two limits side by side, each its call's."""
    insists = calls.arguments("sh", "-c", 'while :; do printf "again? "; read x || sleep 0.05; done')
    longer = calls.client.submit("shell", insists, deadline_ms=900)
    result = calls.client.submit("shell", insists, deadline_ms=300).wait(PATIENCE_S)
    later = longer.wait(PATIENCE_S)
    for call, limit in ((result, 300), (later, 900)):
        assert (call.status, call.reason, call.timing.deadline_ms) == ("killed", "time_budget", limit)
        assert call.output.view.startswith("again? ")


@pytest.mark.case("B029")
@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["sh", "-c", "read x < /dev/tty; echo got $x"], "No such device or address"),
        (["sh", "-c", "setsid sh -c 'read x < /dev/tty; echo got $x'"], "No such device or address"),
        (["python3", "-c", "open('/dev/tty')"], "[Errno 6]"),
        (["sh", "-c", "(echo asked > /dev/tty) 2>&1; tty"], "not a tty"),
    ],
)
def test_b029_a_tool_has_no_terminal_to_ask_at(calls, typed_at, argv, says):
    result = calls.run(*argv, deadline_ms=LONG_MS)
    assert result.status in ("ok", "error")
    assert says in result.output.view
    assert "typed" not in result.output.view


@pytest.mark.case("B029")
def test_b029_nor_a_python_tool(calls):
    result = calls.tool("python", {"code": "import getpass\nopen('/dev/tty')"}, deadline_ms=LONG_MS)
    assert result.status == "error"
    assert "No such device or address" in result.error.message


@pytest.mark.case("B029")
def test_b029_even_when_it_knows_the_terminals_name(calls, typed_at):
    """A session leader's first terminal becomes its own: but this one is the daemon's, and stays it (tty_ioctl(4))."""
    code = f"import os; os.open({typed_at[1]!r}, os.O_RDWR); open('/dev/tty')"
    result = calls.run("python3", "-c", code, deadline_ms=LONG_MS)
    assert result.status == "error"
    assert "No such device or address: '/dev/tty'" in result.output.view


@pytest.mark.case("B029")
@pytest.mark.parametrize("tool", ["shell", "python"])
def test_b029_known_tools_are_told_not_to_ask(calls, tool):
    words = ["GIT_TERMINAL_PROMPT=0", "PIP_NO_INPUT=1", "DEBIAN_FRONTEND=noninteractive"]
    arguments = {"argv": ["env"]} if tool == "shell" else {"code": "import subprocess; subprocess.run(['env'])\nNone"}
    seen = calls.tool(tool, arguments).output.view.split("\n")
    assert [word for word in words if word not in seen] == []
