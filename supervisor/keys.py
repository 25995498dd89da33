"""Delivery keys of clients: the same key of the same uid and run names the same logical call, so a delivery that comes
twice is answered once. (In memory, as long as the results; the journal takes this place later.)"""

from __future__ import annotations

import base64
import hashlib

from protocol._client_messages import Submit

MOST = 100_000


class Keys:
    """Which call a delivery key stands for."""

    def __init__(self) -> None:
        self._calls: dict[tuple[int, str | None, str], str] = {}

    def claim(self, submit: Submit, uid: int, call: str) -> tuple[str, str | None]:
        """(idempotency key that goes downstream, the earlier call of this delivery key or None).

        Without a client's key the call's own id, which is never used twice, is the downstream key.
        """
        if submit.key is None:
            return call, None
        place = (uid, submit.run, submit.key)
        earlier = self._calls.get(place)
        if earlier is None:
            self._calls[place] = call
            if len(self._calls) > MOST:
                del self._calls[next(iter(self._calls))]
        return _downstream(uid, submit), earlier


def _downstream(uid: int, submit: Submit) -> str:
    said = "\0".join((str(uid), submit.run or "", submit.key or "", submit.tool)).encode()
    return base64.b32encode(hashlib.sha256(said).digest()).decode().rstrip("=").lower()
