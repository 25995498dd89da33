"""One cell: a process that runs one kind of payment on one peer, prints one line, and stays until stdin is closed.

It stays because a server does: what the peer has left running goes on as it would there. Only the peer's own module is
loaded, so that no framework meets another.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from importlib import import_module

from bench.compare.script import Script


def main(words: list[str]) -> None:
    """``PEER SETUP KIND``."""
    peer, setup, kind = words
    script = Script()

    def over(said: str) -> None:
        """The caller has its answer, or its exception: the run is over."""
        script.note("caller", said)
        print(json.dumps([asdict(told) for told in script.told]), flush=True)

    import_module(f"bench.compare.peers.{peer}").run(setup, kind, script, over)
    os._exit(0)  # an interpreter that ends waits for its threads; they have been judged


if __name__ == "__main__":
    main(sys.argv[1:])
