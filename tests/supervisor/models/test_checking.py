"""The compatibility checks: an upstream that keeps to everything passes, and each way not to is found by its check."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from supervisor.models import checking
from supervisor.models.checking import Check, check
from supervisor.models.choosing import GatewayError
from tests.supervisor.models.peer import Answer, open_peer
from tests.supervisor.models.spoken import chunk, server_event

SCRIPT = Path(__file__).parents[3] / "examples" / "scripts" / "check.toml"
USED = chunk(usage={"prompt_tokens": 5, "completion_tokens": 2}) + server_event("[DONE]")
GOOD_CALL = '{"word": "deadline"}'


def refused(status: int, code: str | None = None) -> Answer:
    return Answer(json.dumps({"error": {"message": "no", "code": code}}).encode(), status, "application/json")


def text(words: str = "hello", finish: str = "stop") -> Answer:
    return Answer(chunk({"content": words}) + chunk({}, finish) + USED)


def call(said: str = GOOD_CALL, name: str = "echo") -> Answer:
    one = {"index": 0, "id": "c1", "function": {"name": name, "arguments": said}}
    return Answer(chunk({"tool_calls": [one]}) + chunk({}, "tool_calls") + USED)


KEEPS = {
    "wrong key": refused(401),
    "no such model": refused(404, "model_not_found"),
    "context": refused(400, "context_length_exceeded"),
    "count": text("one", "length"),
    "call": call(),
    "result": text("it said deadline"),
    "hello": text(),
}


def kind_of(head: str, body: Any) -> str:
    """Which of the questions it is."""
    last = body["messages"][-1]
    if checking.WRONG_KEY in head:
        return "wrong key"
    if body["model"] == checking.NO_MODEL:
        return "no such model"
    if last["role"] == "tool":
        return "result"
    return {"Count": "count", "Call ": "call", "word ": "context"}.get(last["content"][:5], "hello")


async def checked(patience_s: float = 60, **differs: Answer) -> list[Check]:
    answers = KEEPS | {name.replace("_", " "): answer for name, answer in differs.items()}
    async with open_peer(answer=lambda head, body: answers[kind_of(head, body)]) as peer:
        environment = {"LLM_BASE_URL": peer.base, "LLM_API_KEY": "right-key"}
        return await check("openai:m", environment, patience_s=patience_s)


def failed(found: list[Check]) -> list[str]:
    return [one.name for one in found if one.result == "failed"]


@pytest.fixture(autouse=True)
def _a_context_that_is_soon_sent(monkeypatch):
    monkeypatch.setattr(checking, "CONTEXT_WORDS", 1_000)


@pytest.mark.behaviour("M080")
async def test_an_upstream_that_keeps_to_everything_passes_every_check():
    found = await checked()
    assert [(one.name, one.result) for one in found] == [(name, "ok") for name in checking.NAMES]
    assert all(one.detail for one in found)


@pytest.mark.behaviour("M080")
@pytest.mark.parametrize(
    ("fails", "differs"),
    [
        (["key"], {"wrong_key": text()}),
        (["key"], {"wrong_key": refused(500)}),
        (["stream", "usage"], {"hello": Answer(b"{}", kind="application/json")}),
        (["stream", "usage"], {"hello": Answer(chunk({"content": "hel"}))}),
        (["usage"], {"hello": Answer(chunk({"content": "hello"}) + chunk({}, "stop"))}),
        (["length"], {"count": text("one", "stop")}),
        (["tool_call", "tool_result"], {"call": text()}),
        (["tool_call", "tool_result"], {"call": call('{"word": "dead')}),
        (["tool_call", "tool_result"], {"call": call("{}")}),
        (["tool_call", "tool_result"], {"call": call('{"word": 7}')}),
        (["tool_call", "tool_result"], {"call": call('{"word": "deadline", "twice": true}')}),
        (["tool_call", "tool_result"], {"call": call(name="other")}),
        (["tool_result"], {"result": refused(400)}),
        (["errors"], {"no_such_model": text()}),
        (["errors"], {"no_such_model": refused(503)}),
        (["context"], {"context": text()}),
        (["context"], {"context": refused(500)}),
        (["context"], {"context": Answer(then="reset")}),
    ],
)
async def test_what_an_upstream_does_not_keep_to_is_found_by_its_check(fails, differs):
    assert failed(await checked(**differs)) == fails


async def test_an_upstream_that_never_answers_fails_in_bounded_time():
    found = await checked(patience_s=0.3, hello=Answer(then="mute"))
    assert {"stream", "usage"} <= set(failed(found))
    assert "no end after 0.3 s" in {one.detail for one in found}


async def test_a_script_plays_the_checks_that_are_conversations():
    found = {one.name: one.result for one in await check(f"scripted:{SCRIPT}", {})}
    skipped = ("key", "errors", "context")
    assert found == {name: "skipped" if name in skipped else "ok" for name in checking.NAMES}


async def test_what_is_to_be_left_out_is_and_a_key_that_is_not_set_is_not_checked():
    async with open_peer(answer=lambda head, body: KEEPS[kind_of(head, body)]) as peer:
        found = await check("openai:m", {"LLM_BASE_URL": peer.base}, ["context", "errors"])
    assert [one.name for one in found if one.result == "skipped"] == ["key", "errors", "context"]


async def test_a_model_that_is_none_is_said_before_anything_is_asked():
    with pytest.raises(GatewayError):
        await check("nothing:m", {})
