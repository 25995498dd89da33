import pytest

from deadlined.cli.app import main


@pytest.fixture
def command(fake_daemon, capsys):
    """Run a command against the scripted daemon: (exit code, stdout, stderr)."""

    def run(*words):
        code = main([*words, "--socket", fake_daemon.path])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run
