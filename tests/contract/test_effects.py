"""Effects of unknown outcome on the running product: listed until somebody knows, asked about where the contract says
whom, never done again by themselves."""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from deadlined import CallResult, Client, RequestRefused
from deadlined.client import CallHandle
from tests.contract.conftest import TestedDaemon, open_daemons

pytestmark = pytest.mark.contract
MODULE = '''
import pathlib, sqlite3, time
from deadlined import Context, tool

LEDGER = pathlib.Path(__file__).with_name("ledger.db")

def book(key, job):
    with sqlite3.connect(LEDGER) as ledger:
        ledger.execute("INSERT INTO payments VALUES (?, ?)", (key, job))
    ledger.close()

def booked(key):
    with sqlite3.connect(LEDGER) as ledger:
        found = ledger.execute("SELECT job FROM payments WHERE key = ?", (key,)).fetchall()
    ledger.close()
    return found

@tool(reconcile={"tool": "payment_state", "timeout_ms": 20_000})
def pay(job: str, ctx: Context, books: bool = True, hangs: bool = True) -> str:
    """Book a payment under the key of the call, and perhaps never say so."""
    if books:
        book(ctx.idempotency_key, job)
    pathlib.Path(LEDGER.with_name(job)).touch()
    if hangs:
        time.sleep(1000)
    return ctx.idempotency_key

@tool(reconcile="swears_it_is_not_there")
def pays(job: str, ctx: Context, hangs: bool = True) -> str:
    """Book, and perhaps never say so."""
    book(ctx.idempotency_key, job)
    pathlib.Path(LEDGER.with_name(job)).touch()
    if hangs:
        time.sleep(1000)
    return ctx.idempotency_key

@tool(read_only=True)
def swears_it_is_not_there(idempotency_key: str) -> dict:
    return {"state": "not_done"}

@tool(read_only=True)
def payment_state(idempotency_key: str, arguments: dict) -> dict | str:
    """Look into the ledger."""
    if arguments["job"].startswith("odd"):
        return "I had rather not say"
    if booked(idempotency_key):
        return {"state": "done", "result": {"receipt": idempotency_key, "for": arguments}}
    return {"state": "not_done"}

@tool(reconcile={"tool": "never_says", "timeout_ms": 150})
def wires(job: str) -> str:
    """Send, and never say so."""
    pathlib.Path(LEDGER.with_name(job)).touch()
    time.sleep(1000)

@tool(read_only=True)
def never_says(idempotency_key: str) -> dict:
    time.sleep(1000)

@tool(idempotent=True, retry={"attempts": 1})
def puts(job: str) -> str:
    """Write, and never say so."""
    pathlib.Path(LEDGER.with_name(job)).touch()
    time.sleep(1000)
'''
CONFIG = """
[daemon]
spares = 1
[tool.payments]
kind = "python"
module = "payments"
path = "{directory}"
[tool.deploy]
kind = "command"
argv = ["sh", "-c", 'echo "$DEADLINED_IDEMPOTENCY_KEY" > "$1"; sleep 1000', "sh", "{{file}}"]
arguments = {{ file = "str" }}
reconcile = "deployed"
[tool.deployed]
kind = "command"
argv = ["sh", "{directory}/deployed.sh", "{{idempotency_key}}"]
arguments = {{ idempotency_key = "str" }}
read_only = true
"""
DEPLOYED = """test "$(cat "$(dirname "$0")/deployed")" = "$1" && echo '{"state": "done"}'"""


class Place:
    """Where daemons of one state live, one after the other, and what their tools did there."""

    def __init__(self, start: Callable[..., TestedDaemon], directory: Path) -> None:
        self._start, self.directory = start, directory
        self.deployed = directory / "deployed"
        with closing(sqlite3.connect(directory / "ledger.db")) as ledger:
            ledger.execute("CREATE TABLE payments (key TEXT UNIQUE, job TEXT)")
        (directory / "payments.py").write_text(MODULE)
        (directory / "deployed.sh").write_text(DEPLOYED)
        self.config = CONFIG.format(directory=directory)
        self.daemon = start(self.config)

    def follow(self) -> None:
        """The daemon is killed, and another one takes its place."""
        self.daemon.kill()
        self.daemon = self._start(self.config, after=self.daemon)

    def payments(self) -> list[tuple[str, str]]:
        with closing(sqlite3.connect(self.directory / "ledger.db")) as ledger:
            return ledger.execute("SELECT job, key FROM payments ORDER BY rowid").fetchall()

    def hang(self, client: Client, tool: str, job: str, **more: Any) -> CallHandle:
        """A call that has done what it does, and goes on for ever."""
        options = {name: more.pop(name) for name in ("key", "run", "detach") if name in more}
        handle = client.submit(tool, {"job": job, **more}, deadline_ms=60_000, **options)
        wait_for((self.directory / job).exists)
        return handle

    def cancelled(self, client: Client, tool: str, job: str, **more: Any) -> CallResult:
        """One that was ended after it had done what it does."""
        handle = self.hang(client, tool, job, **more)
        handle.cancel()
        return handle.wait(30)


def wait_for(true: Callable[[], Any]) -> None:
    until = time.monotonic() + 30
    while not true():
        assert time.monotonic() < until, "it did not come"
        time.sleep(0.005)


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    directory = Path(tempfile.mkdtemp(prefix="dl-pay-"))
    try:
        with open_daemons() as start:
            yield Place(start, directory)
    finally:
        shutil.rmtree(directory)


@pytest.fixture
def client(place: Place) -> Iterator[Client]:
    with Client(place.daemon.socket) as client:
        yield client


def noticed(result: CallResult) -> list[str]:
    return [notice.text for notice in result.notices if notice.detector == "reconciled"]


def kinds(client: Client, call: str) -> list[str]:
    return [event.kind for event in client.events(call=call)]


# ---------------------------------------------------------------- listed until somebody knows


@pytest.mark.behaviour("M092")
def test_a_call_that_timed_out_behind_its_effect_is_unknown_and_not_run_again(place: Place, client: Client) -> None:
    for deadline_ms in (1_000, 4_000, 16_000):
        job = f"timed-{deadline_ms}"
        told = client.call("puts", {"job": job}, deadline_ms=deadline_ms, key=job)
        if (place.directory / job).exists():
            break
    assert (told.status, told.reason, told.delivery, told.retryable) == ("killed", "time_budget", "unknown", False)
    (place.directory / job).unlink()
    again = client.call("puts", {"job": job}, deadline_ms=deadline_ms, key=job)
    assert (again.call, again.replayed) == (told.call, True)
    assert not (place.directory / job).exists()
    assert told.call in {effect.call for effect in client.effects()}
    for effect in client.effects():
        client.close_effect(effect.call, "seen to")


def test_a_call_that_did_its_work_and_was_cut_off_is_listed_until_somebody_closes_it(client: Client) -> None:
    handle = client.submit("shell", {"argv": ["sh", "-c", "echo begun; sleep 1000"]}, deadline_ms=60_000)
    assert next(handle.output()) == b"begun\n"
    handle.cancel()
    told = handle.wait(30)
    assert told.delivery == "unknown"
    (effect,) = client.effects()
    assert (effect.call, effect.tool, effect.key) == (told.call, "shell", told.idempotency_key)
    assert json.loads(effect.arguments or "")["argv"][0] == "sh"
    closed = client.close_effect(told.call, "it had done nothing but talk")
    assert (closed.closed, client.effects()) == ("it had done nothing but talk", [])
    (event,) = [event for event in client.events(call=told.call) if event.kind == "effect_closed"]
    assert event.data["note"] == "it had done nothing but talk"
    assert client.handle(told.call).wait(5) == told, "what was told stays as it was"


def test_what_was_seen_to_end_or_only_read_is_no_open_effect(client: Client) -> None:
    client.call("shell", {"argv": ["false"]}, deadline_ms=30_000)
    reading = client.submit("never_says", {"idempotency_key": "x"}, deadline_ms=60_000)
    time.sleep(0.1)
    reading.cancel()
    assert reading.wait(30).status == "cancelled"
    assert client.effects() == []


@pytest.mark.parametrize(
    ("call", "note", "code"), [("c_never", "x", "unknown_call"), (None, "x", "not_open"), (None, " ", "not_open")]
)
def test_closing_what_is_not_open_says_what_it_is(client: Client, call: str | None, note: str, code: str) -> None:
    ended = client.call("shell", {"argv": ["true"]}, deadline_ms=30_000).call
    with pytest.raises(RequestRefused) as refused:
        client.close_effect(call or ended, note)
    assert refused.value.error.code == code
    assert call is not None or "succeeded" in str(refused.value)


def test_what_may_be_repeated_is_listed_too_because_nobody_has(place: Place, client: Client) -> None:
    told = place.cancelled(client, "puts", "put1")
    assert [effect.call for effect in client.effects()] == [told.call]
    with pytest.raises(RequestRefused, match="note"):
        client.close_effect(told.call, " ")
    client.close_effect(told.call, "put again")
    with pytest.raises(RequestRefused, match="closed already: put again"):
        client.close_effect(told.call, "once more")


# ---------------------------------------------------------------- asked about


@pytest.mark.behaviour("M117")
def test_the_tool_that_knows_is_asked_before_the_result_is_told(place: Place, client: Client) -> None:
    told = place.cancelled(client, "pay", "paid1", key="k1")
    assert (told.status, told.delivery, told.retryable) == ("cancelled", "succeeded", False)
    assert told.content == {
        "receipt": told.idempotency_key,
        "for": {"job": "paid1"},
    }
    assert noticed(told) == ["payment_state says that it was done"]
    assert client.effects() == []
    assert kinds(client, told.call)[-2:] == ["effect_reconciled", "call_ended"]
    assert client.call("pay", {"job": "paid1"}, key="k1").content == told.content
    assert [job for job, _ in place.payments()] == ["paid1"]


def test_what_was_not_done_is_said_to_be_and_runs_again_under_the_same_key(place: Place, client: Client) -> None:
    for attempt, deadline_ms in enumerate((400, 1_600, 6_400, 25_600)):
        key = f"k2-{attempt}"
        told = client.call("pay", {"job": f"late{attempt}", "books": False}, deadline_ms=deadline_ms, key=key)
        if told.delivery != "not_delivered":
            break
    assert (told.status, told.reason, told.delivery) == ("killed", "time_budget", "failed_definite")
    assert told.retryable
    again = client.submit("pay", {"job": f"late{attempt}", "books": False}, deadline_ms=60_000, key=key)
    assert again.call != told.call
    again.cancel()
    assert again.wait(30).idempotency_key == told.idempotency_key


@pytest.mark.behaviour("M109")
def test_the_key_that_goes_downstream_keeps_the_ledger_right_though_we_are_misled(place: Place, client: Client) -> None:
    for deadline_ms in (1_000, 4_000, 16_000):
        job = f"twice-{deadline_ms}"
        told = client.call("pays", {"job": job}, deadline_ms=deadline_ms, key=job)
        if (place.directory / job).exists():
            break
    assert told.delivery == "failed_definite", "by the word of a tool that does not look"
    again = client.call("pays", {"job": job}, deadline_ms=30_000, key=job)
    assert again.call != told.call
    assert again.status == "error"
    assert "UNIQUE" in (again.error.message if again.error else "")
    booked = [key for name, key in place.payments() if name == job]
    assert booked == [told.idempotency_key] == [again.idempotency_key]


@pytest.mark.parametrize(("tool", "why"), [("pay", "gave no"), ("wires", "gave no answer")])
def test_one_that_does_not_know_or_does_not_answer_leaves_it_open(
    place: Place, client: Client, tool: str, why: str
) -> None:
    told = place.cancelled(client, tool, f"odd-{tool}")
    assert (told.delivery, told.retryable) == ("unknown", False)
    assert why in noticed(told)[0]
    assert [effect.call for effect in client.effects()] == [told.call]
    client.close_effect(told.call, "asked by telephone")


def test_commands_ask_and_are_asked(place: Place, client: Client) -> None:
    handle = client.submit("deploy", {"file": str(place.deployed)}, deadline_ms=60_000)
    wait_for(lambda: place.deployed.exists() and place.deployed.read_text())
    handle.cancel()
    told = handle.wait(30)
    assert (told.delivery, noticed(told)) == ("succeeded", ["deployed says that it was done"])
    assert place.deployed.read_text().strip() == told.idempotency_key


# ---------------------------------------------------------------- in a run


@pytest.mark.case("B083")
@pytest.mark.behaviour("M110")
@pytest.mark.behaviour("M117")
def test_a_run_does_not_do_again_what_it_may_have_done_and_waits_until_somebody_knows(
    place: Place, client: Client
) -> None:
    with client.run(goal="wire it once") as run:
        refused = run.call("wires", {"job": 1})
        assert (refused.delivery, refused.status) == ("not_delivered", "not_executed"), "not started: for sure"
        failed = run.call("shell", {"argv": ["false"]})
        assert failed.delivery == "failed_definite", "failed: for sure"
        first = place.cancelled(client, "wires", "run-wire", run=run.id)
        assert (first.delivery, first.retryable) == ("unknown", False)
        again = run.call("wires", {"job": "run-wire"})
        assert (again.status, again.reason, again.delivery) == (
            "waiting_for_approval",
            "reconcile_required",
            "not_delivered",
        )
        assert first.call in (again.error.message if again.error else "")
        stop = run.wait()
        assert (stop.status, stop.reason, stop.resumable) == ("waiting_for_approval", "reconcile_required", True)
        assert [effect.call for effect in stop.unresolved_effects] == [first.call]
        (place.directory / "run-wire").unlink()
        client.close_effect(first.call, "it never went out")
        resumed = place.cancelled(client, "wires", "run-wire", run=run.id)
        assert resumed.call != first.call, "once somebody knows, it may be asked for"
        assert resumed.idempotency_key != first.idempotency_key, "and that is a new decision"
        client.close_effect(resumed.call, "this one did")
        run.cancel()


def test_a_run_may_do_again_what_its_contract_allows_and_is_told_of_the_doubt(place: Place, client: Client) -> None:
    with client.run() as run:
        arguments = {"argv": ["sh", "-c", "echo begun; sleep 1000"]}
        handle = run.submit("shell", arguments, deadline_ms=60_000)
        assert next(handle.output()) == b"begun\n"
        handle.cancel()
        first = handle.wait(30)
        again = run.submit("shell", arguments, deadline_ms=60_000)
        assert next(again.output()) == b"begun\n"
        again.cancel()
        told = again.wait(30)
        (said,) = [notice.text for notice in told.notices if notice.detector == "repeat_after_unknown"]
        assert first.call in said
        assert run.view().status == "running"
        for call in (first.call, told.call):
            client.close_effect(call, "it talked")


def test_a_run_pays_for_the_question_and_without_a_call_left_nobody_is_asked(place: Place, client: Client) -> None:
    with client.run(limits={"tool_calls": 3}) as run:
        paid = place.cancelled(client, "pay", "run-paid", run=run.id)
        assert paid.delivery == "succeeded"
        assert run.view().budgets["tool_calls"].used == 2
        unasked = place.cancelled(client, "pay", "run-unasked", run=run.id)
        assert unasked.delivery == "unknown"
        assert "no call left" in noticed(unasked)[0]
        client.close_effect(unasked.call, "seen in the ledger")


@pytest.mark.behaviour("M085")
def test_each_result_is_tied_to_the_decision_that_asked_for_it(place: Place, client: Client) -> None:
    with client.run() as run:
        told = []
        for job in ("tied1", "tied1", "tied2"):
            run.step()
            told.append(run.call("pay", {"job": job, "books": False, "hangs": False}))
        decided = [event for event in run.events() if event.kind == "call_validated"]
        assert [event.call for event in decided] == [one.call for one in told]
        assert [(event.data["step"], event.data["index"]) for event in decided] == [(1, 1), (2, 1), (3, 1)]
        assert [one.content for one in told] == [one.idempotency_key for one in told], (
            "which is what the tool was given"
        )
        assert len({one.idempotency_key for one in told}) == 3


def test_what_was_done_in_a_run_can_be_heard_again_when_the_run_is_over(place: Place, client: Client) -> None:
    with client.run() as run:
        arguments = {"job": "over", "books": False, "hangs": False}
        told = run.call("pay", arguments, key="over")
        run.finish("done")
    again = client.call("pay", arguments, run=run.id, key="over")
    assert (again.call, again.replayed, again.status) == (told.call, True, "ok")
    for other in ({"key": "another"}, {"key": "over", "cwd": "/tmp"}, {}):
        assert client.call("pay", arguments, run=run.id, **other).reason == "run_settled"


# ---------------------------------------------------------------- on the disk before it is done


@pytest.mark.behaviour("M116")
def test_what_is_about_to_be_done_is_on_the_disk_before_and_its_result_after(place: Place, client: Client) -> None:
    (journal,) = place.daemon.directory.glob("state/*/journal.db")
    with closing(sqlite3.connect(journal, isolation_level=None)) as other, client.run(goal="pay the rent") as run:
        other.execute("BEGIN IMMEDIATE")  # nobody else can write now
        handle = run.submit("pay", {"job": "rent", "hangs": False}, deadline_ms=60_000)
        time.sleep(0.3)
        assert not (place.directory / "rent").exists(), "it was done before anybody would have known of it"
        other.execute("ROLLBACK")
        told = handle.wait(30)
        row = "SELECT arguments, key, state, result FROM calls WHERE id = ?"
        arguments, key, state, result = other.execute(row, (told.call,)).fetchone()
        assert (json.loads(arguments)["job"], key, state) == ("rent", told.idempotency_key, "succeeded")
        assert result is not None
        ((spec,),) = other.execute("SELECT spec FROM runs WHERE id = ?", (run.id,))
        assert json.loads(spec)["goal"] == "pay the rent"
        events = list(client.events(call=told.call))
        kinds = [event.kind for event in events]
        assert kinds.index("call_validated") < kinds.index("call_claimed") < kinds.index("call_sent")
        assert kinds[-1] == "call_ended"
        assert events[kinds.index("call_validated")].data["state_version"] == 0
        run.finish("paid")


# ---------------------------------------------------------------- another life


@pytest.mark.behaviour("M091")
def test_a_new_life_lists_what_is_open_and_asks_about_it(place: Place) -> None:
    with Client(place.daemon.socket) as client:
        open_one = place.cancelled(client, "wires", "odd-wire").call
        paid = place.hang(client, "pay", "paid3", key="k3").call
        unpaid = place.hang(client, "pay", "unpaid3", books=False, key="k4").call
        unheard = place.hang(client, "puts", "put3").call
    place.follow()
    with Client(place.daemon.socket) as client:
        wait_for(lambda: [effect.call for effect in client.effects()] == [open_one, unheard])
        assert "effect_reconciled" in kinds(client, paid)
        assert client.handle(paid).wait(5).delivery == "unknown", "what the start had told stays as it was"
        before = len(place.payments())
        assert client.call("pay", {"job": "paid3"}, key="k3").replayed
        assert len(place.payments()) == before
        told = client.call("pay", {"job": "unpaid3", "books": False}, deadline_ms=1_500, key="k4")
        assert told.call not in (paid, unpaid), "it was not done, and is a new call"
        assert not told.replayed
        for call in (open_one, unheard):
            client.close_effect(call, "seen to")
