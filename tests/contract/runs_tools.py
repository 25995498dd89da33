"""Tools for the tests of runs: answers that stay the same, that change, that are slow, and that change the world."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from deadlined import Context, tool
from toolworkers import ToolError


@tool(read_only=True)
def page(number: int) -> str:
    """The same page for the same number, whenever it is asked for."""
    return f"text of page {number}"


@tool(read_only=True)
def lookup(query: str) -> str:
    """Finds nothing, whatever is asked."""
    return "no results"


@tool(read_only=True)
def now() -> int:
    """Another answer each time."""
    return time.monotonic_ns()


@tool(read_only=True)
def fails(number: int) -> str:
    """Fails in the same way, whatever is asked."""
    raise ToolError("it cannot be done", code="refused")


@tool(read_only=True, progress="self")
def press(key: str, shows: str, ctx: Context) -> int:
    """Another answer each time; what it has reached is what the screen shows."""
    ctx.fingerprint(shows)
    return time.monotonic_ns()


@tool(read_only=True, timeout_ms=30_000)
def hangs() -> None:
    """Never answers."""
    time.sleep(600)


@tool(read_only=True)
def naps(ms: int) -> int:
    """Answers in a while."""
    time.sleep(ms / 1_000)
    return ms


@tool(approval="never")
def append(path: str, line: str) -> int:
    """Appends a line to a file; what is returned is how many it has."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(line + "\n")
    return len(Path(path).read_text(encoding="utf-8").splitlines())


@tool(approval="never")
def slow_append(path: str, line: str) -> int:
    """As append, in its time."""
    time.sleep(0.3)
    return append(path, line)


@tool(read_only=True)
def count_lines(directory: str) -> int:
    """How many lines all files of a directory have."""
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in Path(directory).iterdir())


@tool(read_only=True)
def sleeps_in_c() -> None:
    """Waits inside C."""
    time.sleep(600)


@tool(read_only=True)
def spins_in_c() -> int:
    """Computes inside C and holds the interpreter."""
    return sum(range(10**12))


@tool(read_only=True)
def backtracks() -> bool:
    """Looks for what is not there, in more ways than there is time for."""
    return re.match(r"(a+)+$", "a" * 60 + "b") is not None


@tool
def write_asking(path: str) -> None:
    """Declares nothing, so a person is asked."""
    append(path, "written")


@tool(read_only=True, term_grace_ms=400)
def heeds(ctx: Context) -> None:
    """Says when it is told that its time is up."""
    while not ctx.cancelled:
        time.sleep(0.01)
    print("told", flush=True)  # noqa: T201  # its output is looked at


@tool(read_only=True)
def prints(number: int) -> int:
    """Prints a few bytes, others each time."""
    print("number", number)  # noqa: T201  # its output is counted
    return number


@tool(approval="never", timeout_ms=1_000)
def append_and_stall(path: str, line: str) -> None:
    """Appends a line to a file, and never says so; it has little time."""
    append(path, line)
    time.sleep(600)


@tool(read_only=True)
def total(prices: list[int], note: str) -> str:
    """Adds up, and says the note as it came."""
    return f"{sum(prices)} {note}"


@tool(read_only=True)
def said(number: int = 0, flag: bool = False, text: str = "") -> str:
    """Says what it was given, as Python has it."""
    return f"{number!r} {flag!r} {text!r}"


@tool(read_only=True)
def half() -> str:
    """A text that nobody can encode, as the name of a file may be."""
    return "half \ud800"


@tool(read_only=True)
def breaks(how: str) -> None:
    """Ends in a way that says nothing."""
    match how:
        case "empty":
            raise ValueError
        case "interrupt":
            raise KeyboardInterrupt
        case "exit":
            raise SystemExit
        case "generator":
            raise GeneratorExit
    os._exit(9)
