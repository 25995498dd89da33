"""The client's talk, joined against the daemon's end of the same link, with no socket between them."""

import pytest

from deadlined._conversation import Conversation
from deadlined._errors import ConnectionLost, NotUnderstood, RequestRefused
from protocol import _client_messages as cm
from protocol._codecs import daemon_to_client
from protocol._framing import FRAME_LIMIT, FrameBuffer
from protocol._links import ClientLink, Speaker
from protocol._outcomes import CallResult, ErrorClass, ErrorInfo, Status

WELCOME = cm.Welcome(version=1, features=[], daemon_pid=1, containment="pidns", frame_limit=FRAME_LIMIT)
RESULT = CallResult(call="c_1", tool="t", status=Status.OK)
ERROR = ErrorInfo(ErrorClass.ARGUMENT, "unknown_call", "no call c_9 is known")
ANSWERS = {
    cm.Submit: cm.Settled(0, RESULT),
    cm.Cancel: cm.CancelAccepted(0, "c_1", True),
    cm.Wait: cm.Settled(0, RESULT),
    cm.ReadOutput: cm.OutputChunk(0, "c_1", 0, b"x", False),
    cm.ListTools: cm.Tools(0, []),
    cm.AskStatus: cm.DaemonStatus(0, 1, "0", "pidns", [], 0, [], 0, 0, 0, 0, 0, 0, 0, 0),
    cm.ListProcesses: cm.Processes(0, []),
    cm.AskConfig: cm.EffectiveConfig(0, {}, {}),
}


class Peer:
    """The daemon's end: hears what the client wrote and says what a test wants, both by the link's table."""

    def __init__(self):
        self.link, self.codec, self.frames = ClientLink(Speaker.DAEMON), daemon_to_client(False), FrameBuffer()

    def hear(self, data):
        heard = [self.codec.unpack(body) for body in self.frames.feed(data)]
        for message in heard:
            self.link.hear(message)
        return heard

    def say(self, message):
        self.link.say(message)
        return self.codec.pack(message)


@pytest.fixture
def peer():
    return Peer()


@pytest.fixture
def talk(peer):
    talk = Conversation("test")
    assert peer.hear(talk.hello())[0].client == "test"
    talk.receive(peer.say(WELCOME))
    assert talk.ready
    return talk


def _request(kind):
    return {
        cm.Submit: lambda: cm.Submit(id=0, tool="t"),
        cm.Wait: lambda: cm.Wait(id=0, call="c_1"),
        cm.ReadOutput: lambda: cm.ReadOutput(id=0, call="c_1"),
    }.get(kind, lambda: kind(id=0))()


def _answered(peer, message, number):
    message.id = number
    return peer.say(message)


@pytest.mark.parametrize("kind", ANSWERS, ids=lambda kind: kind.__name__)
def test_every_request_is_heard_by_a_daemon_and_ended_by_its_answer(talk, peer, kind):
    exchange, data = talk.ask(_request(kind))
    (heard,) = peer.hear(data)
    assert talk.receive(_answered(peer, ANSWERS[kind], heard.id)) == [exchange]
    assert exchange.outcome(type(ANSWERS[kind])) == ANSWERS[kind]


def test_nothing_can_be_asked_before_the_welcome():
    talk = Conversation()
    talk.hello()
    with pytest.raises(Exception, match="may not say ListTools"):
        talk.ask(cm.ListTools(id=0))


def test_answers_find_their_requests_in_any_order_and_any_cut(talk, peer):
    exchanges = [talk.ask(cm.Submit(id=0, tool="t"))[0] for _ in range(20)]
    for exchange in exchanges:
        peer.hear(talk._codec.pack(exchange.request))
    said = b"".join(
        peer.say(cm.Settled(e.request.id, CallResult(call=f"c_{e.request.id}", tool="t", status=Status.OK)))
        for e in reversed(exchanges)
    )
    moved = [exchange for byte in said for exchange in talk.receive(bytes([byte]))]
    assert moved == exchanges[::-1]
    assert [e.outcome(cm.Settled).result.call for e in exchanges] == [f"c_{e.request.id}" for e in exchanges]


def test_an_announced_submit_is_over_when_it_settles(talk, peer):
    exchange, data = talk.ask(cm.Submit(id=0, tool="t", announce=True))
    peer.hear(data)
    talk.receive(peer.say(cm.Submitted(exchange.request.id, "c_1", 5000)))
    assert exchange.announced
    assert not exchange.over
    talk.receive(peer.say(cm.Settled(exchange.request.id, RESULT)))
    assert exchange.over
    assert exchange.call() == "c_1"


def test_a_detached_submit_is_over_when_it_is_announced(talk, peer):
    exchange, data = talk.ask(cm.Submit(id=0, tool="t", detach=True))
    peer.hear(data)
    talk.receive(peer.say(cm.Submitted(exchange.request.id, "c_1", 5000)))
    assert exchange.over
    assert exchange.detached


def test_a_refusal_ends_one_exchange_and_no_other(talk, peer):
    good, bad = talk.ask(cm.Submit(id=0, tool="t"))[0], talk.ask(cm.Wait(id=0, call="c_9"))[0]
    peer.hear(talk._codec.pack(good.request) + talk._codec.pack(bad.request))
    talk.receive(peer.say(cm.Failed(bad.request.id, ERROR)))
    with pytest.raises(RequestRefused, match="no call c_9 is known"):
        bad.outcome(cm.Settled)
    assert not good.over
    assert talk.ready


def test_a_refused_greeting_says_why():
    peer, talk = Peer(), Conversation()
    peer.hear(talk.hello())
    talk.receive(peer.say(cm.Failed(None, ErrorInfo(ErrorClass.ARGUMENT, "unknown_version", "version 9 is unknown"))))
    assert isinstance(talk.error, RequestRefused)
    assert "version 9" in str(talk.error)


def test_the_end_of_the_stream_ends_every_open_exchange(talk, peer):
    exchanges = [talk.ask(cm.Submit(id=0, tool="t"))[0] for _ in range(3)]
    assert talk.receive(b"") == exchanges
    assert talk.receive(b"") == []
    for exchange in exchanges:
        with pytest.raises(ConnectionLost, match="before it answered"):
            exchange.outcome(cm.Settled)
    with pytest.raises(ConnectionLost):
        talk.ask(cm.ListTools(id=0))


def test_a_torn_answer_is_a_lost_connection_and_never_a_result(talk, peer):
    exchange, data = talk.ask(cm.Submit(id=0, tool="t"))
    peer.hear(data)
    talk.receive(peer.say(cm.Settled(exchange.request.id, RESULT))[:-1])
    assert not exchange.over
    talk.receive(b"")
    with pytest.raises(ConnectionLost):
        exchange.outcome(cm.Settled)


def test_the_daemons_last_words_reach_every_open_exchange(talk, peer):
    exchange, data = talk.ask(cm.Submit(id=0, tool="t"))
    peer.hear(data)
    talk.receive(peer.say(cm.Failed(None, ErrorInfo(ErrorClass.OVERLOADED, "slow_client", "you do not read"))))
    with pytest.raises(ConnectionLost, match="you do not read"):
        exchange.outcome(cm.Settled)


@pytest.mark.parametrize(
    "said",
    [
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x01\xc1",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        daemon_to_client(False).pack(cm.Settled(77, RESULT)),
        daemon_to_client(False).pack(cm.Failed(77, ERROR)),
        daemon_to_client(False).pack(cm.Tools(1, [])),
        daemon_to_client(False).pack(cm.Submitted(2, "c_1", 1)),
        daemon_to_client(False).pack(WELCOME),
    ],
    ids=["oversized", "no message", "http", "strange number", "strange refusal", "wrong kind", "submitted", "welcome"],
)
def test_a_peer_that_is_no_daemon_ends_the_connection_and_nothing_else(talk, said):
    submitted, asked = talk.ask(cm.Submit(id=0, tool="t"))[0], talk.ask(cm.AskStatus(id=0))[0]
    talk.receive(said)
    assert isinstance(talk.error, NotUnderstood)
    for exchange in (submitted, asked):
        with pytest.raises(NotUnderstood):
            exchange.outcome(cm.Settled)


def test_what_cannot_be_said_is_a_value_error_and_opens_nothing(talk):
    for request in (
        cm.Submit(id=0, tool="\ud800"),
        cm.Submit(id=0, tool="t", deadline_ms=2**64),
        cm.Submit(id=0, tool="t", deadline_ms=object()),
        cm.Submit(id=0, tool="t", arguments="x" * (FRAME_LIMIT + 1)),
    ):
        with pytest.raises(ValueError):
            talk.ask(request)
    assert talk.receive(b"") == []


@pytest.mark.parametrize(
    "request_",
    [
        lambda: cm.Submit(id=0, tool="t", key=5),
        lambda: cm.Submit(id=0, tool="t", split_streams="yes"),
        lambda: cm.Submit(id=0, tool="t", max_output_bytes=0),
        lambda: cm.OpenRun(id=0, on_disconnect="stay"),
        lambda: cm.OpenRun(id=0, checks=[5]),
        lambda: cm.FinishRun(id=0, run="r_1", answer=42),
    ],
)
def test_what_no_daemon_would_understand_is_a_value_error_and_costs_nobody_the_connection(talk, peer, request_):
    exchange, data = talk.ask(cm.Submit(id=0, tool="t"))
    peer.hear(data)
    with pytest.raises(ValueError, match=r"cannot be sent: .* - at `\$\."):
        talk.ask(request_())
    assert talk.receive(peer.say(cm.Settled(exchange.request.id, RESULT))) == [exchange]


def test_a_late_answer_cannot_revive_what_is_over(talk, peer):
    exchange, data = talk.ask(cm.Submit(id=0, tool="t"))
    peer.hear(data)
    said = peer.say(cm.Settled(exchange.request.id, RESULT))
    talk.receive(said + said)
    assert exchange.outcome(cm.Settled).result == RESULT
    assert isinstance(talk.error, NotUnderstood)
