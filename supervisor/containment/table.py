"""The deadline table from the daemon's side: arm, disarm, and what the killer wrote. Layout: ``protocol/_slots.py``.

No wake of the killer is lost. The killer publishes when it will next look, passes a full barrier (a system call), and
scans once more before it sleeps. We store the deadline, pass a full barrier (an uncontended lock: one locked
instruction), and only then read what it published. Whichever came first, one of us sees the other's store.

A stalled daemon cannot turn a finished call into a kill of the next one: `disarm` stores 0 first and the caller reads
the clock after it. Had the killer seen the old deadline as overdue, that clock would be past it.
"""

from __future__ import annotations

import mmap
import os
import threading

from protocol import _slots as layout


class DeadlineTable:
    """The shared page. Descriptors ``memory`` and ``bell`` go to the killer, and to nobody else: a tool that could
    write here could move its own deadline."""

    def __init__(self, slots: int) -> None:
        size = layout.table_bytes(slots)
        self.memory = os.memfd_create("deadlined-table", os.MFD_CLOEXEC)
        os.ftruncate(self.memory, size)
        self.bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._map = mmap.mmap(self.memory, size)
        self._words = memoryview(self._map).cast("Q")
        self._words[layout.NEXT_WAKE] = layout.NEVER
        self._fence = threading.Lock()
        self.slots = slots

    def open_slot(self, slot: int, generation: int) -> None:
        """A new worker stands in ``slot``. The killer acts on it once the same generation is registered with it."""
        base = layout.slot_base(slot)
        words = self._words
        words[base + layout.DEADLINE] = words[base + layout.TERM] = 0
        words[base + layout.KILLED] = words[base + layout.SEEN] = 0
        words[base + layout.GENERATION] = generation

    def close_slot(self, slot: int) -> None:
        """The slot's worker is gone."""
        base = layout.slot_base(slot)
        self._words[base + layout.DEADLINE] = self._words[base + layout.TERM] = 0
        self._words[base + layout.GENERATION] = 0

    def arm(self, slot: int, deadline_ns: int, term_ns: int = 0) -> None:
        """SIGTERM at ``term_ns`` (0: never), SIGKILL at ``deadline_ns``. 0.5 µs; 10 µs when the killer must wake."""
        base = layout.slot_base(slot)
        words = self._words
        words[base + layout.TERM] = term_ns
        words[base + layout.DEADLINE] = deadline_ns
        with self._fence:
            pass
        if (term_ns or deadline_ns) < words[layout.NEXT_WAKE]:
            os.eventfd_write(self.bell, 1)

    def disarm(self, slot: int) -> None:
        """Store 0. Read the clock *after* this: the worker is reusable only if that is before the deadline and
        `killed_ns` is 0."""
        base = layout.slot_base(slot)
        self._words[base + layout.DEADLINE] = 0
        self._words[base + layout.TERM] = 0

    def deadline_ns(self, slot: int) -> int:
        """When the slot's worker is to be killed; 0: not armed."""
        return self._words[layout.slot_base(slot) + layout.DEADLINE]

    def killed_ns(self, slot: int) -> int:
        """When the killer sent SIGKILL; 0: it did not."""
        return self._words[layout.slot_base(slot) + layout.KILLED]

    def seen(self, slot: int) -> int:
        """Processes that the killer saw in the worker when it sent SIGKILL."""
        return self._words[layout.slot_base(slot) + layout.SEEN]

    def close(self) -> None:
        """Unmap and close."""
        self._words.release()
        self._map.close()
        os.close(self.memory)
        os.close(self.bell)
