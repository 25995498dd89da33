"""docs/protocol.md against the code: each message, field, default, word, answer and number; it cannot go stale."""

from __future__ import annotations

import ast
import json
import re
import sys
import typing
from pathlib import Path

import msgspec
import pytest

from protocol import FRAME_HARD_LIMIT, FRAME_LIMIT
from protocol import _client_messages as cm
from protocol import _outcomes as outcomes
from protocol import _runs as runs
from protocol._budgets import DimensionView
from protocol._codecs import DEPTH_LIMIT
from protocol._contracts import ISOLATION_ORDER, ToolDescription
from protocol._deadlines import CEILING_MS
from protocol._events import EventKind
from protocol._links import EXCHANGES, Awaited
from protocol._outcomes import Reason
from supervisor.approval_book import MOST_PENDING, MOST_PENDING_BYTES
from supervisor.config import DaemonSettings
from supervisor.core.approvals import CODES as OBSTACLES
from supervisor.core.approvals import State
from supervisor.core.output import VIEW_BYTES
from supervisor.core.run_wishes import MOST_CHECKS, MOST_PATH, MOST_TEXT
from supervisor.desk import _CHUNK as LARGEST_CHUNK
from supervisor.doors.connection import DoorLimits
from supervisor.hosting import MOST_AGENTS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "protocol.md").read_text(encoding="utf-8")
REQUESTS = typing.get_args(cm.FromClient)
ANSWERS = typing.get_args(cm.FromDaemon)
PARTS = (
    outcomes.CallResult,
    outcomes.ErrorInfo,
    outcomes.Exit,
    outcomes.Timing,
    outcomes.OutputInfo,
    outcomes.KillReceipt,
)
PARTS += (outcomes.Isolation, outcomes.Usage, outcomes.Notice)  # type: ignore[assignment]  # a longer tuple
PARTS += (runs.RunView, runs.RunDeadline, DimensionView, runs.FiredDetector)  # type: ignore[assignment]  # likewise
PARTS += (runs.StopRecord, runs.LastAction, runs.Artefact)  # type: ignore[assignment]  # likewise
BESIDE = {ToolDescription: "tools", cm.ProcessRow: "processes", outcomes.StreamInfo: "OutputInfo"}
BESIDE |= {runs.RunRow: "runs", runs.ApprovalView: "approvals", runs.OpenEffect: "effects"}
"""Structs that are described in another one's section, after its own table."""


def tag_of(kind: type) -> str:
    return str(kind.__struct_config__.tag)  # type: ignore[attr-defined]  # a Struct


def section(title: str) -> str:
    """The text under a heading, up to the next of any rank."""
    found = re.search(rf"^#+ `?{re.escape(title)}`?\n(.*?)(?=^#+ |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"the page has no section {title}"
    return found[1]


def tables(text: str) -> list[list[list[str]]]:
    """Each table as rows of cells, heading and rule taken off."""
    found = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    return [
        [[cell.strip() for cell in row.strip("| ").split(" | ")] for row in table.splitlines()[2:]] for table in found
    ]


def field_tables() -> list[tuple[type, int]]:
    """(struct, which table of its section)."""
    own = [(kind, 0) for kind in (*REQUESTS, *ANSWERS, *PARTS)]
    return own + [(kind, 1) for kind in BESIDE]


def table_of(kind: type, which: int) -> list[list[str]]:
    title = BESIDE.get(kind) or (kind.__name__ if kind in PARTS else tag_of(kind))
    return tables(section(title))[which]


@pytest.mark.parametrize(("kind", "which"), field_tables(), ids=lambda value: getattr(value, "__name__", ""))
def test_every_field_is_described_in_its_order(kind: type, which: int) -> None:
    described = [row[0].strip("`") for row in table_of(kind, which)]
    assert described == [field.encode_name for field in msgspec.structs.fields(kind)]


@pytest.mark.parametrize(("kind", "which"), field_tables(), ids=lambda value: getattr(value, "__name__", ""))
def test_every_default_is_the_one_that_holds(kind: type, which: int) -> None:
    omits = kind.__struct_config__.omit_defaults  # type: ignore[attr-defined]  # a Struct
    for row, field in zip(table_of(kind, which), msgspec.structs.fields(kind), strict=True):
        said = row[2].strip("`")
        if field.required:
            assert said == "required", field.name
            continue
        default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
        if isinstance(default, msgspec.Struct):
            assert said != "required", field.name  # described in its own section
        else:
            assert said == ("absent" if omits else said), field.name
            assert (None if said == "absent" else json.loads(said)) == default, field.name


@pytest.mark.parametrize(
    "kind",
    [
        outcomes.Status,
        outcomes.Reason,
        outcomes.ErrorClass,
        outcomes.Delivery,
        runs.RunStatus,
        runs.RunReason,
        EventKind,
    ],
)
def test_every_word_is_on_the_page_and_no_other(kind: type) -> None:
    words = set(kind)  # type: ignore[call-overload]  # an enumeration
    [table] = [table for table in tables(section("WORDS")) if set(re.findall(r"`(\w+)`", table[0][0])) <= words]
    said = [word for row in table for word in re.findall(r"`(\w+)`", row[0])]
    assert sorted(said) == sorted(words)


def test_the_answers_to_each_request_are_those_of_the_links_table() -> None:
    said = {row[0]: set(re.findall(r"`(\w+)`", row[1])) - {"nowait"} for row in tables(section("Ids"))[0]}
    states = {
        "`submit`": (Awaited.END,),
        "`submit` with `announce`": (Awaited.ANNOUNCEMENT,),
        "`submit` with `detach`": (Awaited.ACCEPTANCE,),
        "`cancel`": (Awaited.CANCEL,),
        "`wait`": (Awaited.WAIT,),
        "`read_output`": (Awaited.OUTPUT,),
        "`list_tools`": (Awaited.TOOLS,),
        "`ask_status`": (Awaited.STATUS,),
        "`list_processes`": (Awaited.PROCESSES,),
        "`read_events`": (Awaited.EVENTS,),
        "`open_run`": (Awaited.OPENED,),
        "`step_run`": (Awaited.STEP,),
        "`settle_model`": (Awaited.STEP,),
        "`reserve_model`": (Awaited.MODEL,),
        "`retry_model`": (Awaited.STEP,),
        "`refuse_call`": (Awaited.STEP,),
        "`ask_person`": (Awaited.RUN_END,),
        "`stop_run`": (Awaited.RUN_END,),
        "`keep_notes`": (Awaited.STEP,),
        "`read_notes`": (Awaited.NOTES,),
        "`add_evidence`": (Awaited.EVIDENCE,),
        "`finish_run`": (Awaited.FINISH,),
        "`cancel_run`": (Awaited.RUN_END,),
        "`resume_run`": (Awaited.STEP,),
        "`wait_run`": (Awaited.RUN_END,),
        "`show_run`": (Awaited.RUN,),
        "`list_runs`": (Awaited.RUNS,),
        "`list_approvals`": (Awaited.APPROVALS,),
        "`decide`": (Awaited.DECISION,),
        "`list_effects`": (Awaited.EFFECTS,),
        "`close_effect`": (Awaited.CLOSING,),
        "`ask_metrics`": (Awaited.METRICS,),
        "`ask_config`": (Awaited.CONFIG,),
    }
    assert said.keys() == states.keys()
    assert {state for group in states.values() for state in group} == set(Awaited)
    for request, answers in said.items():
        held = {kind for state, kind in EXCHANGES if state in states[request]} - {cm.Failed}
        assert answers == {tag_of(kind) for kind in held}, request


def test_every_feature_is_described() -> None:
    assert [row[0].strip("`") for row in tables(section("VERSIONS"))[0]] == list(cm.FEATURES)
    assert f"version {cm.VERSION}:" in section("NAME")


_NOT_NOW = (Reason.SHUTDOWN, Reason.POOL_UNHEALTHY, Reason.POISON_CALL, Reason.BUDGET, Reason.RUN_SETTLED)
"""Why a daemon may refuse to begin an approved call."""


def test_every_code_of_a_refusal_that_the_daemon_says_is_on_the_page() -> None:
    """The words in the sources, read as text: of desks and doors, and of the refusals that they pass on."""
    root = Path(__file__).resolve().parents[2] / "supervisor"
    files = [*root.glob("*.py"), *root.glob("doors/*.py"), *root.glob("observe/*.py"), root / "core" / "profiles.py"]
    sources = "".join(file.read_text() for file in files)
    said = set(re.findall(r'(?:_failed\(\s*[\w.]+,|RunRefusal\(|Objection\()\s*"(\w+)"', sources))
    said |= {"unknown_profile", "profile_not_allowed"} & set(re.findall(r'"(\w+)"', sources))
    said |= set(re.findall(r'ErrorInfo\(ErrorClass\.\w+, "(\w+)"', sources)) - {"content"}  # that one is in a result
    said |= {"protocol_error", "supervisor_bug"}
    said |= {f"approval_{state}" for state in State if state is not State.PENDING} | set(OBSTACLES.values())
    said |= {str(reason) for reason in (Reason.POLICY_DENIED, Reason.STORE_UNAVAILABLE, *_NOT_NOW)}
    assert {row[0].strip("`") for table in tables(section("ERRORS")) for row in table} == said


def test_the_numbers_are_those_that_hold() -> None:
    rows = {row[0]: row[1] for row in tables(section("LIMITS"))[0]}
    door, daemon = DoorLimits(), DaemonSettings()
    assert rows["frame or line, to the daemon"] == f"{FRAME_LIMIT >> 20} MiB"
    assert rows["frame or line, to the client"] == f"{FRAME_HARD_LIMIT >> 20} MiB"
    assert rows["time for `hello`"] == f"{daemon.hello_timeout_ms // 1_000} s" == f"{door.hello_s:.0f} s"
    assert rows["time for a frame or line, once it has begun"] == f"{daemon.frame_timeout_ms // 1_000} s"
    assert rows["waiting for a client that does not read"] == f"{door.unsent >> 20} MiB"
    assert rows["connections"].startswith(f"{daemon.clients};")
    assert door.clients_of_another_uid * 2 == door.clients == daemon.clients
    assert rows["connections that have not said hello"] == str(door.clients_without_hello)
    assert rows["calls that run at once, calls that wait"] == f"{daemon.in_flight}, {daemon.queue}"
    assert rows["nesting of arguments and content"] == str(DEPTH_LIMIT)
    assert CEILING_MS == 3_600_000
    assert rows["deadline"] == "1 ms to 1 h"
    assert rows["one `read_output`"] == f"{LARGEST_CHUNK >> 10} KiB"
    of_agent = "`agent` of a run: `constraints`; characters of each, of its `model`"
    assert rows[of_agent] == f"{MOST_CHECKS}; {MOST_TEXT}, {MOST_PATH}"
    assert rows["agents that the daemon steers, without those that wait for a person"] == str(MOST_AGENTS)
    waiting = "calls and answers that wait for a person; their arguments together"
    assert rows[waiting] == f"{MOST_PENDING}; {MOST_PENDING_BYTES >> 20} MiB"
    assert rows["keeping a settled call"] == f"{daemon.result_ttl_ms // 3_600_000} h"
    assert f"{VIEW_BYTES:,}".replace(",", " ") in section("OutputInfo")
    assert f"1 to {LARGEST_CHUNK:,} bytes".replace(",", " ") in section("read_output")


def test_every_setting_named_is_one() -> None:
    named = re.findall(r"`(\w+)`", "\n".join(row[2] for row in tables(section("LIMITS"))[0]))
    assert set(named) - {"welcome", "overloaded", "max_timeout_ms"} <= set(DaemonSettings.__struct_fields__)


def test_the_isolation_levels_are_named_in_their_order() -> None:
    assert ", ".join(f"`{level}`" for level in ISOLATION_ORDER) in section("submit")


def test_the_example_is_short_and_imports_the_standard_library_only() -> None:
    [code] = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert len(code.splitlines()) <= 60
    imported = {
        alias.name for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Import) for alias in node.names
    }
    assert not any(isinstance(node, ast.ImportFrom) for node in ast.walk(ast.parse(code)))
    assert imported <= set(sys.stdlib_module_names)


def test_the_conversation_at_the_top_is_made_of_messages() -> None:
    lines = re.findall(r"^([CD]): (.*)$", section("SYNOPSIS"), re.MULTILINE)
    assert len(lines) > 4
    tags = {"C": {tag_of(kind) for kind in REQUESTS}, "D": {tag_of(kind) for kind in ANSWERS}}
    for speaker, line in lines:
        assert json.loads(line)["op"] in tags[speaker]
        if speaker == "C":
            msgspec.json.decode(line, type=cm.FromClient)
