"""Entry of the far side's processes: ``python -I -m toolworkers zygote FD CONFIG [FD]``, ``killer FD MEMFD EVENTFD``.

CONFIG is the number of a descriptor to read JSON from, or the JSON itself (which everybody on the host can read in
/proc, so a daemon uses a descriptor). The second FD has the values of the daemon's environment (`_lent`).

Each branch imports its own module only: the killer must start with nothing but the standard library in it.
Exit code 2: started by hand with words that mean nothing here; 70: the process itself broke.
"""

from __future__ import annotations

import sys

_USAGE = "toolworkers is started by the daemon: zygote FD CONFIG [FD] | killer FD MEMFD EVENTFD"


def main(arguments: list[str]) -> int:
    """Run the process that ``arguments`` name. The zygote's branch never returns."""
    match arguments:
        case ["killer", control, table, bell] if control.isdigit() and table.isdigit() and bell.isdigit():
            from toolworkers import _killer

            return _killer.main(int(control), int(table), int(bell))
        case ["zygote", control, config] if control.isdigit():
            from toolworkers import _zygote

            _zygote.main(int(control), config)
        case ["zygote", control, config, lent] if control.isdigit() and lent.isdigit():
            from toolworkers import _zygote

            _zygote.main(int(control), config, int(lent))
    print(_USAGE, file=sys.stderr)  # noqa: T201  # the one thing a person may see of this module
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
