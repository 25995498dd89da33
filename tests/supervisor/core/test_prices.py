from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.budget import Ledger, Level, Node, Refused, Reservation, model_amounts, run_reason
from supervisor.core.prices import Price, Unpriced, price_of, reserve_model_call, used_amounts

RUN = Node(Level.RUN, "r_1")
PRICE = Price(input_micros=3_000_000, output_micros=15_000_000, cached_input_micros=300_000)
tokens = st.integers(0, 10**9)
micros = st.integers(0, 10**9)


def books(**limits: int | None) -> Ledger:
    ledger = Ledger()
    ledger.open(RUN, None, limits)
    return ledger


@pytest.mark.behaviour("M171")
def test_input_output_and_cached_input_have_prices_of_their_own() -> None:
    assert PRICE.cost(1_000_000, 0) == 3_000_000
    assert PRICE.cost(0, 1_000_000) == 15_000_000
    assert PRICE.cost(1_000_000, 0, 1_000_000) == 300_000
    assert PRICE.cost(1_000, 100, 400) == 600 * 3 + 120 + 1_500
    assert Price(3_000_000, 0).cost(1_000, 0, 1_000) == 3_000


@given(tokens, tokens, tokens, st.builds(Price, micros, micros, st.none() | micros))
def test_a_cost_is_the_exact_one_rounded_up_and_never_over_the_estimate(
    tokens_in: int, tokens_out: int, cached: int, price: Price
) -> None:
    cached = min(cached, tokens_in)
    cheap = price.input_micros if price.cached_input_micros is None else price.cached_input_micros
    exact = Fraction(
        (tokens_in - cached) * price.input_micros + cached * cheap + tokens_out * price.output_micros, 10**6
    )
    assert exact <= price.cost(tokens_in, tokens_out, cached) < exact + 1
    assert price.cost(tokens_in, tokens_out, cached) <= price.estimate(tokens_in, tokens_out)


def test_more_cached_than_there_was_is_all_of_it() -> None:
    assert PRICE.cost(10, 0, 10**6) == PRICE.cost(10, 0, 10) > 0


def test_a_model_has_its_own_price_or_that_of_any_or_none() -> None:
    free = Price(0, 0)
    assert price_of({"m": PRICE, "*": free}, "m") is PRICE
    assert price_of({"m": PRICE, "*": free}, "n") is free
    assert price_of({"m": PRICE}, "n") is None


def test_a_model_call_reserves_itself_its_tokens_and_what_they_cost() -> None:
    bound = reserve_model_call(books(), RUN, PRICE, "m", 8_000, 1_000)
    assert isinstance(bound, Reservation)
    assert bound.amounts == model_amounts(8_000, 1_000, 39_000)


def test_a_limit_of_costs_refuses_the_call_that_might_pass_it() -> None:
    ledger = books(cost_micros=300_000)
    for _ in range(7):
        bound = reserve_model_call(ledger, RUN, PRICE, "m", 8_000, 1_000)
        assert isinstance(bound, Reservation)
    refusal = reserve_model_call(ledger, RUN, PRICE, "m", 8_000, 1_000)
    assert isinstance(refusal, Refused)
    assert run_reason(refusal) == "cost_budget"


def test_a_model_without_a_price_costs_nothing_where_no_limit_of_costs_holds() -> None:
    bound = reserve_model_call(books(tokens_total=10), RUN, None, "m", 4, 4)
    assert isinstance(bound, Reservation)
    assert bound.amounts == {"model_calls": 1, "tokens_in": 4, "tokens_out": 4, "tokens_total": 8}


def test_a_model_without_a_price_is_refused_where_a_limit_of_costs_holds_and_nothing_is_bound() -> None:
    ledger = books(cost_micros=300_000)
    unpriced = reserve_model_call(ledger, RUN, None, "gpt-x", 4, 4)
    assert isinstance(unpriced, Unpriced)
    assert "'gpt-x' has no price" in unpriced.text
    assert ledger.view(RUN)["model_calls"].reserved == 0


def test_another_limit_is_refused_before_the_missing_price() -> None:
    refusal = reserve_model_call(books(cost_micros=300_000, tokens_out=3), RUN, None, "m", 4, 4)
    assert isinstance(refusal, Refused)
    assert refusal.dimension == "tokens_out"


@pytest.mark.parametrize("kind", ["tokens_in", "tokens_out", "tokens_total"])
def test_who_announces_no_tokens_is_refused_where_none_are_left(kind: str) -> None:
    ledger = books(**{kind: 10})
    ledger.spend(RUN, {kind: 10})
    refusal = reserve_model_call(ledger, RUN, None, "m", 0, 0)
    assert isinstance(refusal, Refused)
    assert refusal.dimension == kind


@pytest.mark.behaviour("M168")
def test_input_and_output_are_added_and_over_the_limit_the_run_stops() -> None:
    ledger = books(tokens_total=15_000)
    for used in (4_500, 9_000, 13_500):
        bound = reserve_model_call(ledger, RUN, None, "m", 0, 0)
        assert isinstance(bound, Reservation)
        ledger.settle(bound, used_amounts(bound.amounts, None, 4_000, 500))
        view = ledger.view(RUN)["tokens_total"]
        assert (view.used, view.limit, view.percent) == (used, 15_000, used * 100 // 15_000)
    refusal = reserve_model_call(ledger, RUN, None, "m", 4_000, 500)
    assert isinstance(refusal, Refused)
    assert run_reason(refusal) == "token_budget"


def test_what_was_used_is_what_was_reported_at_its_price() -> None:
    assert used_amounts({}, PRICE, 1_000, 100, 400) == model_amounts(1_000, 100, 3_420)
    assert used_amounts({}, None, 1_000, 100) == model_amounts(1_000, 100, 0)


def test_what_was_not_reported_is_used_as_it_was_reserved() -> None:
    dear = Price(1_000_000, 1_000_000, cached_input_micros=2_000_000)
    for price in (PRICE, dear):
        reserved = model_amounts(8_000, 1_000, price.estimate(8_000, 1_000))
        assert used_amounts(reserved, price, None, None, 8_000) == reserved
        assert used_amounts(reserved, price, 100, None) == model_amounts(100, 1_000, price.estimate(100, 1_000))
        assert used_amounts(reserved, price, None, 7) == model_amounts(8_000, 7, price.estimate(8_000, 7))
