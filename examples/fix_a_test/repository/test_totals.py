"""``python3 -B -m unittest``: two of three fail."""

from __future__ import annotations

import unittest

from totals import total, with_discount


class Totals(unittest.TestCase):
    """What an order comes to."""

    def test_nothing_costs_nothing(self) -> None:
        self.assertEqual(total([]), 0)

    def test_every_price_counts(self) -> None:
        self.assertEqual(total([100, 20, 3]), 123)

    def test_a_discount_makes_it_cheaper(self) -> None:
        self.assertEqual(with_discount([100, 100], 10), 180)


if __name__ == "__main__":
    unittest.main()
