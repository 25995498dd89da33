"""One submitted call as the daemon holds it: what was asked, what was judged, where it is, who waits for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from protocol._deadlines import elapsed_ms
from protocol._outcomes import CallResult, Notice
from supervisor.clock import wall_ms
from supervisor.core.call import CallMachine
from supervisor.core.intake import Judged

if TYPE_CHECKING:
    from supervisor.containment.workers import Worker
    from supervisor.core.checkpoints import Asked
    from supervisor.core.idempotency import DeliveryKey
    from supervisor.journal.outputs import Stream
    from supervisor.journal.store import Change
    from supervisor.stake import Stake

Watcher = Callable[[CallResult], None]


class LiveCall:
    """``result`` is None until it has settled. ``files``: paths that go when the result is forgotten."""

    __slots__ = (
        "also",
        "approval",
        "asks",
        "call_fp",
        "claim",
        "deliveries",
        "descriptors",
        "detached",
        "files",
        "fingerprint",
        "holders",
        "id",
        "judged",
        "key",
        "last_activity_ns",
        "machine",
        "notices",
        "output_bytes",
        "over",
        "planned",
        "planners",
        "reached",
        "recorded",
        "result",
        "stake",
        "streams",
        "submitted_ms",
        "submitted_ns",
        "uid",
        "watchers",
        "worker",
    )

    def __init__(
        self, call_id: str, uid: int, key: str, judged: Judged, submitted_ns: int, claim: DeliveryKey | None = None
    ) -> None:
        self.id, self.uid, self.key, self.claim, self.judged = call_id, uid, key, claim, judged
        self.submitted_ns = self.last_activity_ns = submitted_ns
        contract = judged.contract
        self.machine = CallMachine(judged.deadline_ns, contract.term_grace_ms, not contract.read_only, contract)
        self.worker: Worker | None = None
        self.streams: list[Stream] = []
        self.descriptors: list[int] = []
        self.output_bytes = 0
        self.watchers: dict[tuple[object, int], Watcher] = {}
        """By who asked and under which of its numbers, so that one who leaves can be forgotten."""
        self.result: CallResult | None = None
        self.fingerprint = self.reached = ""
        """Of its tool and arguments, as shown; and the one that the tool itself gave of what the call has reached."""
        self.notices: list[Notice] = []
        """What its submitter is told beside the outcome: from before it ran, and of its earlier attempts."""
        self.stake: Stake | None = None
        """What it holds of the run it belongs to."""
        self.over: Watcher | None = None
        """The part of the daemon that goes on with it at once; others hear when it is told."""
        self.files: list[str] = []
        self.submitted_ms = wall_ms()
        self.call_fp: str | None = None
        """What it does, in the eyes of its run."""
        self.deliveries = 0
        """How often it was asked for; all but the first hear that they are answered by it, and ran nothing."""
        self.holders = 0
        """Connections that the call is attached to; the same delivery key may attach several."""
        self.detached = self.planned = self.recorded = False
        """The last: the journal has heard of it, and its result is on the disk before anybody hears it."""
        self.asks: Asked | None = None
        """What a person must be asked before it runs."""
        self.approval: str | None = None
        """The approval that it asks for, or that it came from."""
        self.also: tuple[Change, ...] = ()
        """What is written with its result."""
        self.planners: dict[tuple[object, int], Callable[[], None]] = {}
        """Who waits to hear that it is on the disk, and will then wait for nothing more."""

    @property
    def has_effect(self) -> bool:
        """Whether it may change something by itself. What its contract wants after a kill belongs to the call that was
        killed: who wonders about the one need not wonder about the other."""
        return not self.judged.contract.read_only and not self.judged.after_kill

    @property
    def lane(self) -> str:
        """The run it belongs to, which is a name of its user's; a call outside a run is a run of its own."""
        return self.id if not self.judged.run else f"{self.uid}/{self.judged.run}"

    def tell_planned(self) -> None:
        """It is on the disk: whoever detached it hears that, and no result."""
        self.planned = True
        planners, self.planners = self.planners, {}
        for asked, say in planners.items():
            self.watchers.pop(asked, None)
            say()

    @property
    def silent_ms(self) -> int | None:
        """From the last sign of life (output, progress) to the deadline, as far as one was heard of."""
        started_ns = self.machine.started_ns
        if started_ns is None or self.last_activity_ns <= started_ns:
            return None
        return elapsed_ms(self.last_activity_ns, max(self.judged.deadline_ns, self.last_activity_ns))

    def tell(self, result: CallResult) -> None:
        """It has settled: every watcher hears it once."""
        self.result = result
        watchers, self.watchers = self.watchers, {}
        for watcher in watchers.values():
            watcher(result)
