"""Python tools that look at, and change, what a call finds around it."""

from __future__ import annotations

import locale
import os
import signal
import sys
from typing import Any

from deadlined import tool


@tool(read_only=True, approval="never")
def looks() -> dict[str, Any]:
    """What a call starts from."""
    mask = os.umask(0o77)
    os.umask(mask)
    return {
        "cwd": os.getcwd(),
        "umask": mask,
        "environment": dict(os.environ),
        "signals": sorted(str(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "locale": locale.setlocale(locale.LC_ALL),
        "path": list(sys.path),
        "worker": os.readlink("/proc/self/ns/pid"),
    }


@tool(read_only=True, approval="never")
def changes(what: str) -> str:
    """Leave something behind, though it promises not to."""
    match what:
        case "cwd":
            os.makedirs("sub", exist_ok=True)
            os.chdir("sub")
        case "umask":
            os.umask(0)
        case "environment":
            os.environ["LEFT_BEHIND"] = "1"
        case "signals":
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        case "locale":
            locale.setlocale(locale.LC_ALL, "C.UTF-8" if locale.setlocale(locale.LC_ALL) == "C" else "C")
        case "path":
            sys.path.insert(0, "/left/behind")
    return what


@tool(read_only=True, approval="never")
def environment_of(pid: int) -> str:
    """What /proc says of a process's environment, as far as it may be read."""
    try:
        return open(f"/proc/{pid}/environ", "rb").read().decode(errors="replace")
    except OSError as error:
        return f"refused: {error.strerror}"


@tool(read_only=True, approval="never", secrets=["VAULT_SESSION"])
def unlocks(says: bool = False) -> str:
    """Need a secret, and perhaps give it away."""
    value = os.environ["VAULT_SESSION"]
    print("printed", value)  # noqa: T201  # what is tried
    return f"it is {value}" if says else str(len(value))


@tool(read_only=True, approval="never", secrets=["NOBODY_HAS_SET_IT"])
def lacks() -> str:
    """Need a secret that is not there."""
    return "never"


@tool(read_only=True, approval="never")
def finds_in_its_memory(turned: list[int]) -> int:
    """How often a text stands in this process's memory. It comes turned (every byte XOR 1), so as not to be there."""
    found, overlap = 0, len(turned)
    with open("/proc/self/mem", "rb", buffering=0) as memory, open("/proc/self/maps") as maps:
        for line in maps:
            where, rights = line.split()[:2]
            begin, end = (int(part, 16) for part in where.split("-"))
            if rights[0] != "r" or "[v" in line:
                continue
            try:
                memory.seek(begin)
                data = memory.read(end - begin)
            except OSError:
                continue
            first = bytes([turned[0] ^ 1])
            at = data.find(first)
            while at >= 0:
                found += [byte ^ 1 for byte in data[at : at + overlap]] == turned
                at = data.find(first, at + 1)
    return found
