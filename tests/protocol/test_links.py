"""Both ends of each link, joined: what one may say the other may hear, and whoever breaks the table is named by the
error's type."""

from __future__ import annotations

import itertools
import random
import typing
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import _client_messages as cm
from protocol import _worker_messages as wm
from protocol._errors import LocalProtocolError, RemoteProtocolError
from protocol._links import (
    CLIENT_LINK,
    EXCHANGES,
    STRAGGLER_LIMIT,
    WORKER_LINK,
    Awaited,
    ClientLink,
    ClientState,
    Speaker,
    WorkerLink,
    WorkerState,
)
from protocol._outcomes import CallResult, ErrorClass, ErrorInfo, Status
from tests.trust.spoken import each_of, speaker_of

RESULT = CallResult("c_1", "shell", Status.OK)
OOPS = ErrorInfo(ErrorClass.BUG, "oops", "it broke")
CLIENT_KINDS = typing.get_args(cm.FromClient)
DAEMON_KINDS = typing.get_args(cm.FromDaemon)
WORKER_KINDS = typing.get_args(wm.FromWorker)
REQUESTS = [kind for kind in CLIENT_KINDS if kind is not cm.Hello]
ANSWERS = [kind for kind in DAEMON_KINDS if kind not in (cm.Welcome, cm.Failed)]
CLIENT_SIDE = {
    kind: message
    for union in (cm.FromClient, cm.FromDaemon)
    for message in each_of(union, random.Random(0))
    for kind in [type(message)]
}
WORKER_SIDE = {
    type(message): message for message in [wm.Call(1, "t", "{}", 1, "k"), *each_of(wm.FromWorker, random.Random(0))]
}


# ---------------------------------------------------------------- two ends, joined


class Joined:
    """Two ends with everything that is on its way between them."""

    def __init__(self, one: Any, other: Any, may_say: dict[int, Callable[[random.Random], Any]]) -> None:
        self.ends = (one, other)
        self.on_the_way: tuple[deque[Any], deque[Any]] = (deque(), deque())
        self.may_say = may_say
        self.said = 0

    def say_something(self, end: int, rng: random.Random) -> None:
        """An end tries messages until its own table allows one; what it forbids is never sent."""
        for _ in range(8):
            message = self.may_say[end](rng)
            try:
                self.ends[end].say(message)
            except LocalProtocolError:
                continue
            self.said += 1
            self.on_the_way[end].append(message)
            return

    def deliver_one(self, end: int) -> None:
        if self.on_the_way[end]:
            self.ends[1 - end].hear(self.on_the_way[end].popleft())

    def deliver_all(self) -> None:
        for end in (0, 1):
            while self.on_the_way[end]:
                self.deliver_one(end)

    def play(self, moves: list[int], rng: random.Random) -> None:
        for move in moves:
            end, deliver = divmod(move, 2)
            if deliver:
                self.deliver_one(end)
            else:
                self.say_something(end, rng)
        self.deliver_all()


def numbered(union: Any) -> Callable[[random.Random], Any]:
    """Messages of a client's link whose ids come from a pool so small that they meet."""
    speak = speaker_of(union)

    def say(rng: random.Random) -> Any:
        message = speak(rng)
        if hasattr(message, "id"):
            closing = isinstance(message, cm.Failed) and rng.random() < 0.02
            message.id = None if closing else rng.randrange(3)
        return message

    return say


def nonced(union: Any, link: WorkerLink) -> Callable[[random.Random], Any]:
    """Messages of a worker's link whose nonces lie around the one that the speaker is at."""
    speak = speaker_of(union)

    def say(rng: random.Random) -> Any:
        message = speak(rng)
        if hasattr(message, "nonce"):
            message.nonce = link.nonce + rng.choice((0, 0, 0, 1, -1))
        return message

    return say


def joined_client() -> Joined:
    client, daemon = ClientLink(Speaker.CLIENT), ClientLink(Speaker.DAEMON)
    return Joined(client, daemon, {0: numbered(cm.FromClient), 1: numbered(cm.FromDaemon)})


def joined_worker() -> Joined:
    worker, daemon = WorkerLink(Speaker.WORKER), WorkerLink(Speaker.DAEMON)
    return Joined(worker, daemon, {0: nonced(wm.FromWorker, worker), 1: nonced(wm.ToWorker, daemon)})


MOVES = st.lists(st.integers(0, 3), max_size=60)
RANDOM = st.builds(random.Random, st.integers(0, 2**32))


@given(MOVES, RANDOM)
def test_whatever_a_client_or_daemon_may_say_the_other_may_hear(moves: list[int], rng: random.Random) -> None:
    joined = joined_client()
    joined.play(moves, rng)
    client, daemon = joined.ends
    if daemon.state is not ClientState.CLOSED:
        assert (client.state, client.open) == (daemon.state, daemon.open)


@given(MOVES, RANDOM)
def test_whatever_a_worker_or_daemon_may_say_the_other_may_hear(moves: list[int], rng: random.Random) -> None:
    joined = joined_worker()
    joined.play(moves, rng)
    worker, daemon = joined.ends
    assert (worker.state, worker.nonce) == (daemon.state, daemon.nonce)
    assert daemon.stragglers == worker.stragglers == 0


@pytest.mark.parametrize("join", [joined_client, joined_worker])
def test_the_joined_ends_do_get_to_talk(join: Callable[[], Joined]) -> None:
    """The tests above would prove nothing if the tables forbade everything that the players try."""
    said = []
    for seed in range(20):
        rng = random.Random(seed)
        joined = join()
        joined.play([rng.randrange(4) for _ in range(200)], rng)
        said.append(joined.said)
    assert sum(said) / len(said) > 15


# ---------------------------------------------------------------- a client's link


def ready(us: Speaker) -> ClientLink:
    return in_client_state(us, ClientState.READY)


def in_client_state(us: Speaker, state: ClientState) -> ClientLink:
    """An end driven to a state by the shortest talk."""
    link = ClientLink(us)
    talk: list[tuple[Speaker, Any]] = [(Speaker.CLIENT, cm.Hello(cm.VERSION)), (Speaker.DAEMON, welcome())]
    if state is ClientState.CLOSED:
        talk = [(Speaker.DAEMON, cm.Failed(None, OOPS))]
    for speaker, message in talk:
        if link.state is state:
            break
        link.say(message) if speaker is us else link.hear(message)
    assert link.state is state
    return link


def welcome() -> cm.Welcome:
    return cm.Welcome(cm.VERSION, list(cm.FEATURES), 1, "pidns", 1 << 20)


MISSING_CLIENT_CELLS = [
    (state, speaker, kind)
    for state, (speaker, kinds) in itertools.product(
        ClientState, ((Speaker.CLIENT, CLIENT_KINDS), (Speaker.DAEMON, DAEMON_KINDS))
    )
    for kind in kinds
    if (state, speaker, kind) not in CLIENT_LINK
]


@pytest.mark.parametrize(("state", "speaker", "kind"), MISSING_CLIENT_CELLS)
def test_a_missing_cell_of_a_clients_link_is_the_speakers_fault(
    state: ClientState, speaker: Speaker, kind: type
) -> None:
    message = CLIENT_SIDE[kind]
    peer = Speaker.DAEMON if speaker is Speaker.CLIENT else Speaker.CLIENT
    speaking, hearing = in_client_state(speaker, state), in_client_state(peer, state)
    with pytest.raises(LocalProtocolError, match=f"{speaker.name.lower()} may not say {kind.__name__}"):
        speaking.say(message)
    if state is ClientState.CLOSED and peer is Speaker.DAEMON:
        assert hearing.hear(message) is False
    else:
        with pytest.raises(RemoteProtocolError, match=f"{speaker.name.lower()} may not say {kind.__name__}"):
            hearing.hear(message)
    assert speaking.state is hearing.state is state


def test_every_message_of_the_client_link_has_a_cell() -> None:
    placed = {kind for _, _, kind in CLIENT_LINK}
    assert placed == {*CLIENT_KINDS, *DAEMON_KINDS}


def test_every_request_has_an_answer_of_its_own_and_may_fail() -> None:
    for awaited in Awaited:
        answers = {kind for have, kind in EXCHANGES if have is awaited}
        assert cm.Failed in answers
        assert len(answers) > 1
    assert {kind for _, kind in EXCHANGES} == {*ANSWERS, cm.Failed}


def request(kind: type, number: int = 1, **fields: Any) -> Any:
    needed: dict[type, dict[str, Any]] = {
        cm.Submit: {"tool": "shell"},
        cm.Wait: {"call": "c_1"},
        cm.ReadOutput: {"call": "c_1"},
        cm.Decide: {"approval": "a_1", "decision": "approve"},
        cm.AddEvidence: {"run": "r_1", "evidence": "doc-1"},
        cm.SettleModel: {"run": "r_1", "reservation": 1},
        cm.CloseEffect: {"call": "c_1", "note": "it was done"},
        cm.RefuseCall: {"run": "r_1", "tool": "finish", "text": "there is no answer in it"},
        cm.AskPerson: {"run": "r_1", "question": "Which order?"},
        cm.StopRun: {"run": "r_1", "reason": "auth"},
        cm.KeepNotes: {"run": "r_1", "notes": "[]"},
        **{
            kind: {"run": "r_1"}
            for kind in (
                cm.StepRun,
                cm.ReserveModel,
                cm.RetryModel,
                cm.ReadNotes,
                cm.FinishRun,
                cm.CancelRun,
                cm.ResumeRun,
                cm.ShowRun,
                cm.WaitRun,
            )
        },
    }
    return kind(id=number, **needed.get(kind, {}), **fields)


def answer(kind: type, number: int = 1) -> Any:
    message = CLIENT_SIDE[kind]
    return kind(**{name: number if name == "id" else getattr(message, name) for name in kind.__struct_fields__})


ASKED: list[tuple[Any, set[type]]] = [
    (request(cm.Submit), {cm.Settled}),
    (request(cm.Submit, announce=True), {cm.Submitted, cm.Settled}),
    (request(cm.Submit, detach=True), {cm.Submitted, cm.Settled}),
    (request(cm.Submit, detach=True, announce=True), {cm.Submitted, cm.Settled}),
    (request(cm.Cancel), {cm.CancelAccepted}),
    (request(cm.Wait), {cm.Settled, cm.Pending}),
    (request(cm.ReadOutput), {cm.OutputChunk}),
    (request(cm.ListTools), {cm.Tools}),
    (request(cm.AskStatus), {cm.DaemonStatus}),
    (request(cm.ListProcesses), {cm.Processes}),
    (request(cm.OpenRun), {cm.RunOpened}),
    (request(cm.StepRun), {cm.RunState, cm.RunSettled}),
    (request(cm.ReserveModel), {cm.ModelReserved, cm.RunSettled}),
    (request(cm.SettleModel), {cm.RunState, cm.RunSettled}),
    (request(cm.RetryModel), {cm.RunState, cm.RunSettled}),
    (request(cm.RefuseCall), {cm.RunState, cm.RunSettled}),
    (request(cm.AskPerson), {cm.RunSettled}),
    (request(cm.StopRun), {cm.RunSettled}),
    (request(cm.KeepNotes), {cm.RunState, cm.RunSettled}),
    (request(cm.ReadNotes), {cm.RunNotes}),
    (request(cm.AddEvidence), {cm.EvidenceTaken, cm.RunSettled}),
    (request(cm.FinishRun), {cm.FinishRefused, cm.RunSettled}),
    (request(cm.CancelRun), {cm.RunSettled}),
    (request(cm.WaitRun), {cm.RunSettled}),
    (request(cm.ResumeRun), {cm.RunState, cm.RunSettled}),
    (request(cm.ShowRun), {cm.RunState}),
    (request(cm.ListRuns), {cm.Runs}),
    (request(cm.ListApprovals), {cm.Approvals}),
    (request(cm.Decide), {cm.Decided}),
    (request(cm.ListEffects), {cm.Effects}),
    (request(cm.CloseEffect), {cm.EffectClosed}),
    (request(cm.AskMetrics), {cm.Metrics}),
    (request(cm.AskConfig), {cm.EffectiveConfig}),
]


@pytest.mark.parametrize(("asked", "wanted"), ASKED)
@pytest.mark.parametrize("kind", ANSWERS)
def test_a_request_is_answered_by_its_own_kinds_only(asked: Any, wanted: set[type], kind: type) -> None:
    daemon, client = ready(Speaker.DAEMON), ready(Speaker.CLIENT)
    daemon.hear(asked)
    client.say(asked)
    if kind in wanted:
        daemon.say(answer(kind))
        assert client.hear(answer(kind)) is True
        assert client.open == daemon.open
        return
    with pytest.raises(LocalProtocolError, match="is no answer to the id 1"):
        daemon.say(answer(kind))
    with pytest.raises(RemoteProtocolError, match="is no answer to the id 1"):
        client.hear(answer(kind))
    assert 1 in client.open


@pytest.mark.parametrize("asked", [asked for asked, _ in ASKED])
def test_any_request_may_fail_and_is_over_then(asked: Any) -> None:
    daemon, client = ready(Speaker.DAEMON), ready(Speaker.CLIENT)
    client.say(asked)
    daemon.hear(asked)
    daemon.say(cm.Failed(1, OOPS))
    client.hear(cm.Failed(1, OOPS))
    assert client.open == daemon.open == {}
    assert client.state is daemon.state is ClientState.READY


def test_an_announced_call_is_submitted_once_and_settled_once() -> None:
    daemon = ready(Speaker.DAEMON)
    daemon.hear(request(cm.Submit, announce=True))
    daemon.say(answer(cm.Submitted))
    with pytest.raises(LocalProtocolError):
        daemon.say(answer(cm.Submitted))
    daemon.say(answer(cm.Settled))
    with pytest.raises(LocalProtocolError, match="waits for nothing"):
        daemon.say(answer(cm.Settled))


def test_a_detached_call_is_over_with_submitted() -> None:
    daemon = ready(Speaker.DAEMON)
    daemon.hear(request(cm.Submit, detach=True))
    daemon.say(answer(cm.Submitted))
    with pytest.raises(LocalProtocolError, match="waits for nothing"):
        daemon.say(answer(cm.Settled))


def test_an_id_in_use_cannot_be_used_again_and_a_free_one_can() -> None:
    client, daemon = ready(Speaker.CLIENT), ready(Speaker.DAEMON)
    for first, second in itertools.product(REQUESTS, repeat=2):
        client.say(request(first))
        daemon.hear(request(first))
        with pytest.raises(LocalProtocolError, match="waits for an answer already"):
            client.say(request(second))
        with pytest.raises(RemoteProtocolError, match="waits for an answer already"):
            daemon.hear(request(second))
        daemon.say(cm.Failed(1, OOPS))
        client.hear(cm.Failed(1, OOPS))


def test_an_answer_to_an_id_nobody_used_is_the_daemons_fault() -> None:
    for kind in (*ANSWERS, cm.Failed):
        with pytest.raises(LocalProtocolError, match="waits for nothing"):
            ready(Speaker.DAEMON).say(answer(kind))
        with pytest.raises(RemoteProtocolError, match="waits for nothing"):
            ready(Speaker.CLIENT).hear(answer(kind))


def test_answers_may_come_in_any_order() -> None:
    client = ready(Speaker.CLIENT)
    for number in range(5):
        client.say(request(cm.Submit, number))
    for number in (3, 0, 4, 1, 2):
        assert client.hear(answer(cm.Settled, number)) is True
    assert client.open == {}


@pytest.mark.parametrize("state", [ClientState.GREETING, ClientState.GREETED, ClientState.READY])
def test_failed_without_an_id_closes_from_every_state(state: ClientState) -> None:
    daemon, client = in_client_state(Speaker.DAEMON, state), in_client_state(Speaker.CLIENT, state)
    daemon.say(cm.Failed(None, OOPS))
    client.hear(cm.Failed(None, OOPS))
    assert daemon.state is client.state is ClientState.CLOSED


@pytest.mark.parametrize("state", [ClientState.GREETING, ClientState.GREETED])
def test_failed_with_an_id_means_nothing_before_a_request(state: ClientState) -> None:
    with pytest.raises(LocalProtocolError):
        in_client_state(Speaker.DAEMON, state).say(cm.Failed(1, OOPS))


def test_what_crossed_the_daemons_last_word_is_dropped_and_nobodys_fault() -> None:
    daemon = ready(Speaker.DAEMON)
    daemon.say(cm.Failed(None, OOPS))
    assert [daemon.hear(request(kind)) for kind in REQUESTS] == [False] * len(REQUESTS)
    assert daemon.open == {}
    with pytest.raises(LocalProtocolError):
        daemon.say(answer(cm.Settled))


def test_a_daemon_that_talks_on_after_its_last_word_is_at_fault() -> None:
    client = ready(Speaker.CLIENT)
    client.say(request(cm.Submit))
    client.hear(cm.Failed(None, OOPS))
    with pytest.raises(RemoteProtocolError):
        client.hear(answer(cm.Settled))
    with pytest.raises(LocalProtocolError):
        client.say(request(cm.Wait, 2))


# ---------------------------------------------------------------- a worker's link


CALL = wm.Call(7, "shell", "{}", 1, "k")


def in_worker_state(us: Speaker, state: WorkerState) -> WorkerLink:
    """An end driven to a state, with call 7 on it where a call is."""
    link = WorkerLink(us)
    talk: list[tuple[Speaker, Any]] = [
        (Speaker.WORKER, wm.WorkerReady(1)),
        (Speaker.DAEMON, CALL),
        (Speaker.WORKER, wm.Accepted(7)),
    ]
    for speaker, message in talk:
        if link.state is state:
            break
        link.say(message) if speaker is us else link.hear(message)
    assert link.state is state
    return link


def of_call(kind: type, nonce: int) -> Any:
    fields: dict[type, Any] = {wm.WorkerReady: {"pid": 1}, wm.Ended: {"nonce": nonce, "how": "not_found"}}
    if kind is wm.Call:
        return wm.Call(nonce, "shell", "{}", 1, "k")
    return kind(**fields.get(kind, {"nonce": nonce}))


MISSING_WORKER_CELLS = [
    (state, speaker, kind)
    for state, (speaker, kinds) in itertools.product(
        WorkerState, ((Speaker.WORKER, WORKER_KINDS), (Speaker.DAEMON, (wm.Call,)))
    )
    for kind in kinds
    if (state, speaker, kind) not in WORKER_LINK
]


@pytest.mark.parametrize(("state", "speaker", "kind"), MISSING_WORKER_CELLS)
def test_a_missing_cell_of_a_workers_link_is_the_speakers_fault(
    state: WorkerState, speaker: Speaker, kind: type
) -> None:
    peer = Speaker.DAEMON if speaker is Speaker.WORKER else Speaker.WORKER
    speaking, hearing = in_worker_state(speaker, state), in_worker_state(peer, state)
    message = of_call(kind, 8 if kind is wm.Call else speaking.nonce)
    with pytest.raises(LocalProtocolError, match=f"{speaker.name.lower()} may not say {kind.__name__}"):
        speaking.say(message)
    with pytest.raises(RemoteProtocolError, match=f"{speaker.name.lower()} may not say {kind.__name__}"):
        hearing.hear(message)
    assert speaking.state is hearing.state is state
    assert hearing.stragglers == 0


def test_every_message_of_the_worker_link_has_a_cell() -> None:
    assert {kind for _, _, kind in WORKER_LINK} == {*WORKER_KINDS, wm.Call}


@pytest.mark.parametrize("state", [WorkerState.IDLE, WorkerState.SENT, WorkerState.RUNNING])
@pytest.mark.parametrize("kind", [wm.Accepted, wm.Progress, wm.Ended])
def test_a_frame_of_an_earlier_call_is_a_straggler_in_every_state(state: WorkerState, kind: type) -> None:
    daemon = in_worker_state(Speaker.DAEMON, state)
    if state is WorkerState.IDLE:
        daemon.say(CALL)
        daemon.hear(wm.Ended(7, "not_found"))
    assert daemon.hear(of_call(kind, 6)) is False
    assert daemon.stragglers == 1
    assert daemon.state is state


@pytest.mark.parametrize("kind", [wm.Accepted, wm.Progress, wm.Ended])
def test_a_nonce_from_the_future_is_a_fault(kind: type) -> None:
    state = WorkerState.SENT if kind is not wm.Progress else WorkerState.RUNNING
    with pytest.raises(RemoteProtocolError, match="has the nonce 8; the call is 7"):
        in_worker_state(Speaker.DAEMON, state).hear(of_call(kind, 8))
    with pytest.raises(LocalProtocolError, match="has the nonce 8; the call is 7"):
        in_worker_state(Speaker.WORKER, state).say(of_call(kind, 8))


def test_a_second_end_of_the_same_call_is_a_fault_and_no_straggler() -> None:
    daemon = in_worker_state(Speaker.DAEMON, WorkerState.RUNNING)
    daemon.hear(wm.Ended(7, "ok"))
    with pytest.raises(RemoteProtocolError, match="worker may not say Ended while the link is idle"):
        daemon.hear(wm.Ended(7, "ok"))


def test_a_worker_cannot_drown_the_daemon_in_stragglers() -> None:
    daemon = in_worker_state(Speaker.DAEMON, WorkerState.RUNNING)
    assert [daemon.hear(wm.Progress(-1)) for _ in range(STRAGGLER_LIMIT)] == [False] * STRAGGLER_LIMIT
    with pytest.raises(RemoteProtocolError, match="calls that are over"):
        daemon.hear(wm.Progress(3))


@pytest.mark.parametrize("nonce", [7, 6, 0, -1])
def test_a_call_needs_a_nonce_of_its_own(nonce: int) -> None:
    daemon, worker = (
        in_worker_state(Speaker.DAEMON, WorkerState.SENT),
        in_worker_state(Speaker.WORKER, WorkerState.SENT),
    )
    daemon.hear(wm.Ended(7, "not_found"))
    worker.say(wm.Ended(7, "not_found"))
    with pytest.raises(LocalProtocolError):
        daemon.say(of_call(wm.Call, nonce))
    with pytest.raises(RemoteProtocolError):
        worker.hear(of_call(wm.Call, nonce))
    assert daemon.nonce == worker.nonce == 7


HOW = typing.get_args(typing.get_type_hints(wm.Ended)["how"])


@pytest.mark.parametrize("how", HOW)
def test_only_an_end_that_touched_no_tool_code_may_come_without_accepted(how: str) -> None:
    daemon, worker = (
        in_worker_state(Speaker.DAEMON, WorkerState.SENT),
        in_worker_state(Speaker.WORKER, WorkerState.SENT),
    )
    ended = wm.Ended(7, how)  # type: ignore[arg-type]  # a word of the Literal, seen by mypy as any text
    if how in wm.UNTOUCHED:
        worker.say(ended)
        assert daemon.hear(ended) is True
        assert daemon.state is WorkerState.IDLE
        return
    with pytest.raises(LocalProtocolError, match="never accepted"):
        worker.say(ended)
    with pytest.raises(RemoteProtocolError, match="never accepted"):
        daemon.hear(ended)
    assert daemon.state is WorkerState.SENT


def test_a_call_that_wants_no_accepted_runs_from_the_start() -> None:
    daemon, worker = (
        in_worker_state(Speaker.DAEMON, WorkerState.IDLE),
        in_worker_state(Speaker.WORKER, WorkerState.IDLE),
    )
    call = wm.Call(1, "read_file", "{}", 1, "k", accepts=False)
    daemon.say(call)
    worker.hear(call)
    assert daemon.state is worker.state is WorkerState.RUNNING
    with pytest.raises(LocalProtocolError, match="worker may not say Accepted"):
        worker.say(wm.Accepted(1))
    worker.say(wm.Ended(1, "ok"))
    assert daemon.hear(wm.Ended(1, "ok")) is True


@pytest.mark.parametrize("how", HOW)
def test_an_accepted_call_may_end_in_every_way(how: str) -> None:
    daemon = in_worker_state(Speaker.DAEMON, WorkerState.RUNNING)
    assert daemon.hear(wm.Ended(7, how)) is True  # type: ignore[arg-type]  # a word of the Literal
    assert daemon.state is WorkerState.IDLE


def test_the_untouched_ends_are_ways_to_end() -> None:
    assert set(HOW) > wm.UNTOUCHED


def test_calls_follow_each_other_on_one_worker() -> None:
    daemon, worker = (
        in_worker_state(Speaker.DAEMON, WorkerState.IDLE),
        in_worker_state(Speaker.WORKER, WorkerState.IDLE),
    )
    for nonce in (1, 2, 10):
        for speaking, hearing, message in (
            (daemon, worker, of_call(wm.Call, nonce)),
            (worker, daemon, wm.Accepted(nonce)),
            (worker, daemon, wm.Progress(nonce)),
            (worker, daemon, wm.Ended(nonce, "ok")),
        ):
            speaking.say(message)
            assert hearing.hear(message) is True
    assert daemon.state is worker.state is WorkerState.IDLE
