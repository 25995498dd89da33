"""What a model's tokens cost, and how a call of a model is bound and accounted for. Prices come from the configuration;
none is built in, because a price that is out of date is worse than none.

Rules
1. Costs are whole micros (millionths of the currency the prices are in), rounded up.
2. An estimate takes all input as not cached, or at the cached price where that is the higher one.
3. A model without a price of its own has that of ``*``. Without that one its calls cost nothing while no limit of costs
   holds for the run, which is worth a notice, and are refused where one does: a limit that nothing counts towards would
   hold nothing.
4. The other limits are looked at first, so a run that is over one of them settles for it.
5. What a provider does not report is what was reserved.
6. Who announces no tokens reserves one each way: where none are left no call begins.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from protocol._budgets import Dimension
from supervisor.core.budget import Amounts, Ledger, Node, Refused, Reservation, model_amounts

ANY_MODEL = "*"
PER_TOKENS = 1_000_000


class Price(msgspec.Struct, frozen=True):
    """Micros for a million tokens. ``cached_input_micros``: for input that the provider had in its cache; None: as for
    other input."""

    input_micros: int
    output_micros: int
    cached_input_micros: int | None = None

    def cost(self, tokens_in: int, tokens_out: int, cached_in: int = 0) -> int:
        """Micros of a usage. ``cached_in``: how many of ``tokens_in`` came from the cache."""
        cached = min(cached_in, tokens_in)
        price = self.input_micros if self.cached_input_micros is None else self.cached_input_micros
        return _whole((tokens_in - cached) * self.input_micros + cached * price + tokens_out * self.output_micros)

    def estimate(self, tokens_in: int, tokens_out: int) -> int:
        """Micros that a call may cost at most."""
        return max(self.cost(tokens_in, tokens_out), self.cost(tokens_in, tokens_out, tokens_in))


class Unpriced(msgspec.Struct, frozen=True):
    """Rule 3: there is a limit of costs, and nobody knows what this model costs."""

    model: str

    @property
    def text(self) -> str:
        """A sentence for people."""
        return f'model {self.model!r} has no price and the run has a limit of costs; allowed: one with [price."MODEL"]'


def price_of(prices: Mapping[str, Price], model: str) -> Price | None:
    """A model's price; None: nobody knows."""
    return prices.get(model) or prices.get(ANY_MODEL)


def reserve_model_call(
    ledger: Ledger, node: Node, price: Price | None, model: str, tokens_in: int, tokens_out: int
) -> Reservation | Refused | Unpriced:
    """Bind one attempt at a model call. ``tokens_in``: as estimated; ``tokens_out``: the most that it may say.

    Refused or unpriced, nothing is bound. Raises ValueError for an amount below 0.
    """
    tokens_in, tokens_out = tokens_in or 1, tokens_out or 1
    if price is None and ledger.limited(node, Dimension.COST_MICROS):
        return ledger.can(node, model_amounts(tokens_in, tokens_out, 0)) or Unpriced(model)
    cost = 0 if price is None else price.estimate(tokens_in, tokens_out)
    return ledger.reserve(node, model_amounts(tokens_in, tokens_out, cost))


def used_amounts(
    reserved: Amounts, price: Price | None, tokens_in: int | None, tokens_out: int | None, cached_in: int = 0
) -> dict[str, int]:
    """What a model call has used, for `Ledger.settle`. None: the provider did not say."""
    known_in = reserved.get(Dimension.TOKENS_IN, 0) if tokens_in is None else tokens_in
    known_out = reserved.get(Dimension.TOKENS_OUT, 0) if tokens_out is None else tokens_out
    if price is None:
        return model_amounts(known_in, known_out, 0)
    told = tokens_in is not None and tokens_out is not None
    cost = price.cost(known_in, known_out, cached_in) if told else price.estimate(known_in, known_out)
    return model_amounts(known_in, known_out, cost)


def _whole(parts: int) -> int:
    return -(-parts // PER_TOKENS)
