"""What a call can do to its daemon and around it, attack by attack: tried by hostile programs, told in one word each.

Owns the attacks and how they are told. What holds where is `HELD`, which `docs/operations.md` shows to users; the
contract test says whether it is so.
"""

from __future__ import annotations

import os
import socket
import tempfile

from deadlined import Client
from tests.contract.hostile_world import ISOLATION_NONE, LOWER, NO_NAMESPACES, World

CANARY = "DEADLINED_TEST_CANARY"
HANDED_ON = {"PATH", "LANG", "TZ", "TERM", "SHELL", "USER", "LOGNAME", "HOME", "TMPDIR"}
"""What a command may have of the daemon's environment, or under its names."""
MADE_FOR_IT = {"PYTHONUNBUFFERED", "DEBIAN_FRONTEND", "GCM_INTERACTIVE", "GIT_TERMINAL_PROMPT", "PIP_NO_INPUT"}
"""Values of the product's own, whatever the daemon has."""
CARRIED = {"BASH_ENV": "/nowhere", "SSH_AUTH_SOCK": "/nowhere", "GIT_DIR": "/nowhere", "DATABASE_PASSWORD": "x"}
"""What the daemon is started with so that it has something to hand on."""
_BORN_WITH = {
    "descriptors": "clean",
    "stdin": "/dev/null",
    "terminal": "none",
    "session": "own",
    "blocked": "[]",
    "ignored": "[13, 25]",  # Python's own
}


def attempted(world: World) -> dict[str, str]:
    """Attack → ``yes`` (it worked) or ``no``. The last one removes the socket's file: do not use the daemon again."""
    said: dict[str, str] = {}
    with (
        tempfile.TemporaryDirectory(prefix="dl-elsewhere-") as elsewhere,
        socket.create_server(("127.0.0.1", 0)) as port,
    ):
        os.chown(elsewhere, world.uid, -1)
        target = {"HOSTILE_TARGET_PID": str(world.pid), "HOSTILE_NO_NAMESPACE": "1"}
        there = {"HOSTILE_PLACE": elsewhere, "HOSTILE_PORT": str(port.getsockname()[1])}
        programs = {
            "kills_the_supervisor": {**target, "HOSTILE_SIGNALS": "SIGCONT"},  # as good as any, and does no harm
            "traces_others": target,
            "reads_environments": {"HOSTILE_CANARY": str(world.notes[CANARY])[::-1]},
            "inherits": {},
            "writes_elsewhere": there,
            "dials_the_daemon": {"HOSTILE_SOCKET": world.socket, "HOSTILE_UNLINK": "1"},
        }
        with Client(world.socket) as client:
            for program, environment in programs.items():
                arguments = {"argv": world.argv(program), "env": world.environment(**environment)}
                result = client.call("shell", arguments, deadline_ms=30_000)
                assert result.status == "ok", (program, result)
                said[program] = result.output.view
                world.notes["missing"] = result.isolation.missing
    return _words(said, world)


def _words(said: dict[str, str], world: World) -> dict[str, str]:
    lines = dict(line.split(" ", 1) for text in said.values() for line in text.splitlines())
    return {
        "signal the daemon": _word(lines["SIGCONT-to-supervisor"]),
        "trace it": _word(lines["ptrace"]),
        "read its memory": _word(lines["memory"]),
        "take its descriptors": _word(lines["descriptor"]),
        "enter its root": _word(lines["root"]),
        "read its environment": _word(lines["others"]),
        "inherit from it": "no" if inherits_nothing(lines, world) else "yes",
        "ask it for a call": "no" if {lines[way] for way in ("path", "proc", "abstract")} == {"refused"} else "yes",
        "remove its socket": _word(lines["unlink"]),
        "write elsewhere": _word(lines["write"]),
        "reach the network": _word(lines["net"]),
    }


def _word(line: str) -> str:
    return {"obtained": "yes", "refused": "no"}[line.split()[0]]


def inherits_nothing(lines: dict[str, str], world: World) -> bool:
    """Whether a program was born clean: `inherits` has said with what."""
    names = {name for name in lines["environment"].split() if not name.startswith("LC_")}
    from_the_daemon = names & world.environment_names - set(world.environment()) - HANDED_ON - MADE_FOR_IT
    return not from_the_daemon and all(lines[what] == wanted for what, wanted in _BORN_WITH.items())


def held(world: World) -> dict[str, str]:
    """What `HELD` says of this daemon, once `attempted` has looked."""
    place = next((place for place in LOWER if place in world.kind), "contain")
    column = place if place != ISOLATION_NONE else f"{place}, {'root' if world.uid == 0 else 'a plain uid'}"
    expected = {attack: row[PLACES.index(column)] for attack, row in HELD.items()}
    return expected | ({"signal the daemon": "yes"} if "signal_scope" in world.notes["missing"] else {})


PLACES = ("contain", NO_NAMESPACES, f"{ISOLATION_NONE}, a plain uid", f"{ISOLATION_NONE}, root")
HELD = {
    "signal the daemon": ("no", "no", "yes", "yes"),
    "trace it": ("no", "no", "no", "yes"),
    "read its memory": ("no", "no", "no", "yes"),
    "take its descriptors": ("no", "no", "no", "yes"),
    "enter its root": ("no", "no", "no", "yes"),
    "read its environment": ("no", "no", "no", "yes"),
    "inherit from it": ("no", "no", "no", "no"),
    "ask it for a call": ("no", "no", "no", "no"),
    "remove its socket": ("yes", "yes", "yes", "yes"),
    "write elsewhere": ("yes", "yes", "yes", "yes"),
    "reach the network": ("yes", "yes", "yes", "yes"),
}
"""Attack → whether it works, by `PLACES`. Without namespaces the kernel's Landlock keeps signals in (Linux 6.12); where
it has none, `isolation.missing` says ``signal_scope`` and the first row is ``yes``."""
