"""The gateways against a mock of providers that others have written, as a process of its own on loopback.

It is an npm package, kept in the user's cache from the first run on. Without node, or without a registry at that first
run, these tests are skipped: what they show is shown by a peer of ours, too (`tests/supervisor/models/test_http.py`).
A skip proves nothing: `make behaviours` lists the rows that they are marked with as missing then.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import IO

import pytest
import trio

from supervisor.core.model_events import Message, ModelError, ModelEvent, Request, Stop, Text, ToolCall, Usage
from supervisor.core.provider_failures import FailureKind, ProviderFailure, class_of
from supervisor.models.checking import CALL, ECHO, WRONG_KEY, check
from supervisor.models.choosing import gateway

pytestmark = pytest.mark.contract
PACKAGE, VERSION = "@copilotkit/aimock", "1.43.0"
KEY = "aimock-key-123456"
NAMES = ("openai:m", "openai-responses:m", "anthropic:m")
each_protocol = pytest.mark.parametrize("name", NAMES)
CALLED = {"toolCalls": [{"name": "echo", "arguments": '{"word": "deadline"}'}]}
SLOWED = {"error": {"message": "slow down", "type": "rate_limit_error", "code": "rate_limit_exceeded"}, "status": 429}
CUT = {"chunkSize": 4, "latency": 5, "truncateAfterChunks": 4}
FIXTURES = [
    {
        "match": {"model": "m", "userMessage": "single word: hello"},
        "response": {"content": "hello, in some pieces"},
        "chunkSize": 4,
    },
    {
        "match": {"model": "m", "userMessage": "Count from 1"},
        "response": {"content": "one two", "finishReason": "length"},
    },
    {"match": {"model": "m", "userMessage": "tool echo", "hasToolResult": False}, "response": CALLED},
    {
        "match": {"model": "m", "userMessage": "tool echo", "hasToolResult": True},
        "response": {"content": "it said deadline"},
    },
    {"match": {"model": "m", "userMessage": "be limited"}, "response": SLOWED},
    {"match": {"model": "m", "userMessage": "drop it"}, "response": {"content": "x"}, "chaos": {"dropRate": 1}},
    {
        "match": {"model": "m", "userMessage": "disconnect"},
        "response": {"content": "x"},
        "chaos": {"disconnectRate": 1},
    },
    {
        "match": {"model": "m", "userMessage": "be malformed"},
        "response": {"content": "x"},
        "chaos": {"malformedRate": 1},
    },
    {"match": {"model": "m", "userMessage": "cut the text"}, "response": {"content": "cut " * 20}, **CUT},
    {"match": {"model": "m", "userMessage": "cut the call"}, "response": CALLED, **CUT},
]


@pytest.fixture(scope="module")
def upstream() -> Iterator[dict[str, str]]:
    """The environment that leads to a mock which runs for this module."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    program = _package() / "node_modules" / PACKAGE / "dist" / "cli.js"
    with tempfile.TemporaryDirectory() as directory:
        fixtures = Path(directory) / "fixtures.json"
        fixtures.write_text(json.dumps({"fixtures": FIXTURES}))
        words = [node, str(program), "-h", "127.0.0.1", "-p", "0", "-f", str(fixtures)]
        environment = {"PATH": os.environ["PATH"], "AIMOCK_API_KEYS": KEY}
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment) as process:
            try:
                yield {"LLM_API_KEY": KEY, "LLM_BASE_URL": f"{_address(process.stdout)}/v1"}
            finally:
                process.kill()


def _package() -> Path:
    """Where the package is; installed beside and moved there in one step, because lanes run side by side."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "deadlined-tests" / f"aimock-{VERSION}"
    if home.exists():
        return home
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent) as made:
        words = ["npm", "install", "--prefix", made, "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=0"]
        try:
            subprocess.run([*words, f"{PACKAGE}@{VERSION}"], check=True, capture_output=True, timeout=120)
        except (OSError, subprocess.SubprocessError) as error:
            pytest.skip(f"{PACKAGE} cannot be installed: {error}")
        if not home.exists():
            shutil.copytree(made, partial := home.with_name(f"{home.name}.{os.getpid()}"))
            try:
                partial.rename(home)
            except OSError:
                shutil.rmtree(partial)  # another lane was first
    return home


def _address(words: IO[bytes] | None) -> str:
    said = []
    for line in words or ():
        said.append(line.decode())
        if found := re.search(r"listening on (http://[\d.]+:\d+)", said[-1]):
            return found[1]
    pytest.fail(f"the mock did not start: {said}")


Told = tuple[list[ModelEvent], ProviderFailure | None]


async def answer(name: str, upstream: dict[str, str], *messages: Message) -> Told:
    """What one attempt tells, and how it failed."""
    model, told = gateway(name, upstream), list[ModelEvent]()
    with trio.fail_after(30):
        try:
            async with aclosing(model.stream(Request(messages, [ECHO]))) as events:
                async for event in events:
                    told.append(event)
        except ModelError as error:
            return told, error.failure
        finally:
            await model.aclose()
    return told, None


@pytest.mark.behaviour("M078")
@each_protocol
async def test_a_text_comes_in_pieces_with_usage_and_a_stop(name, upstream):
    told, _ = await answer(name, upstream, Message("user", "Reply with the single word: hello."))
    pieces = [event.text for event in told if isinstance(event, Text)]
    assert "".join(pieces) == "hello, in some pieces"
    assert len(pieces) > 1
    assert [type(event) for event in told[-2:]] == [Usage, Stop]
    assert told[-1].reason == "end"


@pytest.mark.behaviour("M077")
@each_protocol
async def test_a_tool_is_called_and_its_result_is_taken(name, upstream):
    asked = Message("user", CALL)
    told, _ = await answer(name, upstream, asked)
    (call,) = [event for event in told if isinstance(event, ToolCall)]
    assert (call.name, json.loads(call.arguments)) == ("echo", {"word": "deadline"})
    assert told[-1].reason == "tools"
    history = (asked, Message("assistant", "", (call,)), Message("tool", "deadline", answers=call.id))
    told, failure = await answer(name, upstream, *history)
    assert failure is None
    assert "".join(event.text for event in told if isinstance(event, Text)) == "it said deadline"


@each_protocol
async def test_a_rate_limit_comes_with_the_time_to_wait(name, upstream):
    _, failure = await answer(name, upstream, Message("user", "be limited"))
    assert failure is not None
    assert (failure.kind, failure.status) == (FailureKind.HTTP_STATUS, 429)
    assert failure.not_before_ns is not None


@each_protocol
async def test_a_wrong_key_is_refused(name, upstream):
    _, failure = await answer(name, {**upstream, "LLM_API_KEY": WRONG_KEY}, Message("user", "hello"))
    assert failure is not None
    assert class_of(failure) == "auth"


BROKEN = {
    "drop it": {FailureKind.HTTP_STATUS},
    "disconnect": {FailureKind.RESET},
    "be malformed": {FailureKind.OTHER},
    "cut the text": {FailureKind.CUT_STREAM, FailureKind.RESET},
    "cut the call": {FailureKind.CUT_STREAM, FailureKind.RESET},
}


@pytest.mark.behaviour("M089")
@pytest.mark.behaviour("M093")
@pytest.mark.parametrize("what", BROKEN)
@each_protocol
async def test_what_is_dropped_cut_or_malformed_is_a_failure_of_its_kind_and_no_turn(name, what, upstream):
    told, failure = await answer(name, upstream, Message("user", what))
    assert failure is not None
    assert failure.kind in BROKEN[what]
    assert not [event for event in told if not isinstance(event, Text)]


@pytest.mark.behaviour("M080")
@each_protocol
async def test_the_checks_of_a_provider_find_what_this_one_keeps_to(name, upstream):
    """It counts no tokens for two of the protocols, and has no context that could be too small."""
    found = {one.name: one.result for one in await check(name, upstream, skip=("context", "usage"))}
    assert {word for word, result in found.items() if result == "skipped"} == {"context", "usage"}
    assert not [word for word, result in found.items() if result == "failed"]
