"""What a call leaves behind and what is kept of it: its raw output, the view of it, its work directory, its result.

`finish_now` does what costs microseconds while the loop waits; `finish` the rest (draining a dead call's pipe, hashing,
viewing a large file) in threads. Whatever must happen before the worker's directories go, or the worker serves another
call, happens in the first.
"""

from __future__ import annotations

import contextlib
import os

import trio

from protocol._deadlines import NS_PER_MS
from protocol._events import EventKind
from protocol._outcomes import CallResult, Notice, Reason, Status
from supervisor.containment.workers import Worker
from supervisor.core.shelf import Shelf
from supervisor.journal import rows
from supervisor.journal.journal import Journal
from supervisor.journal.output_report import SILENT, Written, look_into, output_of
from supervisor.journal.outputs import OutputStore, drain
from supervisor.journal.results import KeptCall, ResultStore, pack
from supervisor.live_call import LiveCall
from supervisor.output_keeper import OutputKeeper, Seal

_INLINE_BYTES = 16 << 10
_ALLOCATED_BYTES = 1 << 20
_KEEP_WORK = (Status.KILLED, Status.CRASHED, Status.CANCELLED)


class Endings:
    """Raw outputs and results of this daemon's calls."""

    def __init__(self, outputs: OutputStore, shelf: Shelf, result_ttl_ms: int, journal: Journal) -> None:
        self._outputs, self._journal = outputs, journal
        self.result_ttl_ms = result_ttl_ms
        self.kept = ResultStore(self._forget)
        self._keeper = OutputKeeper(outputs, shelf, self._sealed)

    async def run(self) -> None:
        """Hash, count and remove files of settled calls until cancelled."""
        await self._keeper.run()

    def open_outputs(self, call: LiveCall, worker: Worker) -> list[int]:
        """Where the call about to be dispatched writes; the descriptors that go with its frame."""
        judged = call.judged
        if judged.contract.kind == "command":
            call.streams = self._outputs.open_streams(call.id, judged.split_streams)
            return [descriptor for stream in call.streams for descriptor in stream.passed()]
        if worker.renew_output:
            worker.scratch.renew_output()
            worker.renew_output = False
            return [worker.scratch.output]
        return []

    def take_back_outputs(self, call: LiveCall) -> None:
        """Nobody has written: the call goes to another worker, which gets files of its own."""
        streams, call.streams, call.descriptors = call.streams, [], []
        self._outputs.close_streams(streams)
        for stream in streams:
            self._outputs.discard(stream.path)

    def drop_outputs(self, call: LiveCall, worker: Worker) -> None:
        """An attempt is over and another will follow: what it has written goes."""
        self.take_back_outputs(call)
        call.output_bytes = 0
        if call.judged.contract.kind != "command" and worker.scratch.output_bytes():
            worker.renew_output = True
            with contextlib.suppress(OSError):  # a tool has moved it
                os.unlink(worker.scratch.output_path)

    def finish_now(self, call: LiveCall, result: CallResult) -> bool:
        """Take what must be taken at once; False: `finish` has more to do."""
        if call.worker is None:
            return True
        try:
            return self._take(call, call.worker, result)
        except OSError as error:
            self._lose(call, result, error)
            return True

    async def finish(self, call: LiveCall, result: CallResult) -> None:
        """The slow rest. Run it shielded: a result that is not finished would never be told."""
        try:
            await self._take_slowly(call, result)
        except OSError as error:
            self._lose(call, result, error)

    def _take(self, call: LiveCall, worker: Worker, result: CallResult) -> bool:
        if call.judged.contract.kind != "command":
            self._take_printed(call, worker, result)
        if result.status in _KEEP_WORK and not worker.scratch.work_is_empty():
            with contextlib.suppress(OSError):  # whatever a tool did to its directory must not cost its output
                result.workdir = self._outputs.keep_work(worker.scratch.work, call.id)
                call.files.append(result.workdir)
        if call.streams:
            if result.status in _KEEP_WORK and any(stream.waiting() > _INLINE_BYTES for stream in call.streams):
                return False
            self._seal(call, result)
        if result.output.bytes > _INLINE_BYTES:
            return False
        if result.output.bytes:
            look_into(result.output)
        return True

    async def _take_slowly(self, call: LiveCall, result: CallResult) -> None:
        if call.streams:
            await trio.to_thread.run_sync(drain, call.streams, call.judged.output_limit)
            self._seal(call, result)
        if result.output.bytes:
            await trio.to_thread.run_sync(look_into, result.output)

    def _lose(self, call: LiveCall, result: CallResult, error: OSError) -> None:
        """The disk failed us after the call: its outcome stands, what is missing is said."""
        call.files += [stream.path for stream in call.streams]  # whatever lies there goes with the result
        self._outputs.close_streams(call.streams)
        call.streams = []
        text = f"its output could not be kept whole: {error.strerror or error}"
        result.notices.append(Notice("output_lost", "warn", text))

    def pack(self, call: LiveCall, result: CallResult) -> KeptCall:
        """A result as every reader hears it, until its time is up."""
        until_ns = call.submitted_ns + (result.timing.duration_ms + self.result_ttl_ms) * NS_PER_MS
        return pack(call.uid, result, tuple(call.files), until_ns)

    def settled(self, call: LiveCall, result: CallResult, kept: KeptCall) -> None:
        """It is told: readers may ask for it until its time is up, and its files are kept as long as there is room."""
        self.kept.keep(kept)
        if kept.files:
            self._keeper.settled(result, call.uid, kept.files)

    def expire(self, now_ns: int) -> None:
        """Forget results that are too old, and have removed files that are."""
        self.kept.expire(now_ns)
        self._keeper.expire()

    def _take_printed(self, call: LiveCall, worker: Worker, result: CallResult) -> None:
        """A Python call that printed takes its worker's standing file. What is beyond the limit is not kept."""
        size, limit = worker.scratch.output_bytes(), call.judged.output_limit
        result.output = SILENT
        if size == 0:
            return
        worker.renew_output = True  # also when a tool has made the move impossible
        if size > limit or worker.scratch.output_on_disk() > size + _ALLOCATED_BYTES:
            os.ftruncate(worker.scratch.output, min(size, limit))  # to its own size: gives back what is behind it
        path = self._outputs.adopt(worker.scratch.output_path, call.id)
        call.files.append(path)
        result.output = output_of([Written("both", min(size, limit), path)], size > limit)

    def _seal(self, call: LiveCall, result: CallResult) -> None:
        """Nobody writes any more: take what is left, record the streams, drop empty files."""
        if result.status in _KEEP_WORK:
            drain(call.streams, call.judged.output_limit)
        streams, call.streams = call.streams, []
        truncated = result.reason is Reason.OUTPUT_LIMIT or any(stream.waiting() for stream in streams)
        sizes = [stream.size() for stream in streams]
        self._outputs.close_streams(streams)
        for stream, size in zip(streams, sizes, strict=True):
            if size:
                call.files.append(stream.path)
            else:
                with contextlib.suppress(OSError):
                    os.unlink(stream.path)
        written = [Written(s.name, size, s.path if size else None) for s, size in zip(streams, sizes, strict=True)]
        result.output = output_of(written, truncated)
        total = result.output.bytes
        if call.output_bytes > total and not truncated:
            text = f"the disk took {total} of the {call.output_bytes} bytes that were written"
            result.notices.append(Notice("output_lost", "warn", text))

    def _forget(self, kept: KeptCall) -> None:
        self._journal.append(rows.forgotten(kept.id))

    def _sealed(self, seal: Seal) -> None:
        """An event and not a change of the result: every reader of that hears the same bytes for good."""
        data = {"stream": seal.stream, "bytes": seal.bytes, "sha256": seal.sha256}
        self._journal.note(EventKind.OUTPUT_SEALED, seal.call, seal.uid, seal.run, **data)
