from __future__ import annotations

from datetime import UTC, datetime

import pytest

from supervisor.core.periods import Period, period_number


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000


@pytest.mark.parametrize(
    ("period", "last", "first"),
    [
        (Period.DAY, "2026-11-30T23:59:59", "2026-12-01T00:00:00"),
        (Period.HOUR, "2026-11-30T12:59:59", "2026-11-30T13:00:00"),
    ],
)
def test_a_period_begins_when_the_calendar_of_utc_says(period: Period, last: str, first: str) -> None:
    assert (
        period_number(period, ms(last)) + 1
        == period_number(period, ms(first))
        == period_number(period, ms(last) + 1_000)
    )
    assert period_number(period, ms(first)) == period_number(period, ms(first) + 1_800_000)


def test_without_a_period_there_is_one_that_began_with_time() -> None:
    assert period_number(Period.NONE, 0) == period_number(Period.NONE, 10**15) == 0
