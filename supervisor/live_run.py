"""One run as the daemon holds it: what it was opened with, where it is, what it has used and seen, who waits for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from protocol._checks import Check, FieldsCheck
from protocol._runs import AgentOptions, Artefact, FiredDetector, LastAction, OnDisconnect, StopRecord
from supervisor.core.budget import Node, Reservation
from supervisor.core.detectors import Detectors
from supervisor.core.evidence import Evidence
from supervisor.core.profiles import Effective
from supervisor.core.run import RunMachine, State
from supervisor.core.stop_records import Beginning

if TYPE_CHECKING:
    from supervisor.live_call import LiveCall

_LINES_KEPT = 20
_FILES_KEPT = 50
_FIRED_KEPT = 20
Told = Callable[[StopRecord], None]


class RunSpec(NamedTuple):
    """What a run was opened with, for good. ``deadline_ms``: its whole budget of time."""

    id: str
    uid: int
    tenant: str
    goal: str
    profile: str
    session: str | None
    parent: str | None
    workspace: str | None
    checks: tuple[Check, ...]
    on_disconnect: OnDisconnect
    deadline_ms: int
    opened_ms: int
    secret_key: bytes
    agent: AgentOptions | None = None


class AskedModel(NamedTuple):
    """A model call that was reserved and has not been settled."""

    model: str
    reservation: Reservation
    started_ns: int


class LiveRun:
    """``stop`` is set while it is suspended and once it has settled, when the disk has it."""

    __slots__ = (
        "approvals",
        "artefacts",
        "asked",
        "asked_people",
        "calls",
        "detectors",
        "doing",
        "effective",
        "elapsed_ns",
        "ending",
        "evidence",
        "finishers",
        "fired",
        "in_flight",
        "index",
        "known",
        "last",
        "machine",
        "node",
        "notes",
        "opened_ns",
        "opener",
        "partial",
        "refused",
        "reservations",
        "retries",
        "retry_waits",
        "spec",
        "state_version",
        "step",
        "step_is_asked",
        "step_is_open",
        "step_is_used",
        "stop",
        "unsaid",
        "watchers",
    )

    def __init__(
        self, spec: RunSpec, effective: Effective, node: Node, machine: RunMachine, detectors: Detectors, opened_ns: int
    ) -> None:
        self.spec, self.effective, self.node, self.machine, self.detectors = spec, effective, node, machine, detectors
        self.elapsed_ns, self.opened_ns = 0, opened_ns
        """Time of its own before it was suspended last; ``opened_ns`` is when the present stretch began."""
        self.step = self.index = self.calls = self.state_version = self.reservations = self.asked_people = 0
        self.retries = 0
        """Of model calls, so far."""
        self.retry_waits = False
        """Whether its model is about to be asked again."""
        self.notes = ""
        """What whoever steers it needs to go on with it."""
        self.step_is_open = self.step_is_asked = self.step_is_used = False
        """Whether a round goes on; whether a client began it by name; whether a call was asked for in it."""
        self.unsaid: dict[str, int] = {}
        """What was charged and stands in no event yet: the next one of the run has it."""
        self.in_flight: dict[str, LiveCall] = {}
        self.doing: dict[str, LiveCall] = {}
        """Calls in flight that may change something, by what they do."""
        self.asked: dict[int, AskedModel] = {}
        self.approvals: set[str] = set()
        self.fired: deque[FiredDetector] = deque(maxlen=_FIRED_KEPT)
        self.partial: deque[str | Beginning] = deque(maxlen=_LINES_KEPT)
        self.artefacts: deque[Artefact] = deque(maxlen=_FILES_KEPT)
        self.last: LastAction | None = None
        self.refused: str | None = None
        """What the last finish was refused for."""
        self.evidence = Evidence() if any(isinstance(check, FieldsCheck) for check in spec.checks) else None
        """What fields of its answer may rest on, where one of its checks looks at that."""
        self.stop: StopRecord | None = None
        self.ending: StopRecord | None = None
        """Its last record, until the disk has it."""
        self.known = True
        """Whether the disk has it; before that nobody may hear of it."""
        self.opener: object | None = None
        """The connection that opened it."""
        self.watchers: dict[tuple[object, int], Told] = {}
        self.finishers: list[tuple[object, int]] = []
        """Who asked to finish and has not been answered."""

    @property
    def id(self) -> str:
        """Its name."""
        return self.spec.id

    @property
    def settled(self) -> bool:
        """Whether it is over for good; the disk may not have it yet."""
        return self.machine.state is State.SETTLED

    def elapsed(self, now_ns: int) -> int:
        """Nanoseconds of its own time; a suspension does not count when its clock pauses."""
        paused = self.machine.state is State.SUSPENDED and self.machine.pauses
        return self.elapsed_ns if paused else self.elapsed_ns + now_ns - self.opened_ns

    def tell(self, stop: StopRecord) -> None:
        """It has stopped: whoever waits hears it once."""
        self.stop, self.ending = stop, None
        self.finishers = []  # they hear this
        if not stop.resumable:  # it is kept for long, and that need not be
            self.opener = None
        watchers, self.watchers = self.watchers, {}
        for told in watchers.values():
            told(stop)
