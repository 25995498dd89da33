"""Where hostile programs are let loose: a daemon (or one ``exec``) inside a witness of the test's own.

Owns the witness, which asks no daemon anything, and how a daemon is started as another uid. What each program must
come to stands in the tests.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from deadlined._private_daemon import PrivateDaemon
from tests.contract.conftest import MARK, PLAIN_UID, trusting
from tests.contract.lower_levels import SUBREAPER, refusing

PROGRAMS = Path(__file__).resolve().parents[1] / "hostile"
ALLOWED = {"DEADLINED_HOSTILE": "1", "PYTHONDONTWRITEBYTECODE": "1"}
"""Without the first no hostile program runs."""
NO_NAMESPACES, ISOLATION_NONE = LOWER = "no namespaces", "isolation none"
"""Where calls have no pid namespaces: the host refuses them, or the configuration wants none."""
SETTLES_WITHIN_S = 15.0
GOOD = {"argv": ["sh", "-c", "sleep 0.1234; echo undisturbed"]}
"""A call that must not notice anything."""
_GOOD_WORDS = (tuple(word.encode() for word in GOOD["argv"]), (b"sleep", b"0.1234"))
_OURS = (b"deadlined", b"toolworkers")


class Living(NamedTuple):
    """A process that is not confused with a later one of its number. ``words``: its command line."""

    pid: int
    started: int
    state: str
    parent: int
    words: tuple[bytes, ...]

    @property
    def of_the_product(self) -> bool:
        """Whether it runs the product's code. One without a command line is on its way out: nobody's, by this alone."""
        words = [word for word in self.words[1:4] if word not in (b"-I", b"-m")]
        return not any(self.words) or (b"-m" in self.words[1:3] and words[0] in _OURS)

    @property
    def of_a_bystander(self) -> bool:
        """Whether it runs `GOOD`."""
        return self.words in _GOOD_WORDS

    def __str__(self) -> str:
        return f"{self.pid} {self.state} of {self.parent} {b' '.join(self.words).decode(errors='replace')!r}"


class Witness:
    """Who is alive of all that was started inside.

    A control group, where the tests may make one: nothing leaves it without root's rights over its files. Elsewhere a
    mark in the environment, which a program can wipe; ours do not.
    """

    def __init__(self) -> None:
        self.mark = f"witness-{uuid.uuid4().hex}"
        self._group: Path | None = _own_group() / f"tests.{self.mark[8:20]}"
        try:
            self._group.mkdir()
        except OSError:
            self._group = None

    @property
    def is_group(self) -> bool:
        """Whether it sees everybody."""
        return self._group is not None

    def inside(self, words: Sequence[str]) -> list[str]:
        """The words that start ``words`` inside."""
        if self._group is None:
            return list(words)
        join = 'echo $$ > "$1" && shift && exec "$@"'
        return ["/bin/sh", "-c", join, "join", f"{self._group}/cgroup.procs", *words]

    def living(self) -> list[Living]:
        """Everybody inside but the dead that wait to be reaped."""
        return [one for pid in self._pids() if (one := _look(pid)) is not None]

    def strangers(self) -> list[Living]:
        """Whose program is none of the product's own and not the bystander's: the programs of hostile calls."""
        return [one for one in self.living() if not one.of_the_product and not one.of_a_bystander]

    def close(self) -> list[Living]:
        """Who is still there; ends them and the group."""
        left = self.living()
        if self._group is None:
            return left
        (self._group / "cgroup.kill").write_text("1")
        for _ in range(1_000):
            with contextlib.suppress(OSError):
                for below in sorted(self._groups(), key=lambda path: -len(path.parts)):
                    below.rmdir()
                break
            time.sleep(0.01)
        return left

    def _groups(self) -> list[Path]:
        assert self._group is not None
        return [Path(where) for where, _, _ in os.walk(self._group)]  # passes over what has just gone

    def _pids(self) -> Iterator[int]:
        if self._group is None:
            yield from _marked(self.mark)
            return
        for group in self._groups():
            with contextlib.suppress(OSError):  # a worker's group that has just gone
                yield from map(int, (group / "cgroup.procs").read_text().split())


def _own_group() -> Path:
    """Ours in the v2 hierarchy, which may be mounted beside v1's."""
    rows = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    mount = next((row[1] for row in rows if row[2] == "cgroup2"), "/nowhere")
    own = next((line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line[:3] == "0::"), "/")
    return Path(mount, own.lstrip("/"))


def _look(pid: int) -> Living | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        words = tuple(Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0"))
    except OSError:
        return None
    return None if stat[0] in (b"Z", b"X") else Living(pid, int(stat[19]), stat[0].decode(), int(stat[1]), words)


def _marked(mark: str) -> Iterator[int]:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if mark.encode() in Path(f"/proc/{pid}/environ").read_bytes():
                yield int(pid)


def _daemons_and_zygotes(living: list[Living]) -> set[int]:
    """Who may become the parent of somebody who dies, and serves no call: daemons and their children."""
    daemons = {one.pid for one in living if b"serve" in one.words}
    return daemons | {one.pid for one in living if one.parent in daemons}


class Watch(threading.Thread):
    """Looks again and again while a call runs, so that what was there is known when it should be gone."""

    def __init__(self, witness: Witness) -> None:
        super().__init__(daemon=True)
        self._witness, self._over = witness, threading.Event()
        self.programs: set[tuple[int, int]] = set()
        self.workers: set[tuple[int, int]] = set()

    def run(self) -> None:
        """Until `stop`."""
        while not self._over.wait(0.03):
            living = self._witness.living()
            strangers = [one for one in living if not one.of_the_product and not one.of_a_bystander]
            above = {one.parent for one in strangers} - _daemons_and_zygotes(living)
            self.programs |= {one[:2] for one in strangers}
            self.workers |= {one[:2] for one in living if one.pid in above and one.of_the_product}

    def stop(self) -> None:
        """The call is over."""
        self._over.set()
        self.join()


class Health(NamedTuple):
    """What must be as before. ``descriptors`` is -1 where only root may count them."""

    descriptors: int
    threads: int
    helpers: int
    workers: int


@dataclass
class World:
    """A daemon among hostile programs. ``kind`` says whose it is, ``python`` starts programs as its uid can."""

    kind: str
    witness: Witness
    private: PrivateDaemon
    directory: Path
    python: str
    uid: int
    environment_names: frozenset[str] = frozenset()
    """What the daemon itself was started with."""
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def socket(self) -> str:
        """Where it listens."""
        return self.private.socket

    @property
    def pid(self) -> int:
        """The daemon's own process."""
        return self.private.pid

    @property
    def log(self) -> str:
        """What it wrote to stderr so far."""
        return (self.directory / "daemon.log").read_text(errors="replace")

    def health(self) -> Health:
        """Its descriptors and threads, its own children, and all that descends from these."""
        threads = len(os.listdir(f"/proc/{self.pid}/task"))
        try:
            descriptors = len(os.listdir(f"/proc/{self.pid}/fd"))
        except PermissionError:
            descriptors = -1
        living = self.witness.living()
        helpers = sum(one.parent == self.pid for one in living)
        return Health(descriptors, threads, helpers, len(living) - helpers - 1)

    def settled(self) -> Health:
        """The same once it does not change any more."""
        last, since = self.health(), time.monotonic()
        while time.monotonic() - since < 0.5:
            time.sleep(0.02)
            if (now := self.health()) != last:
                last, since = now, time.monotonic()
        return last

    def resident_kib(self) -> int:
        """Memory of the daemon's own process."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0])

    def argv(self, program: str) -> list[str]:
        """The words that start a program of tests/hostile."""
        script = PROGRAMS / f"{program}.sh"
        return ["/bin/sh", str(script)] if script.exists() else [self.python, str(PROGRAMS / f"{program}.py")]

    def environment(self, **more: str) -> dict[str, str]:
        """What such a program needs."""
        return {**ALLOWED, MARK: self.witness.mark, **more}


def settles(look: object, until_s: float = SETTLES_WITHIN_S) -> None:
    """Wait until ``look()`` gives nothing to complain of; fail with the last complaint."""
    until = time.monotonic() + until_s
    while (complaint := look()) and time.monotonic() < until:  # type: ignore[operator]
        time.sleep(0.02)
    assert not complaint, complaint


@contextlib.contextmanager
def open_world(kind: str, words: Sequence[str], config: str, **environment: str) -> Iterator[World]:
    """``deadlined serve`` by the interpreter ``words``; at the end it stops with 0 and leaves nobody inside."""
    directory = Path(tempfile.mkdtemp(prefix="dlh-"))
    uid = PLAIN_UID if os.getuid() == 0 and "setpriv" in words else os.getuid()
    witness = Witness()
    try:
        (directory / "deadlined.toml").write_text(
            trusting(config.replace("[daemon]\n", f"[daemon]\nstate_dir = '{directory}/s'\n"))
        )
        os.chown(directory, uid, -1)
        given = _environment(directory, witness, environment)
        private = _start(directory, witness, words, given)
        try:
            yield World(kind, witness, private, directory, words[-1], uid, frozenset(given))
        finally:
            code = private.stop()
        assert code == 0, (code, private.words)
    finally:
        left = witness.close()
        shutil.rmtree(directory, ignore_errors=True)
    assert [str(one) for one in left] == []


def _environment(directory: Path, witness: Witness, more: dict[str, str]) -> dict[str, str]:
    places = {f"XDG_{name}": str(directory / name.lower()) for name in ("STATE_HOME", "CACHE_HOME", "DATA_HOME")}
    own = {**places, "XDG_RUNTIME_DIR": str(directory), "HOME": str(directory), **ALLOWED, MARK: witness.mark, **more}
    return {name: value for name, value in os.environ.items() if name != "DEADLINED_SOCKET"} | own


def _start(directory: Path, witness: Witness, words: Sequence[str], given: dict[str, str]) -> PrivateDaemon:
    socket, log = str(directory / "socket"), directory / "daemon.log"
    config = str(directory / "deadlined.toml")
    argv = [*words, "-m", "deadlined", "serve", "--socket", socket, "--config", config]
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            witness.inside(argv), env=given, cwd=directory, stdout=subprocess.PIPE, stderr=stderr
        )
    private = PrivateDaemon(socket, process, log)
    assert process.stdout is not None
    with process.stdout:
        if not process.stdout.readline().startswith(b"ready"):
            private.stop()
            pytest.fail(f"the daemon did not become ready: {private.words}")
    return private


def whose() -> list[str]:
    """The uids that daemons are started as."""
    return ["own uid", "plain uid"] if os.getuid() == 0 else ["own uid"]


def interpreter(kind: str, request: pytest.FixtureRequest) -> list[str]:
    """The words that start Python as ``kind`` says."""
    return request.getfixturevalue("plain_uid_python") if "plain uid" in kind else [sys.executable]


def lowered(kind: str, words: list[str], config: str) -> tuple[list[str], str]:
    """Words and configuration of a daemon where ``kind`` names one of `LOWER`; others come back as they are."""
    if NO_NAMESPACES in kind:
        return refusing(SUBREAPER, words), config
    return words, config.replace(
        "[daemon]\n", '[daemon]\nisolation = "none"\n' if ISOLATION_NONE in kind else "[daemon]\n"
    )
