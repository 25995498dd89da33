"""Delivery keys of clients: the same key of the same uid and run names the same logical call, so a delivery that comes
twice is answered once. In memory; the journal's call rows have them for the next life, which `recall`s them."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from typing import NamedTuple

from protocol._client_messages import Submit

MOST = 100_000


class Claim(NamedTuple):
    """``key`` goes downstream with the call. ``earlier``: the call that this delivery key stands for already, if any;
    ``same``: whether that one was the same tool with the same arguments. ``place``, ``said``: the digests of the
    delivery key with its uid and run, and of the tool with its arguments."""

    key: str
    place: bytes
    said: bytes
    earlier: str | None = None
    same: bool = True


class Keys:
    """Which call a delivery key stands for."""

    def __init__(self) -> None:
        self._calls: dict[bytes, tuple[str, bytes]] = {}

    def claim(self, submit: Submit, uid: int, call: str, arguments: str, spent: Callable[[str], bool]) -> Claim:
        """Take a submit's delivery key for ``call``. ``spent(earlier)``: whether that call came to nothing and the same
        one may be sent again under its key."""
        # Digests, because a client's words may be a frame long and are remembered for long.
        place, said = _digest(str(uid), submit.run or "", submit.key or ""), _digest(submit.tool, arguments)
        downstream = base64.b32encode(place).decode().rstrip("=").lower()
        earlier, then = self._calls.get(place, ("", said))
        if earlier and not (said == then and spent(earlier)):
            return Claim(downstream, place, said, earlier, said == then)
        self.recall(place, said, call)
        return Claim(downstream, place, said)

    def recall(self, place: bytes, said: bytes, call: str) -> None:
        """A delivery key stands for a call, from now on or since an earlier life."""
        self._calls[place] = call, said
        if len(self._calls) > MOST:
            del self._calls[next(iter(self._calls))]


def _digest(*parts: str) -> bytes:
    return hashlib.sha256("\0".join(parts).encode()).digest()
