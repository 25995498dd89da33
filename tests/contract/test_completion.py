"""When a run is done, with a real daemon: files, fields and a person have a say, and a tool's "ok" has none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from deadlined import AsyncClient, Client, FieldsCheck, FieldValue, FileCheck, PersonCheck
from deadlined.agent import Request, ToolCall, call, steer
from deadlined.runs import Run
from protocol._client_messages import FinishRefused
from protocol._runs import RunStatus, StopRecord
from tests.contract.conftest import TestedDaemon

pytestmark = pytest.mark.contract


CONFIG = "[profile.tidy]\nchecks = [{ kind = 'file', path = 'rubbish', exists = false }]\n"


def refused(run: Run, answer: str = "done", **fields: FieldValue) -> str:
    end = run.finish(answer, fields)
    assert isinstance(end, FinishRefused), end
    assert run.view().refused == end.feedback
    return end.feedback


def stopped(end: StopRecord | FinishRefused) -> StopRecord:
    assert isinstance(end, StopRecord), end
    return end


@pytest.mark.behaviour("M041")
def test_a_tool_s_ok_completes_nothing_until_the_file_is_as_it_must_be(client: Client, tmp_path: Path) -> None:
    checks = [FileCheck("README.md", matches=r"^## Usage$"), FileCheck("VERSION", equals="1.0\n")]
    run = client.open_run(goal="write a README", profile="tidy", workspace=tmp_path, checks=checks)
    (tmp_path / "rubbish").mkdir()
    assert run.call("write_file", {"path": "README.md", "text": "# It\n"}).status == "ok"
    assert "it is there" in refused(run)
    (tmp_path / "rubbish").rmdir()
    assert "no line of it does" in refused(run)
    assert run.call("write_file", {"path": "README.md", "text": "# It\n## Usage\n"}).status == "ok"
    (tmp_path / "VERSION").write_text("1.0\n")
    used = run.view().budgets["tool_calls"].used
    end = stopped(run.finish("README created"))
    assert (end.status, end.reason, end.answer) == (RunStatus.COMPLETED, "finish_accepted", "README created")
    assert (used, end.budgets["tool_calls"].used) == (2, 2), "no look of a check is the run's to pay"


def test_a_file_that_cannot_be_looked_at_refuses_and_the_fourth_time_is_stuck(client: Client, tmp_path: Path) -> None:
    run = client.open_run(workspace=tmp_path, checks=[FileCheck("../outside", matches="x")])
    assert "outside" in refused(run)
    refused(run)
    refused(run)
    end = stopped(run.finish("done"))
    assert (end.status, end.phase, end.answer) == ("stuck", "complete", None)


@pytest.mark.behaviour("M120")
def test_fields_must_rest_on_what_this_run_has_found(client: Client, tmp_path: Path) -> None:
    (tmp_path / "bill").write_text("total 42\n")
    run = client.open_run(workspace=tmp_path, checks=[FieldsCheck(("total", "date"), least_evidence=2)])
    failed = run.call("read_file", {"path": "missing"})
    read = run.call("read_file", {"path": "bill"})
    assert (failed.status, read.status) == ("error", "ok")
    assert "date is missing" in refused(run, total=FieldValue("42", (read.call,)))
    invented = refused(run, total=FieldValue("42", (read.call,)), date=FieldValue("today", (failed.call,)))
    assert f"date names '{failed.call}', which the run does not have" in invented
    run.evidence("calendar")
    end = stopped(
        run.finish("42, today", {"total": FieldValue("42", (read.call,)), "date": FieldValue("today", ("calendar",))})
    )
    assert (end.status, end.fields["date"]) == ("completed", FieldValue("today", ("calendar",)))
    assert client.attach_run(run.id).view().stop == end


@pytest.mark.behaviour("M120")
def test_a_person_confirms_behind_the_checks_and_before_the_last_ones(client: Client, tmp_path: Path) -> None:
    checks = ["test -e done", PersonCheck("Is it right?"), "test -e checked"]
    run = client.open_run(workspace=tmp_path, checks=checks)
    refused(run)
    refused(run)
    assert client.approvals(run=run.id) == [], "nobody is asked about what does not hold"
    (tmp_path / "done").touch()
    waits = stopped(run.finish("first"))
    assert (waits.outcome, waits.status, waits.reason) == ("suspended", "waiting_for_approval", "approval_required")
    (asked,) = client.approvals(run=run.id)
    assert (waits.approvals, waits.answer) == ([asked.approval], "first")
    assert (asked.tool, asked.call, asked.reason) == ("finish", "", "Is it right?")
    assert json.loads(asked.arguments) == {"answer": "first", "question": "Is it right?"}
    client.reject(asked.approval, note="the date is missing")
    view = run.view()
    assert (view.status, view.refused) == ("running", "a person does not confirm the answer: the date is missing")
    run.finish("second")
    (asked,) = client.approvals(run=run.id)
    assert client.approve(asked.approval).call is None
    assert run.wait().status == "stuck", "a yes is no pass for the check behind it, which refused once too often"
    kinds = [event.kind for event in run.events()]
    assert kinds.count("run_suspended") == kinds.count("run_resumed") == kinds.count("approval_decided") == 2
    assert [event.data["run_seq"] for event in run.events()] == list(range(1, len(kinds) + 1))


def test_a_person_s_no_for_good_ends_the_run_and_a_cancel_takes_the_question_back(client: Client) -> None:
    run = client.open_run(checks=[PersonCheck()])
    run.finish("42")
    client.reject(client.approvals(run=run.id)[0].approval, then="stop")
    assert (run.wait().status, run.wait().reason) == ("blocked", "approval_rejected")
    other = client.open_run(checks=[PersonCheck()])
    other.finish("42")
    other.cancel()
    assert [one.state for one in client.approvals(run=other.id, all=True)] == ["void"]


@pytest.mark.behaviour("M120")
def test_what_waits_for_a_person_s_word_is_completed_by_it_in_the_next_life(
    start_daemon: Callable[..., TestedDaemon],
) -> None:
    first = start_daemon("")
    fields = {"order": FieldValue("4711", ("doc-1",))}
    with Client(first.socket) as client:
        runs = [client.open_run(checks=[FieldsCheck(("order",)), PersonCheck("ok?")]) for _ in range(2)]
        for run in runs:
            run.evidence("doc-1")
            assert stopped(run.finish("4711", fields)).resumable
    first.kill()
    second = start_daemon("", after=first)
    with Client(second.socket) as client:
        asked = {one.run: one.approval for one in client.approvals()}
        yes, no = (client.attach_run(run.id) for run in runs)
        client.approve(asked[yes.id])
        end = yes.wait()
        assert (end.status, end.answer, end.fields) == ("completed", "4711", fields)
        client.reject(asked[no.id], note="look again")
        assert no.view().status == "running"
        assert stopped(no.finish("4711", fields)).resumable, "the evidence of its life before is still its own"


@pytest.mark.behaviour("M120")
def test_a_loop_whose_answer_a_person_refuses_hears_why_and_goes_on(module_daemon: TestedDaemon) -> None:
    shown: list[str] = []

    def decide(request: Request) -> ToolCall:
        shown.append("\n".join(message.text for message in request.messages))
        return call("finish", answer=f"answer {len(shown)}")

    async def person(client: AsyncClient) -> None:
        for word in ("no", "yes"):
            while not (asked := await client.approvals()):
                await trio.sleep(0.01)
            (one,) = asked
            if word == "no":
                await client.reject(one.approval, note="the date is missing")
            else:
                await client.approve(one.approval)

    async def main() -> StopRecord:
        loop, other = AsyncClient(module_daemon.socket), AsyncClient(module_daemon.socket)
        async with loop, other, trio.open_nursery() as nursery:
            nursery.start_soon(person, other)
            return (await steer(loop, "say when", decide, checks=[PersonCheck()])).stop
        raise AssertionError("the nursery has ended, and nothing came of it")

    end = trio.run(main)
    assert (end.status, end.answer, len(shown)) == ("completed", "answer 2", 2)
    assert ["the date is missing" in text for text in shown] == [False, True]
