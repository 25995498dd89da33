"""What contract tests share: a plain uid's interpreter, an oracle for "nothing is left", daemons of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from deadlined import AsyncClient, Client, _outside
from deadlined._private_daemon import PrivateDaemon, open_private_daemon

REPOSITORY = Path(__file__).resolve().parents[2]
PLAIN_UID = 61_234
"""No account, no files, and not 65534, which the kernel shows for ids that a namespace does not map."""
AS_PLAIN_UID = ["setpriv", "--reuid", str(PLAIN_UID), "--regid", str(PLAIN_UID), "--clear-groups", "env"]
"""``env`` because setpriv still has root's capabilities when it looks for its program: it finds what the uid cannot."""
MARK = "DEADLINED_TEST_MARK"
RUNS_TOOLS = f"""
[tool.runs]
kind = "python"
module = "runs_tools"
path = "{Path(__file__).parent}"
"""
"""What the configuration of a daemon says that has the tools of ``runs_tools.py``."""


@pytest.fixture(scope="session")
def plain_uid_python() -> Iterator[list[str]]:
    """The words that start this interpreter's like as a user without privileges: product and dependencies importable.

    Root's own interpreter may lie where nobody else can look, so a throw-away environment of the system's is made.
    """
    if os.getuid() != 0:
        yield [sys.executable]
        return
    home = Path(tempfile.mkdtemp(prefix="deadlined-plain-"))
    try:
        home.chmod(0o755)
        yield [*AS_PLAIN_UID, str(make_environment(home))]
    finally:
        shutil.rmtree(home)


def make_environment(home: Path) -> Path:
    """An interpreter below ``home`` that a plain uid can run, with the product and what it needs to import."""
    base = next((path for path in _interpreters() if _runs_as_plain_uid([path, "-c", ""])), None)
    if base is None:
        pytest.fail(f"no Python {sysconfig.get_python_version()} that a plain uid can run; install one in /usr/bin")
    subprocess.run([base, "-m", "venv", "--without-pip", str(home / "venv")], check=True, env={"PATH": os.defpath})
    python = home / "venv" / "bin" / "python"
    site = next((home / "venv" / "lib").glob("python*/site-packages"))
    ours = [str(REPOSITORY), *(path for path in sys.path if path.endswith("site-packages"))]
    (site / "deadlined.pth").write_text("".join(f"{path}\n" for path in ours))
    if not _runs_as_plain_uid([str(python), "-c", "import msgspec, protocol"]):
        pytest.fail(f"a plain uid cannot read {ours}; keep the checkout where everybody may look")
    return python


def _interpreters() -> list[str]:
    """Those of our version, because compiled dependencies fit one version only."""
    name = f"python{sysconfig.get_python_version()}"
    found = [
        os.path.realpath(sys.executable),
        *(shutil.which(name, path=path) for path in ("/usr/bin", "/usr/local/bin")),
    ]
    return [path for path in found if path]


def _runs_as_plain_uid(words: list[str]) -> bool:
    return subprocess.run([*AS_PLAIN_UID, *words], cwd="/", capture_output=True).returncode == 0


@pytest.fixture(params=["own uid", "plain uid"] if os.getuid() == 0 else ["own uid"])
def python(request: pytest.FixtureRequest) -> list[str]:
    """The words that start an interpreter: as whoever runs the tests, and as a user without privileges."""
    if request.param == "own uid":
        return [sys.executable]
    words: list[str] = request.getfixturevalue("plain_uid_python")
    return words


@pytest.fixture
def mark() -> str:
    """A word that marks every process of one test: put it in the environment (`MARK`) or on a command line."""
    return f"mark-{uuid.uuid4().hex}"


def alive(mark: str) -> list[str]:
    """``pid state command`` of every process but this one that carries the mark in its environment or command line.

    Zombies carry neither: this says who runs, not who waits to be reaped.
    """
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if int(pid) != os.getpid() and mark.encode() in _words_of(pid):
            found.append(f"{pid} {_words_of(pid, 'cmdline')!r}")
    return found


def _words_of(pid: str, *files: str) -> bytes:
    words = b""
    for file in files or ("cmdline", "environ"):
        try:
            words += Path(f"/proc/{pid}/{file}").read_bytes()
        except OSError:
            continue  # it ended between the listing and the look, or is a kernel thread
    return words


@pytest.fixture
def nothing_left() -> Callable[[str], None]:
    """Fails when somebody carries the mark: at once, or (``patience_s``) still after so long."""

    def check(mark: str, patience_s: float = 0.0) -> None:
        until = time.monotonic() + patience_s
        while (left := alive(mark)) and time.monotonic() < until:
            time.sleep(0.01)
        assert left == []

    return check


@pytest.fixture
def somebody_alive() -> Callable[..., list[str]]:
    """Waits until at least ``count`` processes carry the mark and returns them; fails after 20 s."""

    def wait(mark: str, count: int = 1) -> list[str]:
        until = time.monotonic() + 20
        while len(found := alive(mark)) < count:
            assert time.monotonic() < until, f"only {found} of {count}"
            time.sleep(0.01)
        return found

    return wait


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that every uid may write to (pytest's own are for their owner alone)."""
    path = Path(tempfile.mkdtemp(prefix="deadlined-test-"))
    path.chmod(0o1777)
    try:
        yield path
    finally:
        shutil.rmtree(path)


def trusting(config: str) -> str:
    """A configuration under which tools that declare nothing run without a person's word, unless it has one of its
    own about that: what asking does is shown in test_approvals.py."""
    return config if "[approval]" in config else f'{config}\n[approval]\nundeclared = "never"\n'


class TestedDaemon:
    """A daemon of a test's own. ``expected_exit``: what it must exit with at the end; None: the test ended it."""

    __test__ = False

    def __init__(self, private: PrivateDaemon, mark: str, directory: Path) -> None:
        self.private, self.mark, self.directory = private, mark, directory
        self.socket, self.pid, self.process = private.socket, private.pid, private.process
        self.expected_exit: int | None = 0
        self.processes = _outside.tree(private.pid)

    def kill(self) -> None:
        """SIGKILL, as the kernel's killer for memory does it."""
        self.expected_exit = None
        self.process.kill()
        self.process.wait()

    def check_gone(self) -> None:
        """It ended as it should, and so did all that it had started."""
        if self.expected_exit is not None:
            assert self.private.exit_code == self.expected_exit, self.private.words
        until = time.monotonic() + 5
        while left := _outside.marked(self.mark) | _outside.alive(self.processes):
            assert time.monotonic() < until, [_outside.describe(process) for process in left]
            time.sleep(0.01)


@contextmanager
def open_daemons() -> Iterator[Callable[..., TestedDaemon]]:
    """A function that starts daemons; at the end each is told to stop, must exit as expected and leave no process."""
    daemons: list[TestedDaemon] = []
    with ExitStack() as stack:

        def start(
            config: str | None = None,
            python: Sequence[str] = (sys.executable,),
            after: TestedDaemon | None = None,
            **environment: str,
        ) -> TestedDaemon:
            if after is None:
                directory = Path(tempfile.mkdtemp(prefix="dl-"))  # short: a socket's path has 107 bytes
                stack.callback(shutil.rmtree, directory, ignore_errors=True)
            else:
                directory = after.directory
            arguments = []
            if config is not None:
                (directory / "deadlined.toml").write_text(trusting(config))
                arguments = ["--config", str(directory / "deadlined.toml")]
            mark = f"daemon-{uuid.uuid4().hex}"
            environment = {MARK: mark, **environment}
            private = stack.enter_context(open_private_daemon(directory, environment, arguments, python))
            daemons.append(TestedDaemon(private, mark, directory))
            return daemons[-1]

        yield start
    for daemon in daemons:
        daemon.check_gone()


@pytest.fixture
def start_daemon() -> Iterator[Callable[..., TestedDaemon]]:
    """``start_daemon(config_text=None, python=WORDS, **environment)``: a real ``deadlined serve``, ready, in its own
    directory. ``python``: the words that become its interpreter."""
    with open_daemons() as start:
        yield start


@pytest.fixture
def daemon(start_daemon: Callable[..., TestedDaemon]) -> TestedDaemon:
    """A daemon with the built-in tools for this test alone, which may stop or kill it."""
    return start_daemon()


@pytest.fixture(scope="module")
def module_daemon(request: pytest.FixtureRequest) -> Iterator[TestedDaemon]:
    """A daemon for all tests of a module, with the module's ``CONFIG``: leave it as you found it."""
    with open_daemons() as start:
        yield start(getattr(request.module, "CONFIG", None))


@pytest.fixture
def client(module_daemon: TestedDaemon) -> Iterator[Client]:
    """A connection to the module's daemon."""
    with Client(module_daemon.socket) as connected:
        yield connected


@pytest.fixture
async def async_client(module_daemon: TestedDaemon) -> AsyncIterator[AsyncClient]:
    """As `client`, for tests that are coroutines."""
    async with AsyncClient(module_daemon.socket) as connected:
        yield connected


@pytest.fixture(scope="module")
def standing_daemon() -> Iterator[TestedDaemon]:
    """A daemon with the built-in tools for all tests of a module (a start takes a second): leave it as you found it."""
    with open_daemons() as start:
        yield start()


class CommandLine:
    """``deadlined`` as a person starts it, against one daemon."""

    def __init__(self, socket: str) -> None:
        self.environment = {**os.environ, "DEADLINED_SOCKET": socket}

    def __call__(self, *words: str, timeout: float = 60, **more: Any) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        return subprocess.run(
            self._argv(words), env=self.environment, capture_output=True, text=True, timeout=timeout, **more
        )

    def start(self, *words: str, **more: Any) -> subprocess.Popen[str]:
        """Start it, with pipes."""
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(self._argv(words), env=self.environment, **{**pipes, **more})

    def _argv(self, words: tuple[str, ...]) -> list[str]:
        return [sys.executable, "-m", "deadlined", *words]


@pytest.fixture
def deadlined(standing_daemon: TestedDaemon) -> CommandLine:
    """``deadlined(WORDS…)`` → CompletedProcess, ``deadlined.start(WORDS…)`` → Popen, against the standing daemon."""
    return CommandLine(standing_daemon.socket)


@pytest.fixture
def deadlined_alone(daemon: TestedDaemon) -> CommandLine:
    """The same against a daemon of this test's own."""
    return CommandLine(daemon.socket)


@pytest.fixture
def exec_words(python: list[str]) -> list[str]:
    """The words that start ``deadlined exec``, once as the tests' uid and once as a plain one."""
    return [*python, "-m", "deadlined", "exec"]


@pytest.fixture
def run_exec(exec_words: list[str], mark: str) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs ``deadlined exec`` with these words and the mark in its environment; returns what came of it."""

    def run(*words: str, **more: Any) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, MARK: mark, **more.pop("env", {})}
        settings = {"capture_output": True, "text": True, "cwd": "/", "timeout": 60, **more}
        return subprocess.run([*exec_words, *words], env=environment, **settings)

    return run
