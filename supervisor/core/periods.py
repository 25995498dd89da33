"""Calendar periods after which an account begins anew. They look at the wall clock, which comes in: a day is a day of
UTC, because people plan budgets by calendars and not by a machine's uptime. Deadlines never look at any of this."""

from __future__ import annotations

from enum import StrEnum


class Period(StrEnum):
    """How long what was used counts."""

    NONE = "none"
    HOUR = "hour"
    DAY = "day"


_MS = {Period.HOUR: 3_600_000, Period.DAY: 86_400_000}


def period_number(period: Period, wall_ms: int) -> int:
    """Which period an instant lies in, by milliseconds since 1970; 0 where there is but one."""
    return 0 if period is Period.NONE else wall_ms // _MS[period]
