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

from protocol._contracts import ContainmentLevel, IsolationLevel, ToolDescription
from protocol._events import Event
from protocol._numbers import AtLeastOne, Count, RequestId
from protocol._outcomes import CallResult, ErrorInfo
from protocol._run_messages import AddEvidence as AddEvidence
from protocol._run_messages import AskPerson as AskPerson
from protocol._run_messages import CancelRun as CancelRun
from protocol._run_messages import EvidenceTaken as EvidenceTaken
from protocol._run_messages import FinishRefused as FinishRefused
from protocol._run_messages import FinishRun as FinishRun
from protocol._run_messages import KeepNotes as KeepNotes
from protocol._run_messages import ListRuns as ListRuns
from protocol._run_messages import ModelReserved as ModelReserved
from protocol._run_messages import OpenRun as OpenRun
from protocol._run_messages import ReadNotes as ReadNotes
from protocol._run_messages import RefuseCall as RefuseCall
from protocol._run_messages import Report as Report
from protocol._run_messages import ReserveModel as ReserveModel
from protocol._run_messages import ResumeRun as ResumeRun
from protocol._run_messages import RetryModel as RetryModel
from protocol._run_messages import RunNotes as RunNotes
from protocol._run_messages import RunOpened as RunOpened
from protocol._run_messages import RunRequest as RunRequest
from protocol._run_messages import Runs as Runs
from protocol._run_messages import RunSettled as RunSettled
from protocol._run_messages import RunState as RunState
from protocol._run_messages import SettleModel as SettleModel
from protocol._run_messages import ShowRun as ShowRun
from protocol._run_messages import StepRun as StepRun
from protocol._run_messages import StopRun as StopRun
from protocol._run_messages import WaitRun as WaitRun
from protocol._runs import ApprovalView, OpenEffect

VERSION = 1
FEATURES = ("calls", "detach", "split_streams", "output", "events", "runs", "approvals", "effects", "metrics", "agents")


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


CallRequest = Submit | Cancel | Wait | ReadOutput
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
