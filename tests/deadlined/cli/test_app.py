import json
import re
import subprocess
import sys

import click
import pytest

from deadlined.cli import app
from deadlined.cli.app import COMMANDS, main
from protocol import _client_messages as cm
from protocol._outcomes import ErrorClass, ErrorInfo


def _commands(group, name=()):
    for word in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), word)
        if isinstance(command, click.Group):
            yield from _commands(command, (*name, word))
        yield (*name, word)


ALL = sorted(_commands(app.app))


@pytest.mark.parametrize("words", [words for words in ALL if words != ("exec",)], ids=" ".join)
def test_every_commands_help_shows_an_example(words, capsys):
    assert main([*words, "--help"]) == 0
    assert re.search(r"Examples?:\n? *(eval \"\$\()?deadlined", capsys.readouterr().out)


@pytest.mark.parametrize(
    "words", [w for w in ALL if w not in (("exec",), ("config",), ("run",), ("models",))], ids=" ".join
)
def test_every_command_speaks_json(words, capsys):
    main([*words, "--help"])
    assert "--json" in capsys.readouterr().out


def test_the_help_lists_every_command_without_importing_one():
    code = (
        "import sys; from deadlined.cli.app import main; main(['--help'])\n"
        "heavy = ('rich', 'trio', 'anyio', 'psutil', 'supervisor')\n"
        "print(sorted(m for m in sys.modules if m.startswith('deadlined.cli.') or m in heavy), file=sys.stderr)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert all(re.search(rf"^  {name} ", shown.stdout, re.M) for name in COMMANDS)
    assert shown.stderr.strip() == "['deadlined.cli._screen', 'deadlined.cli.app']"


@pytest.mark.parametrize(
    "words",
    [
        ["nonsense"],
        ["call"],
        ["call", "t", "--bogus"],
        ["call", "t", "{}", "extra"],
        *(["call", "t", "--deadline", d] for d in ("0", "0s", "nan", "-1s", "abc", "", "1", "1e300s", "5 s", "∞s")),
        ["call", "t", "@/no/such/file"],
        ["call", "t", "@/dev/null/x"],
        ["call", "t", "@\0"],
        ["output", "c_1", "--stream", "both"],
        ["run", "nonsense"],
        ["run", "step"],
        *(["run", "open", "--deadline", d] for d in ("0", "-1s", "nan", "")),
        *(
            ["run", "open", "--limit", v]
            for v in ("steps", "steps=", "=3", "steps=-1", "steps=1.5", "steps=8MiB", "stps=1")
        ),
        ["run", "open", "--limit", "wall_ms=0s"],
        ["run", "charge", "r_1", "--in", "-1"],
        ["approve", "a_1", "--scope", "everything"],
        ["approve", "a_1", "--arguments", "@/no/such/file"],
        ["effects", "close", "c_1"],
        ["completion", "tcsh"],
        ["config", "nonsense"],
        ["ps", "--socket", "/" + "x" * 200],
        ["ps", "--socket", ""],
    ],
    ids=lambda words: " ".join(words)[:40],
)
def test_a_usage_error_is_one_line_and_exit_2(words, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("DEADLINED_SOCKET", str(tmp_path / "none"))
    assert main(words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert re.fullmatch(r"deadlined: [^\n]+\n", said.err)


def test_a_bad_duration_says_what_is_allowed(capsys):
    main(["call", "t", "--deadline", "0"])
    assert "250ms, 5s, 2m, 1h" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["status"],
        ["call", "t"],
        ["wait", "c"],
        ["result", "c"],
        ["output", "c"],
        ["tools"],
        ["ps"],
        ["kill", "c"],
        ["kill", "r_1"],
        ["run", "open"],
        ["run", "wait", "r_1"],
        ["approvals"],
        ["approve", "a_1"],
        ["effects"],
        ["metrics"],
        ["config", "show"],
    ],
    ids=" ".join,
)
def test_no_daemon_is_exit_125_and_says_how_to_start_one(words, capsys, tmp_path):
    assert main([*words, "--socket", str(tmp_path / "none")]) == 125
    said = capsys.readouterr()
    assert said.out == ""
    assert f"start one with: deadlined serve --socket {tmp_path}/none" in said.err


def test_a_daemon_lost_mid_call_is_exit_125_without_a_traceback(fake_daemon, capsys):
    fake_daemon.on[cm.Submit] = lambda m: None
    assert main(["call", "t", "--socket", fake_daemon.path]) == 125
    assert re.fullmatch(r"deadlined: the daemon closed the connection [^\n]+\n", capsys.readouterr().err)


def test_a_refusal_is_exit_3(fake_daemon, capsys):
    error = ErrorInfo(ErrorClass.ARGUMENT, "unknown_call", "no call\x1b[31m\nc_9 is known")
    fake_daemon.on[cm.Wait] = lambda m: [cm.Failed(m.id, error)]
    assert main(["wait", "c_9", "--socket", fake_daemon.path]) == 3
    assert capsys.readouterr().err == "deadlined: no call[31m c_9 is known [unknown_call]\n"


def test_words_that_are_no_text_are_a_usage_error(fake_daemon, capsys):
    assert main(["call", "t", '{"x": "\udcff"}', "--socket", fake_daemon.path]) == 2
    assert main(["call", "\udcff", "--socket", fake_daemon.path]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_an_argument_larger_than_a_message_is_a_usage_error(fake_daemon, capsys, tmp_path):
    (tmp_path / "big").write_text(json.dumps({"x": "y" * (1 << 20)}))
    assert main(["call", "t", f"@{tmp_path}/big", "--socket", fake_daemon.path]) == 2
    assert "takes at most 1048576" in capsys.readouterr().err


def test_a_closed_pipe_is_quiet():
    code = "import sys; from deadlined.cli.app import main; sys.exit(main(['completion', 'fish']))"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    child.stdout.close()
    assert child.stderr.read() == b""
    assert child.wait(20) == 1
    child.stderr.close()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_no_crash(closed, fake_daemon):
    command = f'{sys.executable} -m deadlined call t - --socket "$0" {closed}'
    done = subprocess.run(["sh", "-c", command, fake_daemon.path], stdin=subprocess.DEVNULL, capture_output=True)
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr
    assert fake_daemon.heard[-1].arguments == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_name_the_command(shell, capsys):
    assert main(["completion", shell]) == 0
    assert "_DEADLINED_COMPLETE" in capsys.readouterr().out
