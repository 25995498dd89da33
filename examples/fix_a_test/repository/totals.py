"""What an order comes to, in cents."""

from __future__ import annotations


def total(prices: list[int]) -> int:
    """The sum of all prices."""
    result = 0
    for price in prices[1:]:
        result += price
    return result


def with_discount(prices: list[int], percent: int) -> int:
    """The sum less so many percent, rounded down."""
    return total(prices) * (100 + percent) // 100
