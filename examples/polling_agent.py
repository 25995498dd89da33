"""An agent that looks at the same file sixty times, finds it changed each time, and is left alone.

``deadlined serve &`` and then ``python examples/polling_agent.py``. The same call over and over is no loop as long as
its answer changes: what is counted is the same call with the same outcome.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from deadlined import Client
from deadlined.runs import RunStopped

POLLS = 60


def main() -> int:
    """Poll until the job is done; how it ended, on stdout."""
    with tempfile.TemporaryDirectory() as directory, Client() as client:
        status = Path(directory) / "status"
        run = client.open_run(goal="wait for the job", profile="migration", workspace=directory)
        try:
            for poll in range(1, POLLS + 1):
                status.write_text(f"{poll} of {POLLS} parts are done\n", encoding="utf-8")
                run.step()
                result = run.call("read_file", {"path": str(status)})
                if result.status != "ok" or result.notices:
                    print(f"poll {poll}: {result.status}", *(notice.text for notice in result.notices))
        except RunStopped as stopped:
            print(stopped.stop.text)
            return 1
        stop = run.finish("all parts are done")
        print(getattr(stop, "text", stop))
        return 0


if __name__ == "__main__":
    sys.exit(main())
