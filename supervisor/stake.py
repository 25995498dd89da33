"""What a call in flight holds of the run that it belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from supervisor.core.budget import Reservation
from supervisor.core.detectors import Ask

if TYPE_CHECKING:
    from supervisor.live_run import LiveRun


class Stake(msgspec.Struct, eq=False):
    """``token``: the detectors' name for the attempt; ``prior``: how many equivalent ones came before it. ``in_log``:
    whether the log of the run has it."""

    run: LiveRun
    ask: Ask
    reservation: Reservation
    token: int
    prior: int
    in_log: bool = False
