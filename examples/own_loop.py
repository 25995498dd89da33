"""A decision function in the place of a model: ``deadlined serve &``, then ``python examples/own_loop.py``.

The loop, its budget, its calls and their ends are the daemon's all the same; here is only what to do next.
"""

from __future__ import annotations

import sys
from pathlib import Path

from deadlined import DeadlinedError
from deadlined.agent import Decision, Request, call, run_agent


def decide(request: Request) -> Decision:
    """One decision a round: look, count, answer. What was said so far is in the request."""
    results = [message.text for message in request.messages if message.role == "tool"]
    match len(results):
        case 0:
            return [call("list_files", glob="*.py"), call("search", pattern="^def ", glob="*.py")]
        case 2:
            return call("shell", argv=["sh", "-c", "cat -- *.py | wc -l"])
        case _:
            lines = next(line for line in results[-1].splitlines() if line.strip().isdigit())
            return call("finish", answer=f"{lines.strip()} lines of Python")


def main() -> int:
    """Run it to its end; the answer on stdout."""
    here, limits = str(Path(__file__).parent), {"steps": 5}
    try:
        stop, _ = run_agent("how much Python is here?", decide, workspace=here, deadline_ms=60_000, limits=limits)
    except DeadlinedError as error:
        sys.exit(str(error))
    print(stop.answer, f"({stop.text})")
    return 0 if stop.outcome == "done" else 1


if __name__ == "__main__":
    sys.exit(main())
