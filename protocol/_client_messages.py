"""Messages between a client and the daemon, as tagged unions; the tag is ``op``. docs/protocol.md is their manual.

``id`` is the client's own number for a request: every answer to the request carries it. Values that a caller may get
wrong and deserves a result for (``deadline_ms``, ``arguments``) are typed loosely here and judged by the daemon;
everything else that does not fit ends the connection. Numbers are held to 64 bits: JSON could carry more, and an answer
could then not be written.

A request with a field that this version does not know is refused (it would be half obeyed); answers may grow fields,
and clients skip what they do not know. Hello alone takes unknown fields, so that a client of a later version hears that
its version is unknown, and not that its greeting is.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from protocol._checks import Check, FieldValue
from protocol._contracts import ContainmentLevel, IsolationLevel, ToolDescription
from protocol._events import Event
from protocol._outcomes import CallResult, ErrorInfo
from protocol._runs import (
    AgentOptions,
    ApprovalView,
    OnDisconnect,
    OpenEffect,
    ProviderReason,
    RunRow,
    RunView,
    StopRecord,
)

VERSION = 1
FEATURES = ("calls", "detach", "split_streams", "output", "events", "runs", "approvals", "effects", "metrics", "agents")

_I64 = (1 << 63) - 1
RequestId = Annotated[int, msgspec.Meta(ge=0, le=_I64)]
"""A client's number for a request, free again once its last answer was sent."""
Count = Annotated[int, msgspec.Meta(ge=0, le=_I64)]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1, le=_I64)]


class Hello(msgspec.Struct, tag="hello", tag_field="op"):
    """First message of a client. An unknown version is refused by name."""

    version: int
    client: str = ""
    features: list[str] = []


class Submit(msgspec.Struct, tag="submit", tag_field="op", forbid_unknown_fields=True):
    """Run a tool. ``arguments``: the text of one JSON object. ``deadline_ms``: from now, ≥ 1; absent = the contract's.

    ``decision``: the name of what a model decided, that this call is part of.

    Answered by Settled; before it by Submitted when ``announce`` or ``detach``; with ``detach`` by Submitted alone.
    """

    id: RequestId
    tool: str
    arguments: str = "{}"
    deadline_ms: int | float | str | bool | None = None
    cwd: str | None = None
    run: str | None = None
    key: str | None = None
    detach: bool = False
    announce: bool = False
    split_streams: bool = False
    max_output_bytes: AtLeastOne | None = None
    min_containment: ContainmentLevel | None = None
    min_isolation: IsolationLevel | None = None
    decision: str | None = None


class Cancel(msgspec.Struct, tag="cancel", tag_field="op", forbid_unknown_fields=True):
    """End a call of this connection (``submit``: the id it was submitted under), or any of the same uid (``call``).

    Answered by CancelAccepted at once; the call's own Settled follows when the kill is confirmed.
    """

    id: RequestId
    submit: RequestId | None = None
    call: str | None = None


class Wait(msgspec.Struct, tag="wait", tag_field="op", forbid_unknown_fields=True):
    """Answered by Settled when the call has settled. ``nowait``: by Pending at once when it has not."""

    id: RequestId
    call: str
    nowait: bool = False


class ReadOutput(msgspec.Struct, tag="read_output", tag_field="op", forbid_unknown_fields=True):
    """Up to ``limit`` raw bytes of a call's output from ``offset``; answered by OutputChunk. ``stream``: ``both``, or
    ``stdout`` or ``stderr`` of a call that was submitted with ``split_streams``."""

    id: RequestId
    call: str
    offset: Count = 0
    limit: AtLeastOne = 65_536
    stream: str = "both"


class ListTools(msgspec.Struct, tag="list_tools", tag_field="op", forbid_unknown_fields=True):
    """Contracts and schemas; answered by Tools."""

    id: RequestId
    name: str | None = None


class AskStatus(msgspec.Struct, tag="ask_status", tag_field="op", forbid_unknown_fields=True):
    """Health; answered by DaemonStatus."""

    id: RequestId


class ListProcesses(msgspec.Struct, tag="list_processes", tag_field="op", forbid_unknown_fields=True):
    """Workers and calls with the time left; answered by Processes."""

    id: RequestId


class ReadEvents(msgspec.Struct, tag="read_events", tag_field="op", forbid_unknown_fields=True):
    """Up to ``limit`` committed events of the log behind number ``after``, or of one call or run; answered by Events.
    When there is none yet the answer waits for one, up to ``wait_ms``."""

    id: RequestId
    after: Count = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=200)] = 200
    call: str | None = None
    run: str | None = None
    wait_ms: Annotated[int, msgspec.Meta(ge=0, le=20_000)] = 0


class OpenRun(msgspec.Struct, tag="open_run", tag_field="op", forbid_unknown_fields=True):
    """Begin a run: a task with one deadline and one budget. ``deadline_ms`` and ``limits`` are judged by the daemon and
    may only tighten what the profile allows. ``session``: runs of one name share what they have used; ``parent``: a run
    whose budget this one is part of. ``checks``: what must hold before `finish_run` is accepted, in this order.
    ``agent``: the daemon steers it itself, with a model; ``goal`` is the task. ``wrapup``: a model call is held back
    for a last word, also where the profile holds nothing back; so it is for an agent.

    Answered by RunOpened, or by Failed.
    """

    id: RequestId
    goal: str = ""
    profile: str | None = None
    deadline_ms: int | float | str | bool | None = None
    limits: dict[str, int | float | str | bool | None] = {}
    session: str | None = None
    parent: str | None = None
    workspace: str | None = None
    checks: list[Check] = []
    on_disconnect: OnDisconnect = "cancel"
    agent: AgentOptions | None = None
    wrapup: bool = False


class StepRun(msgspec.Struct, tag="step_run", tag_field="op", forbid_unknown_fields=True):
    """A new round begins. Answered by RunState, or by RunSettled when the run may not go on."""

    id: RequestId
    run: str


class ReserveModel(msgspec.Struct, tag="reserve_model", tag_field="op", forbid_unknown_fields=True):
    """About to ask a model: at most so many tokens in and out. Answered by ModelReserved, or by RunSettled."""

    id: RequestId
    run: str
    model: str = ""
    max_in: Count = 0
    max_out: Count = 0


class SettleModel(msgspec.Struct, tag="settle_model", tag_field="op", forbid_unknown_fields=True):
    """A model has answered; what it used, as it reports it. A count that is absent (a stream that was cut): what was
    reserved is spent. Answered by RunState, or by RunSettled."""

    id: RequestId
    run: str
    reservation: Count
    tokens_in: Count | None = None
    tokens_out: Count | None = None
    cached_in: Count = 0


class RetryModel(msgspec.Struct, tag="retry_model", tag_field="op", forbid_unknown_fields=True):
    """A model could not be asked, and is asked again after ``delay_ms``: a retry is charged before it. ``cause``: the
    class of the error. Answered by RunState, or by RunSettled when the run may not go on."""

    id: RequestId
    run: str
    cause: Literal["transient_provider"] = "transient_provider"
    delay_ms: Count = 0
    detail: str = ""


class RefuseCall(msgspec.Struct, tag="refuse_call", tag_field="op", forbid_unknown_fields=True):
    """A model has called something of the client's own in a way that cannot be. It counts like any such call: a step,
    and too many in a row end the run. Answered by RunState, or by RunSettled."""

    id: RequestId
    run: str
    tool: str
    text: str
    reason: Literal["unknown_tool", "invalid_arguments"] = "invalid_arguments"
    decision: str | None = None


class AskPerson(msgspec.Struct, tag="ask_person", tag_field="op", forbid_unknown_fields=True):
    """Only a person can say what is missing: the run is suspended (``needs_input``) until `resume_run` brings the
    answer. Answered by RunSettled."""

    id: RequestId
    run: str
    question: str


class StopRun(msgspec.Struct, tag="stop_run", tag_field="op", forbid_unknown_fields=True):
    """The client cannot go on: its model fails. The run settles ``provider_failed``. Answered by RunSettled."""

    id: RequestId
    run: str
    reason: ProviderReason
    detail: str = ""


class KeepNotes(msgspec.Struct, tag="keep_notes", tag_field="op", forbid_unknown_fields=True):
    """What the client needs to go on with the run, in its own words. Kept until the run has settled: in memory, and
    with a suspension on the disk. ``folded``: steps that have one line in it now. Answered by RunState, or by
    RunSettled."""

    id: RequestId
    run: str
    notes: str
    folded: list[Count] = []


class ReadNotes(msgspec.Struct, tag="read_notes", tag_field="op", forbid_unknown_fields=True):
    """Answered by RunNotes."""

    id: RequestId
    run: str


class AddEvidence(msgspec.Struct, tag="add_evidence", tag_field="op", forbid_unknown_fields=True):
    """Something that the run has found, by a name of the client's. Answered by EvidenceTaken, or by RunSettled."""

    id: RequestId
    run: str
    evidence: str


class FinishRun(msgspec.Struct, tag="finish_run", tag_field="op", forbid_unknown_fields=True):
    """The client thinks that the run is done. Its checks run, under the run's deadline; answered by RunSettled, or by
    FinishRefused with what the checks said. ``plain``: nobody asked for the end, the answer is all that was said.
    ``fields``: single facts of the answer, each with the evidence that it rests on."""

    id: RequestId
    run: str
    answer: str = ""
    plain: bool = False
    fields: dict[str, FieldValue] = {}


class CancelRun(msgspec.Struct, tag="cancel_run", tag_field="op", forbid_unknown_fields=True):
    """End a run, and every call of it. Answered by RunSettled when they have ended; one that had settled already stays
    as it is."""

    id: RequestId
    run: str


class ResumeRun(msgspec.Struct, tag="resume_run", tag_field="op", forbid_unknown_fields=True):
    """A run that needs input goes on; ``answer`` is in its log. One that waits for an approval goes on by `decide`.

    Answered by RunState, or by RunSettled.
    """

    id: RequestId
    run: str
    answer: str = ""


class ShowRun(msgspec.Struct, tag="show_run", tag_field="op", forbid_unknown_fields=True):
    """A run as it stands; answered by RunState."""

    id: RequestId
    run: str


class WaitRun(msgspec.Struct, tag="wait_run", tag_field="op", forbid_unknown_fields=True):
    """Answered by RunSettled when the run does not run any more. ``settled``: for good; else a suspended one counts."""

    id: RequestId
    run: str
    settled: bool = False


class ListRuns(msgspec.Struct, tag="list_runs", tag_field="op", forbid_unknown_fields=True):
    """Runs of this uid that go on or are suspended; with ``all`` also those that have ended. Answered by Runs."""

    id: RequestId
    all: bool = False


class ListApprovals(msgspec.Struct, tag="list_approvals", tag_field="op", forbid_unknown_fields=True):
    """Calls that wait for a person; with ``all`` also those that were decided. Answered by Approvals."""

    id: RequestId
    run: str | None = None
    all: bool = False


class Decide(msgspec.Struct, tag="decide", tag_field="op", forbid_unknown_fields=True):
    """A person's decision. ``arguments``: other arguments than were asked for (judged anew). ``scope``: what else it
    holds for in this run. ``then``: after a rejection the run goes on (``feedback``) or ends (``stop``).

    Answered by Decided.
    """

    id: RequestId
    approval: str
    decision: Literal["approve", "reject"]
    note: str = ""
    arguments: str | None = None
    scope: Literal["call", "same_args", "tool"] = "call"
    then: Literal["feedback", "stop"] = "feedback"


class ListEffects(msgspec.Struct, tag="list_effects", tag_field="op", forbid_unknown_fields=True):
    """Calls that may have changed something and nobody knows; answered by Effects."""

    id: RequestId
    run: str | None = None


class CloseEffect(msgspec.Struct, tag="close_effect", tag_field="op", forbid_unknown_fields=True):
    """Somebody has looked: what became of a call is known now, and ``note`` says it. Answered by EffectClosed."""

    id: RequestId
    call: str
    note: str


class AskMetrics(msgspec.Struct, tag="ask_metrics", tag_field="op", forbid_unknown_fields=True):
    """Answered by Metrics."""

    id: RequestId


class AskConfig(msgspec.Struct, tag="ask_config", tag_field="op", forbid_unknown_fields=True):
    """Effective configuration; answered by EffectiveConfig."""

    id: RequestId


Report = StepRun | ReserveModel | SettleModel | RetryModel | RefuseCall | AskPerson | StopRun | KeepNotes | AddEvidence
"""What whoever steers a run tells of it."""
CallRequest = Submit | Cancel | Wait | ReadOutput
RunRequest = OpenRun | Report | ReadNotes | FinishRun | CancelRun | ResumeRun | ShowRun | WaitRun | ListRuns
ApprovalRequest = ListApprovals | Decide
EffectRequest = ListEffects | CloseEffect
LookRequest = ListTools | AskStatus | ListProcesses | AskMetrics | AskConfig
Request = CallRequest | ReadEvents | RunRequest | ApprovalRequest | EffectRequest | LookRequest
"""Whatever has a number and is answered."""
FromClient = Hello | Request


class Welcome(msgspec.Struct, tag="welcome", tag_field="op"):
    """Answer to Hello: what this daemon speaks and allows."""

    version: int
    features: list[str]
    daemon_pid: int
    containment: str
    frame_limit: int


class Submitted(msgspec.Struct, tag="submitted", tag_field="op"):
    """The call is accepted; ``deadline_ms`` is the budget that holds."""

    id: int
    call: str
    deadline_ms: int


class Settled(msgspec.Struct, tag="settled", tag_field="op"):
    """The one final result of a call."""

    id: int
    result: CallResult


class Pending(msgspec.Struct, tag="pending", tag_field="op"):
    """Answer to Wait with ``nowait``: not settled yet."""

    id: int
    call: str
    remaining_ms: int


class CancelAccepted(msgspec.Struct, tag="cancel_accepted", tag_field="op"):
    """The kill is under way; Settled follows when it is confirmed. ``live`` False: the call had settled already."""

    id: int
    call: str
    live: bool


class OutputChunk(msgspec.Struct, tag="output_chunk", tag_field="op"):
    """Bytes (base64 in JSON) at ``offset``; ``settled`` and an empty ``data`` mean that this was the end."""

    id: int
    call: str
    offset: int
    data: bytes
    settled: bool


class Tools(msgspec.Struct, tag="tools", tag_field="op"):
    """Every tool this daemon serves."""

    id: int
    tools: list[ToolDescription]


class QuarantineRow(msgspec.Struct):
    """Something that is kept from running. ``kind``: what it is, ``call`` (a tool with certain arguments), ``tool``,
    ``slot`` or ``pool``; ``measure``: what is done about it. ``remaining_ms`` None: until a death is confirmed."""

    kind: str
    measure: str
    text: str
    remaining_ms: int | None
    tool: str | None = None
    key: str | None = None
    call: str | None = None
    slot: int | None = None
    flavour: str | None = None


class DaemonStatus(msgspec.Struct, tag="daemon_status", tag_field="op"):
    """Health for people and probes. ``degraded`` lists what is wrong; empty = healthy."""

    id: int
    pid: int
    version: str
    containment: str
    containment_why: list[str]
    uptime_ms: int
    degraded: list[str]
    workers: int
    idle_workers: int
    calls_in_flight: int
    calls_queued: int
    calls_settled: int
    kills: int
    unconfirmed_kills: int
    replacements: int
    quarantine: list[QuarantineRow] = []


class ProcessRow(msgspec.Struct):
    """One worker, with the call it serves, or a queued call (``pid`` None). ``slot``: its place in the deadline table;
    it holds that until it is gone, and a call no longer than ``remaining_ms``."""

    worker: int | None
    pid: int | None
    state: str
    call: str | None = None
    tool: str | None = None
    remaining_ms: int | None = None
    processes: int | None = None
    rss_bytes: int | None = None
    cpu_ms: int | None = None
    slot: int | None = None


class Processes(msgspec.Struct, tag="processes", tag_field="op"):
    """Rows of ``deadlined ps``."""

    id: int
    rows: list[ProcessRow]


class Events(msgspec.Struct, tag="events", tag_field="op"):
    """Events in the order of their numbers. ``last``: the number up to which there is nothing else to tell; ask again
    with ``after`` = ``last``."""

    id: int
    events: list[Event]
    last: int


class RunOpened(msgspec.Struct, tag="run_opened", tag_field="op"):
    """The run is on the disk and goes on; its effective limits stand in it."""

    id: int
    run: RunView


class RunState(msgspec.Struct, tag="run_state", tag_field="op"):
    """A run as it stands."""

    id: int
    run: RunView


class ModelReserved(msgspec.Struct, tag="model_reserved", tag_field="op"):
    """The model may be asked, for ``remaining_ms`` at most; `settle_model` names the ``reservation``. ``wraps_up``: the
    budget is used up, and this is for a last word, without tools."""

    id: int
    run: str
    reservation: int
    remaining_ms: int
    wraps_up: bool = False


class RunNotes(msgspec.Struct, tag="run_notes", tag_field="op"):
    """What was kept last; empty when nothing was."""

    id: int
    run: str
    notes: str


class EvidenceTaken(msgspec.Struct, tag="evidence_taken", tag_field="op"):
    """``novel``: the run had never seen it; only that is progress."""

    id: int
    run: str
    novel: bool


class FinishRefused(msgspec.Struct, tag="finish_refused", tag_field="op"):
    """The checks say that the run is not done: ``feedback``, for whoever decides. ``refusals``: so many so far."""

    id: int
    run: str
    refusals: int
    feedback: str


class RunSettled(msgspec.Struct, tag="run_settled", tag_field="op"):
    """The run does not run any more, and why."""

    id: int
    stop: StopRecord


class Runs(msgspec.Struct, tag="runs", tag_field="op"):
    """Newest first."""

    id: int
    runs: list[RunRow]


class Approvals(msgspec.Struct, tag="approvals", tag_field="op"):
    """Oldest first."""

    id: int
    approvals: list[ApprovalView]


class Decided(msgspec.Struct, tag="decided", tag_field="op"):
    """The decision is on the disk. ``call``: what it became, to be waited for (``wait``); a rejected one has a result
    too."""

    id: int
    approval: ApprovalView
    call: str | None


class Effects(msgspec.Struct, tag="effects", tag_field="op"):
    """Oldest first; ``more`` are open that a frame has no room for."""

    id: int
    effects: list[OpenEffect]
    more: int = 0


class EffectClosed(msgspec.Struct, tag="effect_closed", tag_field="op"):
    """The note is on the disk, and the effect is listed no more."""

    id: int
    effect: OpenEffect


class Metrics(msgspec.Struct, tag="metrics", tag_field="op"):
    """``text``: metrics in the text format of Prometheus."""

    id: int
    text: str


class EffectiveConfig(msgspec.Struct, tag="effective_config", tag_field="op"):
    """Values in force with where each came from (``default``, or the file's path)."""

    id: int
    values: dict[str, Any]
    sources: dict[str, str]


class Failed(msgspec.Struct, tag="failed", tag_field="op"):
    """A request that cannot be answered (``id`` None: the connection itself; it ends after this)."""

    id: int | None
    error: ErrorInfo


Answer = (
    Submitted
    | Settled
    | Pending
    | CancelAccepted
    | OutputChunk
    | Tools
    | DaemonStatus
    | Processes
    | Events
    | RunOpened
    | RunState
    | ModelReserved
    | RunNotes
    | EvidenceTaken
    | FinishRefused
    | RunSettled
    | Runs
    | Approvals
    | Decided
    | Effects
    | EffectClosed
    | Metrics
    | EffectiveConfig
)
FromDaemon = Welcome | Answer | Failed
