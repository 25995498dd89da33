"""One hostile program against a daemon or ``exec``: played, watched, and held to "clean".

Clean: one outcome, told when the witness sees nobody of the call any more; another call in flight does not notice;
descriptors and processes of the daemon are as before.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from collections.abc import Sequence
from typing import Any

import msgspec

from deadlined import Client
from protocol import CallResult
from tests.contract.hostile_rows import Row
from tests.contract.hostile_world import GOOD, Health, Living, Watch, Witness, World, settles

LONGEST_MS = 16_000
_ORDINARY = {"second_line", "remote_work_possible", "late_result"}
"""Said by chance or as a matter of course: by `exec`, when a busy machine kept its first line from killing within 10 ms
of the deadline; of calls that were ended and may write; of a worker that told the end of what was being killed."""
_ENDED = ("killed", "crashed", "cancelled")


def play(world: World, row: Row) -> CallResult:
    """The row as a call, beside a good one. A program that is killed before it was ready is given longer."""
    before = world.health()
    while True:
        result = play_once(world, row)
        if row.ready in result.output.view:
            break
        assert row.deadline_ms < LONGEST_MS, result
        row = dataclasses.replace(row, deadline_ms=row.deadline_ms * 4)
    settles(lambda: worse(before, world.health()))
    return result


def play_once(world: World, row: Row) -> CallResult:
    """One call of it, held to the row and to what is clean at the instant of the answer."""
    watch = Watch(world.witness)
    with Client(world.socket) as client:
        watch.start()
        hostile = client.submit(row.tool, arguments(world, row), deadline_ms=row.deadline_ms, **row.more)
        good = client.submit("shell", GOOD, deadline_ms=30_000)
        result = hostile.wait()
        left = world.witness.strangers()
        watch.stop()
        judge_good(good.wait())
        assert client.handle(hostile.call).wait() == result
    still = gone(world.witness, watch, left, ended=result.status in _ENDED and result.exit is not None)
    assert still == [], (still, result)
    if not (row.ready and result.status == "not_executed"):  # on a busy machine a short deadline ends it in the queue
        check(result, row.expected)
    return result


def arguments(world: World, row: Row) -> dict[str, Any]:
    """For ``shell``, or for a tool of `hostile_rows.CONFIG` whose command is ``env``."""
    environment = world.environment(**row.environment)
    if row.tool == "shell":
        given = {"argv": world.argv(row.program), "env": environment}
        return given | ({"stdin": row.stdin} if row.stdin else {})
    return {"words": [*(f"{name}={value}" for name, value in environment.items()), *world.argv(row.program)]}


def judge_good(result: CallResult) -> None:
    """The bystander."""
    assert (result.status, result.output.view, result.notices) == ("ok", "undisturbed\n", [])


def gone(witness: Witness, watch: Watch, left: Sequence[Living], ended: bool) -> list[str]:
    """Who of the call was there when its answer came: programs, and, when it was ended, the worker that served it.

    (A command that reached its output limit is ended by its worker, which lives: no exit is said then.)
    """
    seen = watch.programs | (watch.workers if ended else set())
    return [str(one) for one in {*left, *(one for one in witness.living() if one[:2] in seen)}]


def worse(before: Health, now: Health) -> str | None:
    """What the daemon has more of than before, but threads, which end when idle for ten seconds, and ready workers, for
    each of which it holds at most four descriptors."""
    more_workers = max(0, now.workers - before.workers)
    if now.descriptors <= before.descriptors + 4 * more_workers and now.helpers <= before.helpers:
        return None
    return f"before {before}, now {now}"


def check(result: CallResult, expected: dict[str, Any]) -> None:
    """Every field that the row names; leftovers have a notice, and nothing else has one."""
    said = msgspec.to_builtins(result)
    wanted = {"left_processes": 0, **expected}
    wrong = {path: found for path, want in wanted.items() if not _fits(found := field(said, path), want)}
    assert wrong == {}, (wrong, {path: wanted[path] for path in wrong}, said)
    notices = {notice["detector"] for notice in said["notices"]}
    assert notices - _ORDINARY == ({"left_processes"} if wanted["left_processes"] else set()), notices


def field(said: Any, path: str) -> Any:
    """``"kill.confirmed"`` of a result; None where there is nothing on the way."""
    for name in path.split("."):
        said = said.get(name) if isinstance(said, dict) else None
    return said


def _fits(found: Any, wanted: Any) -> bool:
    return bool(wanted(found)) if callable(wanted) else found == wanted


def play_exec(words: Sequence[str], argv: Sequence[str], row: Row, *options: str) -> dict[str, Any]:
    """The row through ``deadlined exec``, which ends with nobody left inside; its result."""
    deadline_ms = row.deadline_ms
    while True:
        said = _exec_once([*words, "-m", "deadlined", "exec", "--deadline", f"{deadline_ms}ms", *options], argv, row)
        if (row.ready if row.exec_ready is None else row.exec_ready) in said["output"]["view"]:
            return said
        assert deadline_ms < LONGEST_MS, said
        deadline_ms *= 4


def _exec_once(words: Sequence[str], argv: Sequence[str], row: Row) -> dict[str, Any]:
    witness = Witness()
    try:
        command = witness.inside([*words, *row.exec_options, "--json", "--", *argv])
        given = {**os.environ, "DEADLINED_HOSTILE": "1", "DEADLINED_TEST_MARK": witness.mark, **row.environment}
        done = subprocess.run(command, env=given, capture_output=True, text=True, cwd="/", timeout=60)
        left = [str(one) for one in witness.living()]
    finally:
        witness.close()
    assert left == [], left
    assert "Traceback" not in done.stderr
    assert done.returncode == row.exec_code, (done.stdout, done.stderr)
    result = msgspec.json.decode(done.stdout, type=CallResult)
    if not (row.ready and result.status == "not_executed"):  # see `play_once`
        check(result, {**row.expected, **row.exec_expected})
    return json.loads(done.stdout)
