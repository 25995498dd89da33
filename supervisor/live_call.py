"""One submitted call as the daemon holds it: what was asked, what was judged, where it is, who waits for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from protocol._outcomes import CallResult
from supervisor.core.call import CallMachine
from supervisor.core.intake import Judged

if TYPE_CHECKING:
    from supervisor.containment.workers import Worker
    from supervisor.journal.outputs import Stream

Watcher = Callable[[CallResult], None]


class LiveCall:
    """``result`` is None until it has settled. ``files``: paths that go when the result is forgotten."""

    __slots__ = (
        "descriptors",
        "detached",
        "files",
        "holders",
        "id",
        "judged",
        "key",
        "last_activity_ns",
        "machine",
        "output_bytes",
        "result",
        "streams",
        "submitted_ns",
        "uid",
        "watchers",
        "worker",
    )

    def __init__(self, call_id: str, uid: int, key: str, judged: Judged, submitted_ns: int) -> None:
        self.id, self.uid, self.key = call_id, uid, key
        self.judged = judged
        self.submitted_ns = self.last_activity_ns = submitted_ns
        self.machine = CallMachine(
            judged.deadline_ns, judged.contract.term_grace_ms, accepts=not judged.contract.read_only
        )
        self.worker: Worker | None = None
        self.streams: list[Stream] = []
        self.descriptors: list[int] = []
        self.output_bytes = 0
        self.watchers: dict[tuple[object, int], Watcher] = {}
        """By who asked and under which of its numbers, so that one who leaves can be forgotten."""
        self.result: CallResult | None = None
        self.files: list[str] = []
        self.holders = 0
        """Connections that the call is attached to; the same delivery key may attach several."""
        self.detached = False

    @property
    def lane(self) -> str:
        """The run it belongs to, which is a name of its user's; a call outside a run is a run of its own."""
        return self.id if not self.judged.run else f"{self.uid}/{self.judged.run}"

    def tell(self, result: CallResult) -> None:
        """It has settled: every watcher hears it once."""
        self.result = result
        watchers, self.watchers = self.watchers, {}
        for watcher in watchers.values():
            watcher(result)
