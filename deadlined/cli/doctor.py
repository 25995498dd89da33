"""``deadlined doctor``: what this host can contain, found out by killing real trees. No daemon is needed."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
import msgspec

from deadlined.cli._columns import print_columns
from deadlined.cli._options import json_option
from deadlined.cli._report import print_json
from deadlined.cli._screen import printable

if TYPE_CHECKING:
    from supervisor.diagnosis import Diagnosis, LevelReport

LESS, NOTHING = 1, 125
_LAST_LINES = 20


@click.command("doctor")
@json_option
def doctor_command(as_json: bool) -> int:
    """Try every level of containment on this host: exit 0 isolation contain works, 1 only less does, 125 nothing does.

    \b
    Example:
      deadlined doctor --json
    """
    import trio

    from supervisor.diagnosis import diagnose

    with _helpers_words() as words:
        found = trio.run(diagnose)
    if as_json:
        print_json(msgspec.to_builtins(found))
    else:
        _show(found)
    for said in dict.fromkeys(words):  # each once
        click.echo(printable(said), err=True)
    return NOTHING if found.reached is None else 0 if found.isolation == "contain" else LESS


@contextmanager
def _helpers_words() -> Iterator[list[str]]:
    """What zygotes and workers write to stderr when a level fails; said at the end, below the table."""
    words: list[str] = []
    sys.stderr.flush()
    with tempfile.TemporaryFile() as file:
        ours = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield words
        finally:
            os.dup2(ours, 2)
            os.close(ours)
            file.seek(0)
            words += file.read().decode(errors="replace").splitlines()[-_LAST_LINES:]


def _show(found: Diagnosis) -> None:
    print_columns(
        ("level", "works", ""), ((one.level, "yes" if one.works else "no", _remark(one)) for one in found.levels)
    )
    controllers = ", ".join(f"{name} (cgroup {version})" for name, version in sorted(found.limits.items()))
    click.echo(f"\nlimits that bind: {controllers or 'none of memory and pids: ' + '; '.join(found.why_no_groups)}")
    click.echo(f"Linux {found.kernel}, uid {found.uid}")
    if found.reached is None:
        click.echo("nothing can be contained here")
    else:
        click.echo(f"a daemon reaches {found.reached}, isolation {found.isolation}")


def _remark(report: LevelReport) -> str:
    if report.why:
        return report.why
    missing = f"; missing: {', '.join(report.missing)}" if report.missing else ""
    return f"{report.killed} processes killed and seen dead{missing}"
