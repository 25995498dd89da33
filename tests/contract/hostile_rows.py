"""Hostile programs as commands: how each is played, and what a result must say of it.

The words are those a caller reads. What a row leaves out is the same for all and stands in `test_hostile`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

TIME_BUDGET = {"status": "killed", "reason": "time_budget", "exit.signal": "SIGKILL", "kill.confirmed": True}
LEAVES = {"status": "ok", "reason": None, "exit.code": 0, "kill": None, "output.view": "done\n"}
FLOOD = "a line of a flood\n"


@dataclass(frozen=True)
class Row:
    """One program. ``deadline_ms`` short: it does not end, and is to be given longer until it has said ``ready``.

    ``expected``: dotted fields of the result, each a value or a test of it. ``exec_code`` is what `exec` exits with,
    None where the row is not for `exec`; ``exec_ready`` and ``exec_expected`` what differs there.
    """

    program: str
    expected: dict[str, Any]
    deadline_ms: int = 20_000
    ready: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)
    stdin: str = ""
    tool: str = "shell"
    exec_code: int | None = None
    exec_ready: str | None = None
    exec_options: tuple[str, ...] = ()
    exec_expected: dict[str, Any] = field(default_factory=dict)
    name: str = ""

    def __str__(self) -> str:
        return self.name or self.program


def never_ends(program: str, ready: str = "ready", **more: Any) -> Row:
    """It is there until it is killed."""
    return Row(program, TIME_BUDGET, 500, ready, exec_code=124, **more)


def leaves(program: str, count: int) -> Row:
    """It ends well and does not go alone."""
    return Row(program, {**LEAVES, "left_processes": count}, exec_code=0)


def crashes(how: str, **expected: Any) -> Row:
    """It dies in the middle of a line; a command's death is its answer."""
    given = {"status": "error", "reason": None, "output.view": begins("half a lin"), **expected}
    code = expected["exit.code"] or 128 + {"SIGSEGV": 11, "SIGABRT": 6, "SIGKILL": 9}[expected["exit.signal"]]
    return Row("crashes", given, environment={"HOSTILE_HOW": how}, exec_code=code, name=f"crashes by {how}")


LIMITED = """
[tool.{name}]
kind = "command"
argv = ["env", "{{words...}}"]
[tool.{name}.arguments]
words = "[str]"
[tool.{name}.limits]
{limit}
"""
QUARANTINE = """
[quarantine]
poison_losses = "none"
warn_keys = "none"
serial_keys = "none"
breaker_keys = "none"
"""
"""None: every call here deserves it, and the next is to be played."""
DAEMON = "[daemon]\nin_flight = 4\nspares = 1\nidle_worker_ms = 1000\n" + QUARANTINE
CONFIG = DAEMON + "".join(
    LIMITED.format(name=name, limit=limit)
    for name, limit in {
        "small_tmp": 'tmp_bytes = "16MiB"',
        "few_processes": "pids = 20",
        "little_memory": 'memory_bytes = "64MiB"',
    }.items()
)
"""The built-in tools, and ``env`` under limits that are quickly reached."""


def begins(text: str) -> Callable[[Any], bool]:
    """A test of a field."""
    return lambda value: isinstance(value, str) and value.startswith(text)


FILLS_TMP = {"HOSTILE_MIB": "30", "HOSTILE_IN": "TMPDIR"}

CORE = [
    never_ends("ignores_signals"),
    never_ends("sleeps_in_c"),
    never_ends("stops_itself"),
    never_ends("spins"),
    never_ends("hangs_at_exit"),
    never_ends("bombs"),
    never_ends("never_reads"),
    never_ends("hogs_descriptors", ready="refused 24 within its limit", exec_ready="refused 24"),
    never_ends("hogs_memory", ready="held 6"),
    leaves("daemonises", 1),
    leaves("holds_stdout", 1),
    leaves("leaves_children", 3),
    crashes("segfault", **{"exit.code": None, "exit.signal": "SIGSEGV"}),
    Row(
        "floods",
        {
            "status": "killed",
            "reason": "output_limit",
            "output.bytes": 1 << 20,
            "output.truncated": True,
            "output.view": begins(FLOOD),
        },
        more={"max_output_bytes": 1 << 20},
        exec_code=1,
        exec_options=("--max-output", "1MiB"),
    ),
    Row(
        "fills_the_disk",
        {"status": "ok", "output.view": "filled 30\n", "workdir": None},
        environment={"HOSTILE_MIB": "30"},
    ),
]
"""What every level must end, count and say in the same way."""

MEMORY_LIMIT = Row("hogs_memory", {"status": "killed", "reason": "memory_limit"}, tool="little_memory")
NO_MEMORY_LIMIT = replace(never_ends("hogs_memory", ready="held 6"), tool="little_memory")
"""Where the daemon has no memory controller."""

ROWS = [
    *CORE,
    crashes("abort", **{"exit.code": None, "exit.signal": "SIGABRT"}),
    crashes("kill", **{"exit.code": None, "exit.signal": "SIGKILL"}),
    crashes("exit", **{"exit.code": 255, "exit.signal": None}),
    crashes("raise", **{"exit.code": 1, "exit.signal": None}),
    replace(never_ends("never_reads"), stdin="x" * 900_000, exec_code=None, name="never_reads what it is given"),
    Row(
        "fills_the_disk",
        {"status": "error", "exit.code": 3, "output.view": "refused 28\n"},
        environment=FILLS_TMP,
        tool="small_tmp",
        name="fills_the_disk beyond its quota",
    ),
    Row(
        "bombs",
        TIME_BUDGET,
        500,
        "refused 11",
        tool="few_processes",
        name="bombs beyond their limit",
    ),
]
