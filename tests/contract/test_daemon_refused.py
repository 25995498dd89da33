"""Hosts that do not let a daemon be: one line that says why and what to change, exit 125, nothing left."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Callable

import pytest

from tests.contract.test_exec_world import refuse_namespaces

pytestmark = pytest.mark.contract


@pytest.fixture
def serve(python, open_directory, mark, nothing_left) -> Callable[..., str]:
    """Starts a daemon that cannot live, as the tests' uid and as a plain one; its one line."""

    def run(preexec_fn: Callable[[], None], configuration: str = "") -> str:
        open_directory.chmod(0o1777)
        (open_directory / "deadlined.toml").write_text(configuration)
        run_directory = open_directory / "run"
        own = {"XDG_STATE_HOME": str(run_directory), "HOME": str(run_directory), "DEADLINED_TEST_MARK": mark}
        words = [*python, "-c", _START, str(run_directory)]
        done = subprocess.run(
            words, env=os.environ | own, cwd="/", preexec_fn=preexec_fn, capture_output=True, text=True, timeout=60
        )
        nothing_left(mark)
        assert (done.returncode, done.stdout) == (125, "")
        assert done.stderr.count("\n") == 1, done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr

    return run


_START = """
import os, sys
os.mkdir(sys.argv[1], 0o700)
os.execv(sys.executable, [sys.executable, "-m", "deadlined", "serve", "--socket", sys.argv[1] + "/s",
    "--config", sys.argv[1] + "/../deadlined.toml"])
"""


@pytest.mark.parametrize("demand", ["min_containment = 'pidns'", "min_isolation = 'contain'"])
def test_a_host_without_namespaces_is_told_what_is_missing_where_they_are_demanded(serve, demand):
    said = serve(refuse_namespaces, f"[daemon]\n{demand}\n")
    assert "is demanded" in said
    assert "no pid namespace" in said
    assert "user namespaces" in said


@pytest.mark.parametrize("limit", [16, 40, 200])
def test_a_low_limit_of_open_files_is_told_with_what_is_needed(serve, limit):
    said = serve(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
    assert f"only {limit} files" in said
    assert "640" in said
