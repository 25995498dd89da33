"""``python case_unkillable.py FLAG -m deadlined ARG…``: a daemon to which every kill of a process is refused while the
file FLAG exists, and to whose killer every one ever is. As if all it runs belonged to another user.

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
flag, really_send, really_launch = sys.argv[1], kill.pidfd_send_signal, killer_link.launch


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
sys.argv = ["deadlined", *sys.argv[4:]]
sys.exit(main())
