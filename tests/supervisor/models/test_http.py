"""The connection: what becomes of answers, cuts, resets, silence and cancels, against a real socket."""

from __future__ import annotations

import contextlib
import gzip
import json
from contextlib import aclosing

import httpx2
import pytest
import trio

from supervisor.clock import now_ns
from supervisor.core.model_events import ModelError, ModelEvent, Stop, Text, ToolCall, Usage
from supervisor.core.provider_failures import FailureKind, ProviderFailure, class_of
from supervisor.models.anthropic_messages import AnthropicMessages
from supervisor.models.chat_completions import ChatCompletions
from supervisor.models.failures import MOST_MESSAGE
from supervisor.models.http import HttpGateway, kind_of
from tests.supervisor.models.peer import Answer, open_gateway, open_peer, said
from tests.supervisor.models.spoken import CALLS, DIALECTS, REQUEST, chat, chunk, server_event

WHOLE = [Text("He"), Text("llo"), *CALLS, Usage(70, 9, 64), Stop("tools", "tool_calls")]
each_dialect = pytest.mark.parametrize(("dialect", "spoken"), DIALECTS.values(), ids=DIALECTS)


async def failure_of(*answers: Answer, **more: object) -> ProviderFailure:
    async with open_peer(*answers) as peer, open_gateway(peer, ChatCompletions(), **more) as gateway:
        with pytest.raises(ModelError) as raised:
            await said(gateway, REQUEST)
    return raised.value.failure


async def heard(gateway: HttpGateway) -> tuple[list[ModelEvent], ProviderFailure]:
    """What an attempt that fails has told before."""
    events = []
    try:
        async for event in gateway.stream(REQUEST):
            events.append(event)
    except ModelError as error:
        return events, error.failure
    raise AssertionError(f"it did not fail: {events}")


@pytest.mark.behaviour("M077")
@pytest.mark.behaviour("M078")
@each_dialect
async def test_a_turn_is_text_whole_calls_usage_and_a_stop(dialect, spoken):
    async with open_peer(Answer(spoken)) as peer, open_gateway(peer, dialect) as gateway:
        events = await said(gateway, REQUEST)
    assert "".join(event.text for event in events if isinstance(event, Text)) == "Hello"
    assert [event for event in events if isinstance(event, ToolCall)] == CALLS
    assert [type(event) for event in events[-2:]] == [Usage, Stop]
    assert events[-2] == Usage(70, 9, 64)
    assert events[-1].reason == "tools"


async def test_pieces_are_told_before_the_turn_is_over():
    async with open_peer(Answer(chat()[:400], then="stall")) as peer, open_gateway(peer, ChatCompletions()) as gateway:
        async with aclosing(gateway.stream(REQUEST)) as events:
            assert await anext(events) == Text("He")
        await peer.closed.wait()


@pytest.mark.behaviour("M093")
@pytest.mark.case("B119")
@pytest.mark.parametrize("then", ["close", "cut", "reset"])
@each_dialect
async def test_a_turn_that_is_cut_at_any_byte_is_incomplete_and_no_call_of_it_is_told(dialect, spoken, then):
    """Every so many bytes of the calls (`test_speech` has every single one). Where the connection is reset, what the
    kernel had not handed over is lost as well, so that a cut may be told as a reset."""
    places = list(range(spoken.index(b'"c1"'), spoken.index(b'"c2"') + 40, 31))
    kinds = {FailureKind.CUT_STREAM, *([FailureKind.RESET] if then == "reset" else [])}
    peers = open_peer(*(Answer(spoken[:at], then=then) for at in places))
    async with peers as peer, open_gateway(peer, dialect) as gateway:
        for _ in places:
            events, failure = await heard(gateway)
            assert failure.kind in kinds
            assert all(isinstance(event, Text) for event in events)


@pytest.mark.behaviour("M025")
@pytest.mark.case("B119")
@pytest.mark.parametrize("answer", [Answer(then="mute"), Answer(then="stall"), Answer(chat()[:400], then="stall")])
async def test_a_silent_upstream_is_left_at_the_deadline_and_its_connection_closed(answer):
    """The deadline is set when the request has come: how long loading takes is not the question."""
    async with (
        open_peer(answer) as peer,
        open_gateway(peer, ChatCompletions()) as gateway,
        trio.open_nursery() as nursery,
    ):
        deadline = trio.CancelScope()
        nursery.start_soon(peer.end_when_asked, deadline)
        with deadline:
            await said(gateway, REQUEST)
        assert deadline.cancelled_caught
        await peer.closed.wait()


@pytest.mark.behaviour("M025")
async def test_a_handshake_that_nobody_answers_is_left_at_the_deadline_and_its_connection_closed():
    deadline, closed = trio.CancelScope(), trio.Event()

    async def hear_and_say_nothing(stream: trio.SocketStream) -> None:
        with contextlib.suppress(trio.BrokenResourceError):
            while await stream.receive_some():
                deadline.deadline = trio.current_time()
        closed.set()

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(trio.serve_tcp, hear_and_say_nothing, 0)
            base = f"https://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
            with deadline:
                await said(HttpGateway("m", ChatCompletions(), base), REQUEST)
            assert deadline.cancelled_caught
            await closed.wait()
            nursery.cancel_scope.cancel()


async def test_an_upstream_that_says_nothing_for_longer_than_allowed_is_a_time_out():
    failure = await failure_of(Answer(chat()[:400], then="stall"), silence_ms=50)
    assert failure.kind is FailureKind.TIMEOUT


async def test_nobody_there_is_a_failure_of_the_network():
    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    base = f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
    await listener.aclose()
    with pytest.raises(ModelError) as raised:
        await said(HttpGateway("m", ChatCompletions(), base), REQUEST)
    assert raised.value.failure.kind is FailureKind.NETWORK


async def test_a_connection_that_is_not_made_in_time_never_reached_anybody_and_an_answer_that_is_late_may_have():
    assert kind_of(httpx2.ConnectTimeout(""), FailureKind.RESET) is FailureKind.NETWORK
    assert kind_of(httpx2.ReadTimeout(""), FailureKind.RESET) is FailureKind.TIMEOUT


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SSL_CERT_FILE", "/no/such/file"),
        ("ALL_PROXY", "ftp://user:word-77@host"),
        ("ALL_PROXY", "http://user:word-77@host:port"),
    ],
)
async def test_certificates_and_a_proxy_that_cannot_be_used_are_a_failure_that_nobody_repeats(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    monkeypatch.setattr("supervisor.models.http._certificates", httpx2.create_ssl_context)
    with pytest.raises(ModelError, match="cannot be used") as raised:
        await said(HttpGateway("m", ChatCompletions(), "http://host.invalid"), REQUEST)
    assert class_of(raised.value.failure) == "bug"
    assert "word-77" not in raised.value.failure.message


@pytest.mark.parametrize("then", ["cut", "reset"])
async def test_a_connection_that_ends_before_an_answer_is_a_reset(then):
    class Wordless(Answer):
        def head(self) -> bytes:
            return b""

    assert (await failure_of(Wordless(then=then))).kind is FailureKind.RESET


async def test_a_stream_without_a_word_is_an_empty_stream():
    assert (await failure_of(Answer())).kind is FailureKind.EMPTY_STREAM
    assert (await failure_of(Answer(b": hello\n\n"))).kind is FailureKind.EMPTY_STREAM


@pytest.mark.case("B124")
@pytest.mark.parametrize(("header", "least_s"), [("1", 1), ("3600", 3600), ("Wed, 21 Oct 2054 07:28:00 GMT", 10**8)])
async def test_what_a_server_asks_to_wait_is_told_as_an_instant_and_never_earlier(header, least_s):
    before_ns = now_ns()
    failure = await failure_of(Answer(b"{}", 429, "application/json", (f"retry-after: {header}",)))
    assert (failure.kind, failure.status) == (FailureKind.HTTP_STATUS, 429)
    assert failure.not_before_ns >= before_ns + least_s * 10**9


@pytest.mark.case("B124")
async def test_a_wait_that_nobody_can_read_is_none():
    failure = await failure_of(Answer(b"{}", 429, "application/json", ("retry-after: soon",)))
    assert (failure.status, failure.not_before_ns) == (429, None)


@pytest.mark.case("B127")
async def test_an_exhausted_quota_is_no_short_throttle():
    body = json.dumps({"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}).encode()
    failure = await failure_of(Answer(body, 429, "application/json", ("retry-after: 1",)))
    assert failure.kind is FailureKind.QUOTA_SPENT
    assert class_of(failure) == "auth"


async def test_the_status_counts_though_its_words_never_come(monkeypatch):
    monkeypatch.setattr("supervisor.models.http._ERROR_BODY_S", 0.05)
    failure = await failure_of(Answer(b'{"error"', 503, "application/json", then="stall"))
    assert (failure.kind, failure.status) == (FailureKind.HTTP_STATUS, 503)


async def test_an_error_in_the_stream_has_the_status_of_its_word():
    error = server_event({"error": {"message": "busy", "type": "overloaded_error"}})
    failure = await failure_of(Answer(chunk({"content": "He"}) + error))
    assert (failure.kind, failure.status, failure.message) == (FailureKind.HTTP_STATUS, 529, "busy")


async def test_an_answer_that_is_no_stream_is_said_to_be_none():
    failure = await failure_of(Answer(b"<html>", kind="text/html"))
    assert (failure.kind, class_of(failure)) == (FailureKind.OTHER, "bug")
    assert "text/html" in failure.message


async def test_an_answer_without_end_is_left(monkeypatch):
    monkeypatch.setattr("supervisor.models.http.MOST_ANSWER_BYTES", 1000)
    assert (await failure_of(Answer(chat() + b" " * 1000, then="stall"))).kind is FailureKind.OTHER


async def test_a_compressed_answer_is_read():
    packed = Answer(gzip.compress(chat()), more=("content-encoding: gzip",))
    async with open_peer(packed) as peer, open_gateway(peer, ChatCompletions()) as gateway:
        assert await said(gateway, REQUEST) == WHOLE


@pytest.mark.behaviour("M165")
@pytest.mark.parametrize("answer", [Answer(status=503), Answer(status=429), Answer(then="cut"), Answer(status=302)])
async def test_a_gateway_makes_one_attempt_and_no_other(answer):
    async with open_peer(answer) as peer, open_gateway(peer, ChatCompletions()) as gateway:
        with pytest.raises(ModelError):
            await said(gateway, REQUEST)
    assert len(peer.heard) == 1


@pytest.mark.behaviour("M089")
async def test_the_attempt_after_a_cut_one_tells_its_own_turn_and_nothing_of_the_draft():
    async with (
        open_peer(Answer(chat()[:700]), Answer(chat())) as peer,
        open_gateway(peer, ChatCompletions()) as gateway,
    ):
        with pytest.raises(ModelError):
            await said(gateway, REQUEST)
        assert await said(gateway, REQUEST) == WHOLE


@each_dialect
async def test_one_turn_after_the_other_takes_one_connection(dialect, spoken):
    staying = Answer(spoken, then="stay")
    async with open_peer(staying, staying, Answer(spoken)) as peer, open_gateway(peer, dialect) as gateway:
        for _ in range(3):
            async with aclosing(gateway.stream(REQUEST)) as events:
                async for event in events:
                    if isinstance(event, Stop):
                        break  # as the loop does: nothing that comes behind it is its business
    assert (len(peer.heard), peer.connections) == (3, 1)


@each_dialect
async def test_a_turn_is_whole_with_its_stop_though_the_answer_never_ends(dialect, spoken):
    async with open_peer(Answer(spoken, then="stall")) as peer, open_gateway(peer, dialect) as gateway:
        assert isinstance((await said(gateway, REQUEST))[-1], Stop)
        await peer.closed.wait()


@each_dialect
async def test_the_key_goes_in_its_header_and_into_no_message(dialect, spoken):
    answer = Answer(b'{"error": {"message": "wrong key: key-123456"}}', 401, "application/json")
    async with open_peer(answer) as peer, open_gateway(peer, dialect) as gateway:
        with pytest.raises(ModelError) as raised:
            await said(gateway, REQUEST)
        head, body = peer.heard[0]
    assert "key-123456" in head
    assert "key-123456" not in json.dumps(body)
    assert raised.value.failure.message == "wrong key: [LLM_API_KEY]"
    assert "key-123456" not in str(raised.value)


@pytest.mark.parametrize("before", range(MOST_MESSAGE - len("key-123456") - 1, MOST_MESSAGE + 1))
async def test_no_part_of_the_key_is_left_where_a_message_is_cut(before):
    words = "x" * before + "key-123456" + "y" * 1000
    failure = await failure_of(Answer(server_event({"error": {"message": words}})))
    assert len(failure.message) == MOST_MESSAGE
    assert "key" not in failure.message


@pytest.mark.parametrize(
    "answer",
    [
        Answer(server_event({"type": "x" * 10_000})),
        Answer(json.dumps({"error": {"message": "x" * 10_000}}).encode(), 500, "application/json"),
        Answer(kind="x" * 10_000),
    ],
)
async def test_a_message_has_a_bound_wherever_its_words_come_from(answer):
    async with open_peer(answer) as peer, open_gateway(peer, AnthropicMessages()) as gateway:
        with pytest.raises(ModelError) as raised:
            await said(gateway, REQUEST)
    assert len(raised.value.failure.message) == MOST_MESSAGE
