"""``python case_unkillable.py -m deadlined ARG…``: a daemon to which every kill of a process is refused while there is
a file ``refuse`` in its directory, and to whose killer every one is. As if all it runs belonged to another user.

It has to start with its own kills allowed: no daemon gets ready that cannot end the throw-away tree of its probe.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import supervisor.containment.kill as kill
import supervisor.containment.killer as killer_link
from deadlined.__main__ import main

REFUSE = Path(__file__).resolve().parents[1] / "refuse.py"
really_send, really_launch = kill.pidfd_send_signal, killer_link.launch
flag = os.path.join(os.environ["XDG_RUNTIME_DIR"], "refuse")


def send(pidfd: int, number: int) -> None:
    if os.path.exists(flag):
        raise PermissionError(1, "Operation not permitted")
    really_send(pidfd, number)


def launch(role: str, *rest: object) -> object:
    """The killer, started by a script that has its kills refused first."""
    usual = sys.executable
    with tempfile.NamedTemporaryFile("w", dir=os.path.dirname(flag), delete=False) as script:
        script.write(f'#!/bin/sh\nexec "{usual}" "{REFUSE}" kills "{usual}" "$@"\n')
    os.chmod(script.name, 0o700)
    sys.executable = script.name
    try:
        return really_launch(role, *rest)
    finally:
        sys.executable = usual


kill.pidfd_send_signal = send
killer_link.launch = launch
sys.argv = ["deadlined", *sys.argv[3:]]
sys.exit(main())
