"""An agent that asks one search the same thing forty times, in other words each time, and is stopped by the daemon.

``deadlined serve &`` and then ``python examples/looping_agent.py``. The decision function stands for a model that never
learns: it sees every answer, and rewords its question. Nothing in this file counts or limits anything.
"""

from __future__ import annotations

import sys
from pathlib import Path

from deadlined import Client
from deadlined.runs import RunStopped
from protocol import CallResult

WORDS = ("refund policy", "policy on refunds", "the refund policy", "refunds policy", "refund policy please")


def decide(history: list[CallResult]) -> dict[str, object]:
    """The next search, whatever the ones before have found."""
    turn = len(history)
    return {"pattern": f"{WORDS[turn % len(WORDS)]} {turn // len(WORDS)}", "glob": "*.py"}


def main() -> int:
    """Run the loop until it is over; how it ended, on stdout."""
    history: list[CallResult] = []
    with Client() as client:
        run = client.open_run(goal="find the refund policy", workspace=str(Path(__file__).parent))
        try:
            for _ in range(40):
                run.step()
                with run.model("fake", max_in=2_000, max_out=200) as model:
                    search = decide(history)
                    model.usage(tokens_in=1_500, tokens_out=60)
                result = run.call("search", search)
                history.append(result)
                print(f"call {len(history)}: {result.status}", *(notice.text for notice in result.notices), sep="\n  ")
        except RunStopped as stopped:
            print(stopped.stop.text)
            return 0
        print("nobody stopped it")
        run.cancel()
        return 1


if __name__ == "__main__":
    sys.exit(main())
