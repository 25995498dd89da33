"""What a running call may know and say: its deadline, its key, its places, whether it should stop, how far it is.

Made by the worker for each call; a tool gets it as the parameter annotated ``Context``. Nothing here can move the
deadline: it lives in memory that no worker shares.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from protocol._deadlines import remaining_ms
from protocol._worker_messages import LONGEST_FINGERPRINT

ProgressSink = Callable[[float | None, float | None, str | None], None]
"""``(done, total, text)``. Limits its own rate; never blocks longer than a write to a full socket may."""


def _say_nothing(_done: float | None, _total: float | None, _text: str | None) -> None:
    return None


class Context:
    """One call, seen from inside.

    ``deadline_ns``: instant of CLOCK_MONOTONIC at which SIGKILL comes. ``idempotency_key``: pass it downstream; stable
    over retries of the same decision. ``workdir``: the call's own directory. ``root``: where relative paths start and
    file tools end (the call's cwd, or else its workdir). ``roots``: further directories file tools may touch.
    """

    __slots__ = (
        *("_cancelled", "_now_ns", "_said", "_sink"),
        *("deadline_ns", "idempotency_key", "root", "roots", "workdir"),
    )

    def __init__(
        self,
        *,
        deadline_ns: int,
        workdir: str | Path,
        idempotency_key: str = "",
        root: str | Path | None = None,
        roots: Iterable[str | Path] = (),
        sink: ProgressSink = _say_nothing,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.deadline_ns = deadline_ns
        self.idempotency_key = idempotency_key
        self.workdir = Path(workdir)
        self.root = self.workdir if root is None else Path(root)
        self.roots = tuple(Path(extra) for extra in roots)
        self._sink, self._now_ns = sink, now_ns
        self._cancelled = False
        self._said = ""

    def remaining_ms(self) -> int:
        """Whole milliseconds until the deadline, rounded up; 0 when it has passed."""
        return remaining_ms(self.deadline_ns, self._now_ns())

    @property
    def cancelled(self) -> bool:
        """Whether the call was asked to end (SIGTERM: ``term_grace_ms`` before its deadline, or after a cancel).

        SIGKILL follows whatever the tool does; this is the chance to end well before it.
        """
        return self._cancelled

    def cancel(self) -> None:
        """Set ``cancelled``; for the worker's SIGTERM handler. Safe in a signal handler: it stores one flag."""
        self._cancelled = True

    def progress(self, done: float | None = None, total: float | None = None, text: str | None = None) -> None:
        """Tell whoever watches how far the call is. Cheap to call often: what is too much is dropped."""
        self._sink(done, total, text)

    def fingerprint(self, reached: str) -> None:
        """Say what this call has reached, in a word that differs when, and only when, its run has got on: a digest of a
        file, a page's address, the tests that are red. The last word counts; it is used where the contract says
        ``progress = "self"``. Raises ValueError for more than 256 characters, or for what is no text."""
        if len(reached) > LONGEST_FINGERPRINT:
            raise ValueError(
                f"a fingerprint of {len(reached)} characters; allowed: {LONGEST_FINGERPRINT}, so digest it"
            )
        reached.encode()
        self._said = reached

    @property
    def said_fingerprint(self) -> str:
        """What the call has said it reached; for the worker."""
        return self._said
