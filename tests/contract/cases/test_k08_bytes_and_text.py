"""Public cases, chapter K08: bytes and text: UTF-8, surrogates, ANSI, locale."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deadlined import Client
from tests.contract.conftest import TestedDaemon

pytestmark = pytest.mark.contract

ENOUGH_MS = 20_000
SNOWMAN = "\u2603"
REPLACEMENT = "\ufffd"


def python(code: str) -> dict[str, list[str]]:
    return {"argv": ["python3", "-c", code]}


def on_terminal(daemon: TestedDaemon, *words: str) -> bytes:
    """What ``deadlined WORDS`` writes to a terminal."""
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "deadlined", *words],
            env={**os.environ, "DEADLINED_SOCKET": daemon.socket},
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
        )
    finally:
        os.close(theirs)
    written = b""
    try:
        with contextlib.suppress(OSError):  # EIO: its last user has closed the other end (pty(7))
            while data := os.read(ours, 65_536):
                written += data
    finally:
        os.close(ours)
        process.wait(60)
    return written


# ---------------------------------------------------------------- B045

DROPS = "import os, time\nfor b in {text!r}.encode():\n    os.write(1, bytes([b])); time.sleep(0.02)\n"


@pytest.mark.case("B045")
@pytest.mark.parametrize("text", [SNOWMAN, "é", "\U0001f680", f"a{SNOWMAN}é\U0001f680z"])
def test_b045_a_character_that_comes_byte_by_byte_is_one_character_live_and_in_the_result(client, case_daemon, text):
    """Followed over the wire (bytes) and by the command line on a terminal (text)."""
    handle = client.submit("shell", python(DROPS.format(text=text)), deadline_ms=ENOUGH_MS, detach=True)
    shown = on_terminal(case_daemon, "output", handle.call, "--follow")
    assert shown.decode().strip() == text
    assert b"".join(handle.output()).decode() == text
    assert handle.wait().output.view == text


@pytest.mark.case("B045")
@pytest.mark.parametrize("line", [0, 40], ids=["one line", "many lines"])
def test_b045_a_mebibyte_of_cjk_is_cut_between_characters_only(client, line):
    code = f"import sys\nt = ''.join(chr(0x4e00 + n % 20000) for n in range(350_000))\nn = {line} or len(t)\n"
    code += "for at in range(0, len(t), n): sys.stdout.write(t[at:at + n] + '\\n' * (n < len(t)))\n"
    handle = client.submit("shell", python(code), deadline_ms=ENOUGH_MS)
    result = handle.wait()
    assert result.status == "ok"
    whole = b"".join(handle.output()).decode()
    assert len(whole.replace("\n", "")) == 350_000
    assert REPLACEMENT not in result.output.view
    assert 4_096 < len(result.output.view.encode()) <= 8_192
    assert result.output.view.startswith(whole[:100])
    assert result.output.view.endswith(whole[-100:])


@pytest.mark.case("B045")
def test_b045_a_kill_in_the_middle_of_a_character_leaves_one_replacement(client):
    """By the deadline, by a cancel, by the output's cap: for each length of a character, after each of its bytes."""
    cut = [
        character.encode()[:n] for character in ("é", SNOWMAN, "\U0001f680") for n in range(1, len(character.encode()))
    ]
    code = "import os, time; os.write(1, b'whole ' + {cut!r}); time.sleep(600)"
    killed = [client.submit("shell", python(code.format(cut=part)), deadline_ms=1_500) for part in cut]
    cancelled = client.submit("shell", python(code.format(cut=cut[-1])), deadline_ms=60_000)
    next(cancelled.output())
    cancelled.cancel()
    for handle in (*killed, cancelled):
        assert handle.wait().status in ("killed", "cancelled")
        assert handle.wait().output.view == f"whole {REPLACEMENT}"
    for most in range(7, 12):
        capped = client.call("shell", {"argv": ["printf", f"whole {SNOWMAN * 9}"]}, max_output_bytes=most)
        assert (capped.status, capped.reason) == ("killed", "output_limit")
        assert capped.output.view.startswith("whole ")
        assert capped.output.view.count(REPLACEMENT) == bool((most - 6) % 3)


# ---------------------------------------------------------------- B046

ODD_NAMES = """
import ctypes, os, sys
os.mkdir(b"dir\\xc3"); open(b"dir\\xc3/file\\xff", "w").close()
ctypes.CDLL(None).prctl(15, b"odd\\xc3) 1 (", 0, 0, 0)
if os.fork() == 0:
    os.chdir(b"dir\\xc3")
    os.execv("/bin/sh", [b"sh\\xc3", b"-c", b"sleep 600; : \\xed\\xa0\\xbd"])
os.write(1, b"ready")
os.waitpid(-1, 0)
"""


@pytest.mark.case("B046")
@pytest.mark.parametrize("end", ["cancel", "left behind"])
def test_b046_names_and_arguments_that_are_no_utf8_stop_neither_listing_nor_kill_nor_events(
    client, deadlined_here, end, case_daemon
):
    code = ODD_NAMES if end == "cancel" else ODD_NAMES.replace("os.waitpid(-1, 0)", "")
    handle = client.submit("shell", python(code), deadline_ms=60_000, detach=True)
    if end == "cancel":
        next(handle.output())
        (row,) = [row for row in client.processes() if row.call == handle.call]
        assert row.processes >= 3
        listed = deadlined_here("ps")
        assert (listed.returncode, handle.call in listed.stdout) == (0, True), listed.stderr
        handle.cancel()
    result = handle.wait()
    if end == "cancel":
        assert (result.status, result.kill.confirmed) == ("cancelled", True)
        assert os.listdir(os.fsencode(result.workdir)) == [b"dir\xc3"]
    else:
        assert (result.status, result.left_processes >= 1) == ("ok", True)
    shown = deadlined_here("result", handle.call, "--json")
    assert (shown.returncode in (0, 1, 5), handle.call in shown.stdout) == (True, True), shown.stderr


@pytest.fixture
def deadlined_here(case_daemon: TestedDaemon) -> Callable[..., subprocess.CompletedProcess[str]]:
    """``deadlined WORDS`` against the module's daemon."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "DEADLINED_SOCKET": case_daemon.socket}
        argv = [sys.executable, "-m", "deadlined", *words]
        return subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60)

    return run


@pytest.mark.case("B046")
def test_b046_the_file_tools_show_names_that_are_no_utf8_and_the_next_call_is_served(client, open_directory):
    for name in (b"\xc3", b"\xed\xa0\xbd", b"plain"):
        (Path(os.fsdecode(os.fsencode(open_directory) + b"/" + name))).write_text("needle\n")
    listed = client.call("list_files", {}, cwd=open_directory, deadline_ms=ENOUGH_MS)
    assert (listed.status, len(listed.content["files"])) == ("ok", 3)
    found = client.call("search", {"pattern": "needle"}, cwd=open_directory, deadline_ms=ENOUGH_MS)
    assert (found.status, len(found.content["matches"])) == ("ok", 3)


# ---------------------------------------------------------------- B048, B051

NO_UTF8 = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
"""What leaves a Python with ASCII for all text that it meets."""


@pytest.fixture(scope="module")
def odd_directory() -> Iterator[Path]:
    """A directory whose name no C locale can say."""
    with tempfile.TemporaryDirectory(prefix="dl-") as parent:
        os.chmod(parent, 0o755)
        path = Path(parent) / "данные"
        path.mkdir(mode=0o777)
        yield path


def serve_bare(start: Callable[..., TestedDaemon], **environment: str) -> TestedDaemon:
    """A daemon whose environment is this and nothing else (but where its files go)."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            patch.delenv(name)
        return start(**environment)


@pytest.mark.case("B048")
@pytest.mark.case("B051")
@pytest.mark.parametrize(
    "environment",
    [{"LC_ALL": "C"}, {}, {"PATH": "/usr/bin:/bin"}, {**NO_UTF8, "PATH": "/usr/bin:/bin"}],
    ids=["C", "empty", "env -i PATH", "ASCII"],
)
def test_b048_b051_arguments_directories_and_output_are_the_same_in_any_locale(
    start_daemon, odd_directory, environment
):
    daemon = serve_bare(start_daemon, **environment)
    with Client(daemon.socket) as client:
        echoed = client.call("shell", {"argv": ["echo", "数据-é"]}, cwd=odd_directory, deadline_ms=ENOUGH_MS)
        assert (echoed.status, echoed.output.view) == ("ok", "数据-é\n")
        printed = client.call("shell", {"argv": ["printf", "\\303\\251\\n"]}, deadline_ms=ENOUGH_MS)
        assert (printed.status, printed.output.view) == ("ok", "é\n")
        where = client.call("shell", {"argv": ["pwd"], "env": {"Ключ": "é"}}, cwd=odd_directory, deadline_ms=ENOUGH_MS)
        assert where.output.view == f"{odd_directory}\n"
        code = "import os; print('é'); os.path.basename(os.getcwd())"
        inside = client.call("python", {"code": code}, cwd=odd_directory, deadline_ms=ENOUGH_MS)
        assert (inside.status, inside.content, inside.output.view) == ("ok", "данные", "é\n"), inside.error
        text = {"path": "имя.txt", "text": "数据"}
        assert client.call("write_file", text, cwd=odd_directory, deadline_ms=ENOUGH_MS).status == "ok"
        read = client.call("read_file", {"path": "имя.txt"}, cwd=odd_directory, deadline_ms=ENOUGH_MS)
        assert (read.status, read.content["text"]) == ("ok", "数据"), read.error
        missing = client.call("shell", {"argv": ["нет"]}, cwd=odd_directory, deadline_ms=ENOUGH_MS)
        assert (missing.status, missing.exit.code) == ("error", 127)


@pytest.mark.case("B048")
@pytest.mark.parametrize("environment", [{"LC_ALL": "C"}, {}, NO_UTF8], ids=["C", "empty", "ASCII"])
def test_b048_the_command_line_is_the_same_in_any_locale(case_daemon, odd_directory, environment):
    words = ["call", "shell", '{"argv": ["sh", "-c", "echo 数据-é; pwd"]}', "--cwd", str(odd_directory)]
    called = subprocess.run(
        [sys.executable, "-m", "deadlined", *words],
        env={"DEADLINED_SOCKET": case_daemon.socket, **environment},
        capture_output=True,
        timeout=60,
    )
    assert (called.returncode, called.stdout.decode()) == (0, f"数据-é\n{odd_directory}\n"), called.stderr
    executed = subprocess.run(
        [sys.executable, "-m", "deadlined", "exec", "--json", "--", "echo", "数据-é"],
        env={"PATH": os.environ.get("PATH", os.defpath), **environment},
        cwd=odd_directory,
        capture_output=True,
        timeout=60,
    )
    assert executed.returncode == 0, executed.stderr
