"""Clients that ask of runs what nobody should, in raw JSON lines: each run ends, nothing of it stays bound, the others
are served, and the daemon's log has no word of a fault."""

from __future__ import annotations

import json
import socket
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.conftest import RUNS_TOOLS, TestedDaemon, open_daemons

pytestmark = pytest.mark.contract

CONFIG = f"""
[daemon]
in_flight = 1
queue = 1

{RUNS_TOOLS}
[[policy]]
tool = "python"
action = "ask"

[profile.concluding]
limits = {{ steps = 1, model_calls = 4, wall_ms = 60_000 }}
wrapup = {{ model_calls = 1, ms = 5_000 }}
"""
_MOST = (1 << 63) - 1


class Raw:
    """A client without manners. ``heard``: answers to others than what was asked last, by id."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(20)
        self._socket.connect(path)
        self._lines = self._socket.makefile("rb")
        self._id = 0
        self.heard: dict[int | None, dict[str, Any]] = {}
        self._say(op="hello", version=1)
        self._hear()

    def _say(self, **message: Any) -> None:
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def _hear(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._lines.readline())
        return answer

    def send(self, op: str, **fields: Any) -> int:
        self._id += 1
        self._say(op=op, id=self._id, **fields)
        return self._id

    def answer(self, number: int) -> dict[str, Any]:
        while number not in self.heard:
            answer = self._hear()
            self.heard[answer.get("id")] = answer
        return self.heard.pop(number)

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        return self.answer(self.send(op, **fields))

    def code(self, op: str, **fields: Any) -> str:
        return str(self.ask(op, **fields)["error"]["code"])

    def open(self, **fields: Any) -> str:
        return str(self.ask("open_run", **fields)["run"]["run"])

    def view(self, run: str) -> dict[str, Any]:
        view: dict[str, Any] = self.ask("show_run", run=run)["run"]
        return view

    def stop(self, run: str) -> dict[str, Any]:
        stop: dict[str, Any] = self.ask("wait_run", run=run)["stop"]
        return stop

    def shell(self, *argv: str, run: str | None = None) -> int:
        return self.send("submit", tool="shell", arguments=json.dumps({"argv": argv}), run=run, announce=True)

    def leave(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._lines.close()
        self._socket.close()


@pytest.fixture(scope="module")
def daemon() -> Iterator[TestedDaemon]:
    with open_daemons() as start:
        yield start(CONFIG)


@pytest.fixture
def raw(daemon: TestedDaemon) -> Iterator[Raw]:
    """A client; when it has gone all of its runs end, and nobody has been confused by it."""
    client = Raw(daemon.socket)
    yield client
    client.leave()
    witness, until = Raw(daemon.socket), time.monotonic() + 10
    while going := witness.ask("list_runs")["runs"]:
        assert time.monotonic() < until, going
        time.sleep(0.02)
    witness.leave()
    log = (daemon.directory / "daemon.log").read_text()
    assert not [word for word in ("Traceback", "said_out_of_turn", "supervisor_bug") if word in log], log[-2_000:]


def busy(raw: Raw, queued: bool = True) -> list[int]:
    """Every place of the daemon is taken, and the one in its queue; the calls that have them."""
    calls = [raw.shell("sleep", "60")]
    until = time.monotonic() + 10
    while not [row for row in raw.ask("list_processes")["rows"] if row["state"] == "busy"]:
        assert time.monotonic() < until
        time.sleep(0.02)
    return [*calls, raw.shell("sleep", "61")] if queued else calls


def free(raw: Raw, calls: list[int]) -> None:
    for call in calls:
        raw.send("cancel", submit=call)
    for call in calls:
        while raw.answer(call)["op"] != "settled":
            pass


@pytest.mark.parametrize(
    "fields",
    [
        {"goal": "g" * 900_000},
        {"session": "s" * 900_000},
        {"session": "a\nb"},
        {"workspace": "/" + "w" * 900_000},
        {"checks": ["true"] * 10_000},
        {"checks": ["echo 'open"]},
        {"limits": {f"tool_calls[t{number}]": 1 for number in range(10_000)}},
        {"limits": {"steps": -1}},
        {"deadline_ms": 10**30, "limits": {"steps": True}},
    ],
    ids=lambda fields: f"{next(iter(fields))}-{len(str(fields))}",
)
def test_what_no_run_can_be_opened_with_is_refused_by_name(raw: Raw, fields: dict[str, Any]) -> None:
    answer = raw.ask("open_run", **fields)
    assert answer["error"]["code"] == "invalid_arguments"
    assert len(answer["error"]["message"]) < 500


def test_what_no_run_can_be_told_is_refused_and_changes_nothing(raw: Raw) -> None:
    run = raw.open()
    before = raw.view(run)
    assert raw.code("reserve_model", run=run, model="m", max_in=_MOST) == "invalid_arguments"
    assert raw.code("reserve_model", run=run, model="m" * 1_000) == "invalid_arguments"
    assert raw.code("settle_model", run=run, reservation=1, tokens_out=_MOST) == "invalid_arguments"
    assert raw.code("add_evidence", run=run, evidence="e" * 900_000) == "invalid_arguments"
    assert raw.code("finish_run", run=run, answer="a" * 900_000) == "invalid_arguments"
    after = raw.view(run)
    assert (after["budgets"], after["step"], after["status"]) == (before["budgets"], before["step"], "running")


def test_a_check_finds_no_place_and_its_finish_is_answered(raw: Raw) -> None:
    run = raw.open(checks=["true"])
    calls = busy(raw)
    answer = raw.ask("finish_run", run=run)
    assert answer["op"] == "finish_refused"
    assert "queue is full" in answer["feedback"]
    assert raw.view(run)["calls_in_flight"] == 0
    free(raw, calls)
    assert raw.ask("finish_run", run=run)["stop"]["status"] == "completed"


def test_a_call_that_finds_no_place_costs_its_run_nothing_but_the_step(raw: Raw) -> None:
    run = raw.open()
    calls = busy(raw)
    assert raw.ask("submit", tool="page", arguments='{"number": 1}', run=run)["result"]["reason"] == "overloaded"
    free(raw, calls)
    view = raw.view(run)
    bound = {name: one for name, one in view["budgets"].items() if one["used"] or one["reserved"]}
    assert list(bound) == ["steps"]
    events = raw.ask("read_events", run=run)["events"]
    charged = sum(event["data"].get("charge", {}).get("tool_calls", 0) for event in events)
    assert charged == 0


def test_a_run_whose_call_waits_for_a_place_says_so_and_ends_so(raw: Raw) -> None:
    calls = busy(raw, queued=False)
    run = raw.open(deadline_ms=1_500)
    queued = raw.send("submit", tool="page", arguments='{"number": 1}', run=run)
    assert raw.view(run)["phase"] == "queue"
    stop = raw.stop(run)
    assert (stop["reason"], stop["phase"]) == ("time_budget", "queue")
    assert raw.answer(queued)["result"]["status"] == "not_executed"
    assert (stop["budgets"]["tool_calls"]["used"], stop["budgets"]["branches"]["reserved"]) == (0, 0)
    free(raw, calls)


def test_a_run_that_wraps_up_begins_no_run_and_no_step(raw: Raw) -> None:
    run = raw.open(profile="concluding")
    assert raw.ask("step_run", run=run)["op"] == "run_state"
    assert raw.code("step_run", run=run) == "wrapping_up"
    assert raw.code("open_run", parent=run) == "wrapping_up"
    stop = raw.ask("finish_run", run=run, answer="as far as it went")["stop"]
    assert (stop["reason"], stop["answer"]) == ("step_budget", "as far as it went")


def test_clients_that_leave_while_their_run_opens_or_is_checked_leave_no_run(raw: Raw, daemon: TestedDaemon) -> None:
    for _ in range(10):
        hasty = Raw(daemon.socket)
        hasty.send("open_run")
        hasty.leave()
    patient = Raw(daemon.socket)
    run = patient.open(checks=["sleep 60"])
    patient.send("finish_run", run=run)
    until = time.monotonic() + 10
    while raw.view(run)["phase"] != "complete":
        assert time.monotonic() < until
    patient.leave()
    stop = raw.stop(run)
    assert (stop["status"], stop["reason"], stop["phase"]) == ("cancelled", "disconnect", "complete")


def test_the_end_of_hundreds_of_runs_at_once_holds_nobody_up(raw: Raw, daemon: TestedDaemon) -> None:
    many = Raw(daemon.socket)
    opened = [many.send("open_run", goal=str(number)) for number in range(300)]
    above = many.answer(opened[0])["run"]["run"]
    below = [many.send("open_run", parent=above) for _ in range(100)]
    assert {many.answer(number)["op"] for number in (*opened[1:], *below)} == {"run_opened"}
    assert len(raw.ask("list_runs")["runs"]) == 400
    many.leave()
    assert raw.ask("ask_status")["degraded"] == []


def test_the_log_adds_up_to_what_a_run_has_used_whatever_became_of_its_calls(raw: Raw) -> None:
    run = raw.open()
    raw.ask("submit", tool="page", arguments='{"number": 1}', run=run)
    raw.ask("submit", tool="page", arguments='{"number": "x"}', run=run)
    raw.ask("submit", tool="there_is_none", run=run)
    raw.ask("submit", tool="fails", arguments='{"number": 1}', run=run)
    raw.ask("add_evidence", run=run, evidence="something")
    asked = raw.ask("submit", tool="python", arguments='{"code": "print(1)"}', run=run)["result"]
    assert asked["status"] == "waiting_for_approval"
    raw.ask("cancel_run", run=run)
    used = {name: one["used"] for name, one in raw.view(run)["budgets"].items() if one["used"]}
    charged: Counter[str] = Counter()
    for event in raw.ask("read_events", run=run)["events"]:
        charged.update(event["data"].get("charge", {}))
    assert (used["steps"], dict(charged)) == (5, used)


def test_unknown_runs_and_runs_of_the_past_are_told_apart(raw: Raw) -> None:
    run = raw.open()
    raw.ask("cancel_run", run=run)
    more = {"settle_model": {"reservation": 1}, "add_evidence": {"evidence": "x"}}
    requests = "step_run reserve_model settle_model add_evidence finish_run cancel_run resume_run wait_run show_run"
    for op in requests.split():
        fields = more.get(op, {})
        assert raw.code(op, run="r" * 900_000, **fields) == "unknown_run"
        assert raw.ask(op, run=run, **fields)["op"] == ("run_state" if op == "show_run" else "run_settled")
