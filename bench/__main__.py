"""The command: runs the workloads in order, prints each table as it is there, and the specification's at the end."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable
from importlib import import_module
from typing import Any

from bench import _command, _machine
from bench._plan import Plan
from bench._report import Section, claims, table

WORKLOADS = (
    "warm_call",
    "throughput",
    "deadline_kill",
    "fork_bomb",
    "replacement",
    "daemon_killed",
    "daemon_stopped",
    "many_deadlines",
    "killer_killed",
    "exec_cold",
    "exec_deadline",
    "commands",
    "journal",
    "run_cost",
    "hung_phases",
)


def main(words: list[str]) -> int:
    """Run; 0, or 1 when a workload broke or a process survived, 130 when interrupted."""
    options = _command.parse(words, "python -m bench", __doc__, WORKLOADS, "fewer repeats, under a minute")
    _command.end_on_sigterm()
    facts, began = {**_machine.facts(), "load_before": _machine.load()}, time.monotonic()
    print(_head(facts), flush=True)
    sections: dict[str, Section] = {}
    broken: dict[str, str] = {}
    try:
        for name in options.only or WORKLOADS:
            _run_one(name, Plan(options.quick), sections, broken)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return _command.INTERRUPTED
    facts |= {"load_after": _machine.load(), "seconds": round(time.monotonic() - began, 1)}
    _print_end(sections, broken, facts)
    if options.json:
        _write(options.json, facts, sections, broken)
    return _command.DEFECT if broken or any(section.unsafe for section in sections.values()) else 0


def _run_one(name: str, plan: Plan, sections: dict[str, Section], broken: dict[str, str]) -> None:
    began = time.monotonic()
    workload: Callable[[Plan], Section] = import_module(f"bench.{name}").run
    try:
        section = workload(plan)
    except Exception as error:  # noqa: BLE001  # the process boundary of one workload: told, counted, the rest is run
        traceback.print_exc()
        broken[name] = f"{type(error).__name__}: {error}"
        return
    sections[name] = section
    print(f"\n## {section.title}   ({name}, {time.monotonic() - began:.1f} s)\n\n{table(section.lines)}", flush=True)
    for note in section.notes:
        print(f"  {note}")


def _head(facts: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return (
        f"Python {facts['python']}, Linux {facts['kernel']}, {facts['cores']} cores ({facts['cpu']}), "
        f"{facts['memory_mib']} MiB, uid {facts['uid']}, {versions}, load {facts['load_before']}"
    )


def _print_end(sections: dict[str, Section], broken: dict[str, str], facts: dict[str, Any]) -> None:
    if any(line.claim for section in sections.values() for line in section.lines):
        print(f"\n## Numbers to reach\n\n{claims(sections.values())}")
    for name, why in broken.items():
        print(f"\nBROKEN {name}: {why}")
    print(f"\n{facts['seconds']} s, load {facts['load_before']} → {facts['load_after']}")


def _write(file: str, facts: dict[str, Any], sections: dict[str, Section], broken: dict[str, str]) -> None:
    report = {
        "machine": facts,
        "workloads": {
            name: {"title": section.title, "lines": [line.plain() for line in section.lines], "notes": section.notes}
            for name, section in sections.items()
        },
        "broken": broken,
    }
    _command.write(file, report)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
