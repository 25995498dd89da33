"""Which logical call a delivery stands for, what answers it, and the key that goes downstream with it. Pure.

Rules
1. A client's delivery key stands for one logical call, per uid and run: one tool, asked for one thing in one directory
   (`Said`). Another order of names, or other spaces, in the arguments is the same thing said.
2. The first delivery runs. A later one runs nothing: it waits for the call in flight, or hears what was told.
3. Only a call that came to nothing may run again under its key: it was never delivered, or whoever knows (the tool
   that its contract has to ask) says that it is not done. One that somebody cancelled is not wanted any more; one that
   only a stop of the daemon ended is.
4. Something else said under a known key is a conflict, whatever became of the first: nothing runs, nothing is told.
5. A key is known for longer than its result is kept. Then nothing is told, and nothing runs either.
6. The key that goes downstream is one for one decision: the same for every delivery, attempt and life of it, another
   for the next decision, though that asks for the very same. With a client's key it derives from that one.
"""

from __future__ import annotations

import base64
import hashlib
from enum import Enum, auto
from typing import NamedTuple

from protocol._outcomes import CallResult, Delivery, Reason, Status

_ENDED_BY_OTHERS = frozenset((Status.KILLED, Status.CRASHED, Status.CANCELLED, Status.UNKNOWN))


class Earlier(Enum):
    """What is known of the call that a delivery key stands for."""

    NONE = auto()
    IN_FLIGHT = auto()
    TOLD = auto()
    CAME_TO_NOTHING = auto()
    FORGOTTEN = auto()


class Said(Enum):
    """Whether a delivery asks for what its key stands for."""

    SAME = auto()
    OTHER = auto()


class Verdict(Enum):
    """What becomes of a delivery."""

    RUN = auto()
    WAIT = auto()
    REPLAY = auto()
    CONFLICT = auto()
    FORGOTTEN = auto()


VERDICTS = {
    (Earlier.NONE, Said.SAME): Verdict.RUN,
    (Earlier.NONE, Said.OTHER): Verdict.RUN,
    (Earlier.IN_FLIGHT, Said.SAME): Verdict.WAIT,
    (Earlier.IN_FLIGHT, Said.OTHER): Verdict.CONFLICT,
    (Earlier.TOLD, Said.SAME): Verdict.REPLAY,
    (Earlier.TOLD, Said.OTHER): Verdict.CONFLICT,
    (Earlier.CAME_TO_NOTHING, Said.SAME): Verdict.RUN,
    (Earlier.CAME_TO_NOTHING, Said.OTHER): Verdict.CONFLICT,
    (Earlier.FORGOTTEN, Said.SAME): Verdict.FORGOTTEN,
    (Earlier.FORGOTTEN, Said.OTHER): Verdict.CONFLICT,
}
"""Rules 2 to 5."""


class DeliveryKey(NamedTuple):
    """A client's delivery key, ready to be looked up. ``place``: the digest of uid, run and key; ``said``: of what is
    asked for; ``downstream``: the key that the tool hears."""

    place: bytes
    said: bytes
    downstream: str


def said_of(tool: str, cwd: str | None, arguments: bytes) -> bytes:
    """The digest of what a call asks for. ``arguments``: in a form that is equal where they are."""
    return hashlib.sha256(_joined(tool, cwd or "").encode() + b"\0" + arguments).digest()


def delivery_key(uid: int, run: str | None, key: str, said: bytes) -> DeliveryKey:
    """A client's key. Digests, because a client's words may be a frame long and are remembered for long."""
    place = hashlib.sha256(_joined(str(uid), run or "", key).encode()).digest()
    return DeliveryKey(place, said, _sayable(place + said))


def idempotency_key(tenant: str, run: str, step: int, index: int, tool: str, contract: bytes, arguments: bytes) -> str:
    """Rule 6, for a call without a client's key: its ``index`` in its ``step`` in its ``run`` makes it one decision.
    ``contract``, ``arguments``: digests. At most 64 letters and digits."""
    decision = _joined(tenant, run, str(step), str(index), tool).encode()
    return _sayable(decision + b"\0" + contract + arguments)


def earlier_of(result: CallResult | None) -> Earlier:
    """What is known of a call that is not in flight. ``result``: as it is kept, or None when it is kept no longer."""
    if result is None:
        return Earlier.FORGOTTEN
    return Earlier.CAME_TO_NOTHING if came_to_nothing(result) else Earlier.TOLD


def came_to_nothing(result: CallResult) -> bool:
    """Rule 3. Of a call that others ended nobody but who was asked can say that it has definitely failed."""
    if result.status is Status.CANCELLED and result.reason is not Reason.SHUTDOWN:
        return False
    asked = result.delivery is Delivery.FAILED_DEFINITE and result.status in _ENDED_BY_OTHERS
    return asked or result.delivery is Delivery.NOT_DELIVERED


def verdict(earlier: Earlier, same: bool) -> Verdict:
    """What becomes of a delivery."""
    return VERDICTS[earlier, Said.SAME if same else Said.OTHER]


def _joined(*parts: str) -> str:
    """One text for several, so that no two lists of texts have the same; for usual texts they stand as they are, with
    a NUL between them."""
    return "\0".join(part.replace("\1", "\1\1").replace("\0", "\1\2") for part in parts)


def _sayable(decision: bytes) -> str:
    return base64.b32encode(hashlib.sha256(decision).digest()).decode().rstrip("=").lower()
