"""What is said of runs between a client and the daemon; `_client_messages` has the rest, and the unions of all.

Whoever steers a run says these: a client, or the loop of the daemon. What `_client_messages` says of fields holds here.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from protocol._checks import Check, FieldValue
from protocol._numbers import Count, RequestId
from protocol._runs import AgentOptions, OnDisconnect, ProviderReason, RunRow, RunView, StopRecord


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


Report = StepRun | ReserveModel | SettleModel | RetryModel | RefuseCall | AskPerson | StopRun | KeepNotes | AddEvidence
"""What whoever steers a run tells of it."""
RunRequest = OpenRun | Report | ReadNotes | FinishRun | CancelRun | ResumeRun | ShowRun | WaitRun | ListRuns


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
