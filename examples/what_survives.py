"""What is still alive when the timeout has fired: the same small tree of processes under the usual tools and deadlined.

``python examples/what_survives.py`` prints one row per tool. Each tree is a program, its child, a child in a session of
its own and a daemon (setsid, double fork); they carry a mark in their names, and what is left is read from /proc: at
the moment the caller is told, and half a second later. Everything left is killed by its pid before the next row.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable

SECONDS = 1
SETTLE_S = 0.5
TREE = """
(exec -a "$1-child" sleep 60) &
setsid bash -c "exec -a $1-session sleep 60" &
(setsid bash -c "(exec -a $1-daemon sleep 60) &" </dev/null >/dev/null 2>&1 &)
exec -a "$1-program" sleep 60
"""
DEADLINED = os.path.join(os.path.dirname(sys.executable), "deadlined")


def tree(mark: str) -> list[str]:
    """The command that starts the tree."""
    return ["bash", "-c", TREE, "tree", mark]


def subprocess_run(mark: str) -> None:
    """``subprocess.run(timeout=)``."""
    try:
        subprocess.run(tree(mark), timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return


def asyncio_wait_for(mark: str) -> None:
    """``asyncio.wait_for`` around a subprocess: what a framework's own timeout does."""

    async def wait() -> None:
        process = await asyncio.create_subprocess_exec(*tree(mark))
        try:
            await asyncio.wait_for(process.wait(), SECONDS)
        except TimeoutError:
            return

    asyncio.run(wait())


def future_result(mark: str) -> None:
    """``future.result(timeout=)`` of a process pool."""
    pool = concurrent.futures.ProcessPoolExecutor(1)
    try:
        pool.submit(subprocess.call, tree(mark)).result(SECONDS)
    except TimeoutError:
        pool.shutdown(wait=False)


def timeout_k(mark: str) -> None:
    """timeout(1) with a SIGKILL behind the SIGTERM."""
    subprocess.run(["timeout", "-k", "0.1", str(SECONDS), *tree(mark)], check=False)


def timeout_unshare(mark: str) -> None:
    """timeout(1) around a pid namespace of unshare(1)."""
    namespace = ["unshare", "--pid", "--fork", "--kill-child", *(() if os.geteuid() == 0 else ("--map-current-user",))]
    subprocess.run(["timeout", "-s", "KILL", str(SECONDS), *namespace, *tree(mark)], check=False)


def deadlined_exec(mark: str) -> None:
    """``deadlined exec``."""
    program = DEADLINED if os.path.exists(DEADLINED) else shutil.which("deadlined") or "deadlined"
    subprocess.run(
        [program, "exec", "--deadline", f"{SECONDS}s", "--", *tree(mark)], check=False, stderr=subprocess.DEVNULL
    )


ROWS: tuple[tuple[str, Callable[[str], None]], ...] = (
    ("asyncio.wait_for", asyncio_wait_for),
    ("future.result(timeout=)", future_result),
    ("subprocess.run(timeout=)", subprocess_run),
    ("timeout -k", timeout_k),
    ("timeout -s KILL unshare --pid", timeout_unshare),
    ("deadlined exec", deadlined_exec),
)


def alive(mark: str) -> dict[int, str]:
    """Living processes whose name carries the mark: pid and the part of the tree."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    argument = file.read().split(b"\0")[0].decode(errors="replace")
            except OSError:
                continue
            if argument.startswith(f"{mark}-"):
                found[int(name)] = argument.removeprefix(f"{mark}-")
    return found


def row(name: str, play: Callable[[str], None]) -> str:
    """Play one and say what was left."""
    mark = f"tree{secrets.token_hex(4)}"
    play(mark)
    at_once = alive(mark)
    time.sleep(SETTLE_S)
    later = alive(mark)
    for pid in later:
        os.kill(pid, signal.SIGKILL)
    return f"{name:<32}{_say(at_once):<40}{_say(later)}"


def _say(found: dict[int, str]) -> str:
    return ", ".join(sorted(found.values())) or "nothing"


def main() -> int:
    """Print the table."""
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it complains of the child that outlives its loop
    print(f"{'':<32}{'alive when the caller is told':<40}alive {SETTLE_S:g} s later")
    for name, play in ROWS:
        print(row(name, play), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
