"""Layout of the killer's table: one page of memory shared by the daemon and the killer, and by nobody else.

Standard library only: the killer imports this and nothing more.

Each slot belongs to one worker and is eight unsigned 64-bit words (one cache line, so that two slots never share one):

    word 0  term_ns       SIGTERM at this instant; 0 = none              written by the daemon
    word 1  deadline_ns   SIGKILL at this instant; 0 = not armed         written by the daemon
    word 2  generation    which worker the slot now stands for           written by the daemon
    word 3  killed_ns     when the killer sent SIGKILL; 0 = it did not   written by the killer (zeroed by the daemon
                                                                         while no worker is registered in the slot)
    word 4  seen          processes the killer saw in the worker at that instant   written by the killer

Every word has one writer, every access is one aligned 8-byte load or store, so a reader sees an old or a new value
and never half of one. The first cache line is the header:

    word 0  next_wake_ns  when the killer will next look by itself       written by the killer
    word 1  heartbeat     rounds the killer has made                      written by the killer

A daemon that stores a deadline earlier than ``next_wake_ns`` must wake the killer through the eventfd (`DeadlineTable`
in the daemon and `_killer.py` explain why no wake is lost).
"""

from __future__ import annotations

from protocol._deadlines import NEVER_NS

WORDS_PER_SLOT = 8
HEADER_WORDS = 8
WORD_BYTES = 8
NEXT_WAKE = 0
HEARTBEAT = 1
TERM, DEADLINE, GENERATION, KILLED, SEEN = range(5)
NEVER = NEVER_NS
GUARDED, PATIENTLY = 1 << 31, 1 << 30
"""Added to the slot's number in a registration: the first descriptor is a guard's pidfd, the second its bell.
And beside that: nobody ends what this guard leaves, so it has the time to end all it can find (level ``group``)."""
GUARD_NS, PATIENT_NS = 40_000_000, 600_000_000
"""How long a guard may take that was rung, before it is killed: it needs 3 ms for an ordinary tree, and what it leaves
costs the zygote no more. A patient one reads through all of /proc."""


def table_bytes(slots: int) -> int:
    """Size of a table of so many slots."""
    return (HEADER_WORDS + slots * WORDS_PER_SLOT) * WORD_BYTES


def slot_base(slot: int) -> int:
    """Index of a slot's first word."""
    return HEADER_WORDS + slot * WORDS_PER_SLOT


def slots_in(table: memoryview) -> int:
    """How many slots a table (cast to ``"Q"``) has."""
    return (len(table) - HEADER_WORDS) // WORDS_PER_SLOT
