"""Public cases, chapter K08: bytes and text: UTF-8, surrogates, ANSI, locale."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
import tempfile
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deadlined import Client
from tests.contract.cases.by_deadline import killed_after
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


# ---------------------------------------------------------------- B044


@pytest.mark.case("B044")
@pytest.mark.parametrize(
    ("raw", "view", "valid"),
    [
        (b"head\xff\xfe\x00tail", f"head{REPLACEMENT * 3}tail", False),
        (b"caf\xe9 in Latin-1\n", f"caf{REPLACEMENT} in Latin-1\n", False),
        (b"half \xed\xa0\xbd of a pair\n", f"half {REPLACEMENT * 3} of a pair\n", False),
        ("caf\u00e9 \u2603\n".encode(), "caf\u00e9 \u2603\n", True),
    ],
    ids=["the report's", "Latin-1", "surrogate", "valid"],
)
@pytest.mark.parametrize("code", [0, 3])
def test_b044_bytes_that_are_no_utf8_are_shown_as_text_flagged_and_kept(client, raw, view, valid, code):
    text = "".join(f"\\{byte:03o}" for byte in raw)
    handle = client.submit("shell", {"argv": ["sh", "-c", f"printf '{text}'; exit {code}"]}, deadline_ms=ENOUGH_MS)
    result = handle.wait()
    assert (result.status, result.exit.code) == ("error" if code else "ok", code)
    assert result.output.view == view
    assert result.output.invalid_utf8 is not valid
    assert b"".join(handle.output()) == Path(result.output.path).read_bytes() == raw


@pytest.mark.case("B044")
@pytest.mark.case("B047")
@pytest.mark.parametrize(
    ("said", "view", "valid"),
    [
        ("head\\377\\376\\000tail", f"head{REPLACEMENT * 3}tail", False),
        ("whole \\342\\230", f"whole {REPLACEMENT}", False),
        ("\\033[2K\\rpull 99%%\\033[2K\\rpull 100%%\\n\\033[31mFAILED\\033[0m\\n", "pull 100%\nFAILED\n", True),
    ],
    ids=["no text", "cut", "progress"],
)
def test_b044_b047_exec_says_the_same_of_such_bytes(run_exec, said, view, valid):
    done = run_exec("--json", "--", "printf", said)
    output = json.loads(done.stdout)["output"]
    assert (done.returncode, output["view"], output["invalid_utf8"]) == (0, view, not valid)


# ---------------------------------------------------------------- B045

DROPS = "import os, time\nfor b in {text!r}.encode():\n    os.write(1, bytes([b])); time.sleep(0.15)\n"


@pytest.mark.case("B045")
@pytest.mark.parametrize("text", [SNOWMAN, f"aé{SNOWMAN}\U0001f680"])
def test_b045_a_character_that_comes_byte_by_byte_is_one_character_live_and_in_the_result(client, module_daemon, text):
    """Followed over the wire (bytes) and by the command line on a terminal (text)."""
    handle = client.submit("shell", python(DROPS.format(text=text)), deadline_ms=ENOUGH_MS, detach=True)
    shown = on_terminal(module_daemon, "output", handle.call, "--follow")
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


CUT = [character.encode()[:n] for character in ("é", SNOWMAN, "\U0001f680") for n in range(1, len(character.encode()))]
"""Each beginning of a character of two, three and four bytes."""


@pytest.mark.case("B045")
@pytest.mark.parametrize("cut", CUT, ids=[part.hex() for part in CUT])
def test_b045_a_kill_in_the_middle_of_a_character_leaves_one_replacement(client, cut):
    code = f"import os, time; os.write(1, b'whole ' + {cut!r}); time.sleep(600)"
    handle = client.submit("shell", python(code), deadline_ms=60_000)
    assert next(handle.output()) == b"whole " + cut
    handle.cancel()
    assert (handle.wait().status, handle.wait().output.view) == ("cancelled", f"whole {REPLACEMENT}")


@pytest.mark.case("B045")
def test_b045_a_deadline_in_the_middle_of_a_character_leaves_one_replacement(client, open_directory):
    point = open_directory / "printed"
    arguments = {"argv": ["sh", "-c", f"printf 'whole \\342\\230'; touch {point}; sleep 600"]}
    assert killed_after(point, client, "shell", arguments).wait().output.view == f"whole {REPLACEMENT}"


@pytest.mark.case("B045")
def test_b045_a_cap_in_the_middle_of_a_character_leaves_one_replacement(client):
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
    client, deadlined_here, end, module_daemon
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
def deadlined_here(module_daemon: TestedDaemon) -> Callable[..., subprocess.CompletedProcess[str]]:
    """``deadlined WORDS`` against the module's daemon."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "DEADLINED_SOCKET": module_daemon.socket}
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


# ---------------------------------------------------------------- B047

PULLS = """
import sys
E = chr(27); R = chr(13)
for i in range(101): sys.stdout.write({progress})
print(); print(E + "[31mFAILED" + E + "[0m")
"""
STEERING = "\x1b]0;title\x07\x1b[2J\x1b[10;10Hwhere\x1bP1$r\x1b\\\x9b2Kam\x08\x08I\x7f\n"


@pytest.mark.case("B047")
@pytest.mark.parametrize(
    "progress", ['E + "[2K" + R + "pull %d%%" % i', '"pull %d%%" % i + R', 'R + "pull %3d%%" % i + E + "[K"']
)
def test_b047_progress_that_overwrites_itself_is_its_last_line_and_every_byte_is_kept(client, progress):
    handle = client.submit("shell", python(PULLS.format(progress=progress)), deadline_ms=ENOUGH_MS)
    result = handle.wait()
    assert result.output.view == "pull 100%\nFAILED\n"
    raw = b"".join(handle.output())
    assert (raw.count(b"pull"), raw.count(b"\x1b[31m"), len(raw)) == (101, 1, result.output.bytes)


def steering(text: str) -> set[str]:
    """The characters in it that can move a terminal's cursor, set its title, ring its bell."""
    return {character for character in text if character not in "\n\t" and unicodedata.category(character) == "Cc"}


@pytest.mark.case("B047")
@pytest.mark.parametrize("words", [["output"], ["result"], ["result", "--json"]])
def test_b047_nothing_that_a_tool_says_steers_the_terminal_that_shows_it(client, module_daemon, words):
    handle = client.submit("shell", {"argv": ["printf", "%s", STEERING]}, deadline_ms=ENOUGH_MS, detach=True)
    assert handle.wait().status == "ok"
    assert not steering(handle.wait().output.view)
    shown = on_terminal(module_daemon, words[0], handle.call, *words[1:]).decode()
    assert not steering(shown.replace("\r\n", "\n"))
    assert b"".join(handle.output()).decode() == STEERING


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
    [NO_UTF8, {}, {"PATH": "/usr/bin:/bin"}],
    ids=["C", "empty", "env -i PATH"],
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
@pytest.mark.parametrize("environment", [{"LC_ALL": "C"}, {}], ids=["C", "empty"])
def test_b048_the_command_line_is_the_same_in_any_locale(module_daemon, odd_directory, environment):
    words = ["call", "shell", '{"argv": ["sh", "-c", "echo 数据-é; pwd"]}', "--cwd", str(odd_directory)]
    called = subprocess.run(
        [sys.executable, "-m", "deadlined", *words],
        env={"DEADLINED_SOCKET": module_daemon.socket, **environment},
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
