"""Public reports on deliveries that come twice, answers that do not arrive, and connections that break: whatever the
line does, a thing is done once, and what became of it can be asked."""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deadlined import CallResult, Client, RequestRefused
from deadlined.client import CallHandle
from protocol import _client_messages as cm
from protocol._codecs import client_to_daemon
from tests.contract.cases.conftest import FOREVER, PATIENCE_S, wait_until
from tests.contract.conftest import REPOSITORY, TestedDaemon, open_daemons

pytestmark = pytest.mark.contract
CONFIG = f"""
[daemon]
spares = 2
[tool.trust]
kind = "python"
module = "tests.trust.tools"
path = "{REPOSITORY}"
[tool.cases]
kind = "python"
module = "case_tools"
path = "{os.path.dirname(__file__)}"
[tool.server]
kind = "command"
argv = ["sleep", "{{seconds}}"]
arguments = {{ seconds = "str" }}
resource = "one-server"
[tool.watched]
kind = "command"
argv = ["sh", "-c", 'echo x >> "$1"; sleep 1000', "sh", "{{file}}"]
arguments = {{ file = "str" }}
idle_timeout_ms = 1_000
"""
ROUNDS = 150
ENOUGH_MS = 30_000


class Place:
    """Daemons of one state, one after the other, and a file in which every execution leaves a line."""

    def __init__(self, start: Any, directory: Path) -> None:
        self._start = start
        self.file = directory / "effects"
        self.daemon: TestedDaemon = start(CONFIG)

    def follow(self) -> None:
        """The daemon is killed, and another one takes its place."""
        self.daemon.kill()
        self.daemon = self._start(CONFIG, after=self.daemon)

    def done(self) -> Counter[str]:
        """How often each name was done."""
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        return Counter(line.split()[0] for line in lines)

    def effect(self, name: str, **more: Any) -> dict[str, Any]:
        return {"file": str(self.file), "name": name, **more}

    def begin(self, client: Client, name: str, **options: Any) -> CallHandle:
        """A call that has had its effect and does not come back."""
        handle = client.submit("trust_effect", self.effect(name, after_ms=60_000), deadline_ms=60_000, **options)
        wait_until(lambda: self.done()[name] == 1, f"{name} was not done")
        return handle


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    directory = Path(tempfile.mkdtemp(prefix="dl-k13-"))
    try:
        with open_daemons() as start:
            yield Place(start, directory)
    finally:
        shutil.rmtree(directory)


@pytest.fixture
def client(place: Place) -> Iterator[Client]:
    with Client(place.daemon.socket) as client:
        yield client


# ---------------------------------------------------------------- B080, B085: connections that break


@pytest.mark.case("B080")
def test_a_dropped_connection_ends_attached_calls_on_record_and_detached_ones_go_on(place: Place) -> None:
    go = place.file.with_name("go")
    waits = f"until [ -e {go} ]; do sleep 0.02; done; echo kept >> {place.file}"
    with Client(place.daemon.socket) as lost:
        attached = place.begin(lost, "attached").call
        kept = lost.submit("script", {"text": waits}, deadline_ms=60_000, detach=True).call
        reading = lost.submit("trust_sleep", {}, deadline_ms=60_000).call
        for call in (kept, reading):
            wait_until(lambda call=call: [row for row in lost.processes() if row.call == call and row.pid], "it waits")
    with Client(place.daemon.socket) as again:
        ended = {call: again.handle(call).wait(PATIENCE_S) for call in (attached, reading)}
        assert again.handle(kept).result() is None, "the detached one goes on"
        go.touch()
        ended[kept] = again.handle(kept).wait(PATIENCE_S)
        assert {(ended[call].status, ended[call].reason) for call in (attached, reading)} == {
            ("cancelled", "disconnect")
        }
        assert (ended[kept].status, place.done()["kept"]) == ("ok", 1)
        assert ended[attached].delivery == "unknown"
        assert attached in {effect.call for effect in again.effects()}
        again.close_effect(attached, "the test has seen it")
        recorded = [event.data["reason"] for event in again.events(call=attached) if event.kind == "call_ended"]
        assert recorded == ["disconnect"]


@pytest.mark.case("B085")
def test_a_call_that_its_client_abandons_holds_up_none_behind_it(place: Place, client: Client) -> None:
    with Client(place.daemon.socket) as leaver:
        leaver.submit("server", {"seconds": FOREVER}, deadline_ms=60_000)
        wait_until(lambda: [row for row in client.processes() if row.tool == "server" and row.pid], "it does not run")
        behind = [client.submit("server", {"seconds": "0"}, deadline_ms=ENOUGH_MS) for _ in range(4)]
        assert all(handle.result() is None for handle in behind)
    assert {handle.wait(PATIENCE_S).status for handle in behind} == {"ok"}
    assert client.status().degraded == []
    detached = client.submit("server", {"seconds": "0.2"}, detach=True)
    assert client.handle(detached.call).wait(PATIENCE_S).status == "ok", "its result has an id to ask for"
    for effect in client.effects():
        client.close_effect(effect.call, "the test has seen it")


# ---------------------------------------------------------------- B081: answers that do not arrive


_CODEC = client_to_daemon(speaks_json=True)
_HELLO = _CODEC.pack(cm.Hello(1))


def deliver(place: Place, arguments: dict[str, Any], key: str, size: int | None = None) -> bytes:
    """Ask on a connection of its own, read ``size`` bytes of the answer (None: all of it), and hang up."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(PATIENCE_S)
        line.connect(place.daemon.socket)
        submit = cm.Submit(1, "trust_effect", json.dumps(arguments), ENOUGH_MS, key=key)
        line.sendall(_HELLO + _CODEC.pack(submit))
        with line.makefile("rb") as answers:
            assert b"welcome" in answers.readline()
            return answers.readline() if size is None else answers.read(size)


@pytest.mark.case("B081")
def test_an_answer_that_was_cut_at_any_byte_is_told_again_and_the_tool_ran_once(place: Place, client: Client) -> None:
    arguments = place.effect("cut")
    assert deliver(place, arguments, "cut", 1) == b"{"
    wait_until(lambda: place.done()["cut"] == 1, "it was not done")
    whole = deliver(place, arguments, "cut")
    told = json.loads(whole)["result"]
    assert (told["status"], told["replayed"]) == ("ok", True)
    for size in range(1, len(whole)):
        assert deliver(place, arguments, "cut", size) == whole[:size]
    assert deliver(place, arguments, "cut") == whole
    first = client.handle(told["call"]).wait(5)
    assert not first.replayed, "what is kept is what was told first"
    assert json.loads(json.dumps(told["content"])) == first.content
    assert place.done()["cut"] == 1


@pytest.mark.case("B081")
@pytest.mark.parametrize("size", [0, 1, 40, 400])
def test_a_first_answer_that_was_cut_is_not_lost(place: Place, size: int) -> None:
    name = f"first{size}"
    deliver(place, place.effect(name), name, size or 1)
    again = json.loads(deliver(place, place.effect(name), name))["result"]
    assert (again["status"], again["content"], place.done()[name]) == ("ok", name, 1)


# ---------------------------------------------------------------- B082: signs of life that come late


@pytest.mark.case("B082")
def test_a_call_whose_signs_of_life_come_late_has_no_second_copy(place: Place, client: Client) -> None:
    hogs = [client.submit("python", {"code": "while True: pass"}, deadline_ms=60_000) for _ in range(2)]
    handle = client.submit("trust_effect", place.effect("late", after_ms=700), deadline_ms=60_000, key="late")
    wait_until(lambda: place.done()["late"] == 1, "it was not done")
    again = [client.submit("trust_effect", place.effect("late", after_ms=700), key="late") for _ in range(5)]
    told = [one.wait(PATIENCE_S) for one in (handle, *again)]
    assert [one.replayed for one in told] == [False] + [True] * 5
    assert {one.status for one in told} == {"ok"}
    file = str(place.file)
    lost = client.call("watched", {"file": file}, deadline_ms=60_000, key="watched")
    assert (lost.status, lost.reason, lost.delivery) == ("killed", "idle", "unknown")
    assert lost.kill is not None
    assert lost.kill.confirmed, "lost is said when it is dead and collected"
    assert client.call("watched", {"file": file}, deadline_ms=60_000, key="watched").call == lost.call
    for hog in hogs:
        hog.cancel()
        hog.wait(PATIENCE_S)
    assert place.done()["late"] == 1
    assert place.done()["x"] <= 1, "a machine may be too busy for a shell to say anything in a second"
    for effect in client.effects():
        client.close_effect(effect.call, "the test has seen it")


# ---------------------------------------------------------------- B084, B086: one key


@pytest.mark.case("B084")
@pytest.mark.behaviour("M091")
def test_a_key_with_something_else_said_is_a_conflict_and_in_any_order_a_replay(place: Place, client: Client) -> None:
    def ask(arguments: str, tool: str = "trust_effect", **more: Any) -> CallResult:
        return client.call(tool, arguments, deadline_ms=ENOUGH_MS, key="K", **more)

    a = json.dumps({"file": str(place.file), "name": "K", "before_ms": 0})
    first = ask(a)
    assert (first.status, first.replayed) == ("ok", False)
    conflict = ask(json.dumps({"file": str(place.file), "name": "K2"}))
    assert (conflict.status, conflict.reason, conflict.delivery) == ("not_executed", "key_conflict", "not_delivered")
    assert first.call in (conflict.error.message if conflict.error else "")
    reordered = f'{{ "before_ms":0,\n"name":"K", "file" : {json.dumps(str(place.file))} }}'
    for told in (ask(a), ask(reordered)):
        assert told.replayed
        assert (told.call, told.content, told.status) == (first.call, first.content, "ok")
    other_tool = ask(json.dumps({"argv": ["sh", "-c", f"echo K3 >> {place.file}"]}), "shell")
    assert other_tool.reason == "key_conflict"
    assert ask(a, cwd="/tmp").reason == "key_conflict"
    assert (place.done()["K"], place.done()["K2"], place.done()["K3"]) == (1, 0, 0)


@pytest.mark.case("B086")
@pytest.mark.behaviour("M074")
def test_one_key_that_two_ask_for_at_the_same_moment_runs_once(place: Place) -> None:
    gate = threading.Barrier(2)
    told: list[list[CallResult]] = [[], []]

    def ask(mine: list[CallResult]) -> None:
        with Client(place.daemon.socket) as client:
            for number in range(ROUNDS):
                gate.wait(PATIENCE_S)
                mine.append(client.call("append", {"file": str(place.file), "line": f"r{number}"}, key=f"r{number}"))

    askers = [threading.Thread(target=ask, args=(mine,)) for mine in told]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    done = place.done()
    assert [done[f"r{number}"] for number in range(ROUNDS)] == [1] * ROUNDS
    assert [len(mine) for mine in told] == [ROUNDS, ROUNDS]
    for one, other in zip(*told, strict=True):
        assert one.call == other.call
        assert one.replayed != other.replayed


# ---------------------------------------------------------------- and all of it at once


@pytest.mark.case("B086")
@pytest.mark.behaviour("M091")
@pytest.mark.behaviour("M117")
def test_nothing_is_done_twice_by_fifty_deliveries_while_daemons_are_killed(place: Place) -> None:
    """The crash points: after the effect and before its answer; after the answer is on the disk and told."""
    told: list[CallResult] = []
    with Client(place.daemon.socket) as client:
        told.append(client.call("trust_effect", place.effect("answered"), key="answered"))
        hanging = place.begin(client, "hanging", key="hanging", detach=True).call
        for _ in range(15):
            client.submit("trust_effect", place.effect("hanging", after_ms=60_000), key="hanging", detach=True)
            told.append(client.call("trust_effect", place.effect("answered"), key="answered"))
    place.follow()
    with Client(place.daemon.socket) as client:
        for _ in range(35):
            cut_off = client.call("trust_effect", place.effect("hanging", after_ms=60_000), key="hanging")
            assert (cut_off.call, cut_off.delivery, cut_off.retryable) == (hanging, "unknown", False)
            told.append(client.call("trust_effect", place.effect("answered"), key="answered"))
        assert [effect.call for effect in client.effects()] == [hanging]
        with pytest.raises(RequestRefused, match="not_open"):
            client.close_effect(told[0].call, "it is known")
    assert {one.call for one in told} == {told[0].call}
    assert [one.replayed for one in told] == [False] + [True] * 50
    assert (place.done()["hanging"], place.done()["answered"]) == (1, 1)
