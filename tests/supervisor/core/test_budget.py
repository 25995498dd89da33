"""What the ledger grants and refuses, how reservations end, and what its nodes stand at."""

from __future__ import annotations

import json
from collections.abc import Mapping

import msgspec
import pytest

from protocol._budgets import BudgetRecord, Dimension, DimensionView
from supervisor.core.budget import (
    Ledger,
    Level,
    Node,
    Refused,
    Reservation,
    call_amounts,
    model_amounts,
    run_reason,
)
from supervisor.core.periods import Period

TENANT, USER = Node(Level.TENANT, "acme"), Node(Level.USER, "acme/1000")
SESSION, RUN = Node(Level.SESSION, "s_1"), Node(Level.RUN, "r_1")
PATH = (RUN, SESSION, USER, TENANT)


def ledger(**limits: Mapping[str, int | None]) -> Ledger:
    """The four nodes of one run, with limits by level: ``ledger(run={"steps": 3})``."""
    made, parent = Ledger(), None
    for node in reversed(PATH):
        made.open(node, parent, limits.get(str(node.level), {}))
        parent = node
    return made


def granted(asked: Reservation | Refused) -> Reservation:
    assert isinstance(asked, Reservation), asked
    return asked


def refused(asked: object) -> Refused:
    assert isinstance(asked, Refused)
    return asked


def used(books: Ledger, dimension: str) -> list[int]:
    """What the run and each above it has used."""
    return [books.view(node)[dimension].used if dimension in books.view(node) else 0 for node in PATH]


def everything(books: Ledger) -> list[dict[str, DimensionView]]:
    return [books.view(node) for node in PATH]


# ---------------------------------------------------------------- limits


@pytest.mark.behaviour("M105")
@pytest.mark.parametrize("dimension", [*(one for one in Dimension if one != "wall_ms"), "tool_calls[search]"])
@pytest.mark.parametrize("limit", [0, 1, 5])
def test_a_limit_of_n_grants_exactly_n_of_every_dimension(dimension: str, limit: int) -> None:
    books = ledger(run={dimension: limit})
    for _ in range(limit):
        granted(books.reserve(RUN, {dimension: 1}))
    refusal = refused(books.reserve(RUN, {dimension: 1}))
    assert (refusal.node, refusal.dimension, refusal.limit) == (RUN, dimension, limit)
    assert (refusal.used, refusal.reserved, refusal.asked) == (0, limit, 1)


def test_no_limit_grants_everything_and_a_dimension_that_nobody_limits_has_none() -> None:
    books = ledger(run={"steps": None})
    granted(books.reserve(RUN, {"steps": 10**18, "retries": 10**18}))
    assert books.left(RUN, "steps") is None
    assert books.left(RUN, "retries") is None
    assert not books.limited(RUN, "steps")


@pytest.mark.behaviour("M104")
@pytest.mark.parametrize("level", list(Level))
def test_each_level_binds_the_run_and_the_refusal_names_it(level: Level) -> None:
    books = ledger(**{level: {"tool_calls": 2}})
    for _ in range(2):
        granted(books.reserve(RUN, call_amounts("search")))
    refusal = refused(books.reserve(RUN, call_amounts("search")))
    assert (refusal.node.level, refusal.dimension) == (level, "tool_calls")
    assert books.left(RUN, "tool_calls") == 0
    assert books.limited(RUN, "tool_calls")


def test_the_nearest_node_that_refuses_is_the_one_named_and_its_first_dimension() -> None:
    books = ledger(run={"tokens_out": 5, "tokens_in": 5}, session={"tool_calls": 0}, tenant={"tool_calls": 0})
    both = {"tokens_out": 9, "tokens_in": 9}
    assert refused(books.can(RUN, {"tool_calls": 1, **both})).dimension == "tokens_out"
    assert refused(books.can(RUN, {"tool_calls": 1})).node == SESSION


def test_what_one_node_refuses_changes_no_other() -> None:
    books = ledger(session={"tool_calls[search]": 0})
    before = everything(books)
    for ask in (books.reserve, books.charge, books.can):
        refused(ask(RUN, call_amounts("search")))
    assert everything(books) == before


def test_asking_for_an_answer_binds_nothing() -> None:
    books = ledger(run={"tool_calls": 1})
    for _ in range(3):
        assert books.can(RUN, call_amounts("search")) is None
    granted(books.reserve(RUN, call_amounts("search")))
    assert refused(books.can(RUN, call_amounts("search"))).reserved == 1


def test_two_runs_of_a_session_share_its_limit_and_nothing_of_each_other() -> None:
    """The machine's half of B112: a gauge is its run's own and is right at each read."""
    books, other = ledger(session={"tokens_total": 100}), Node(Level.RUN, "r_2")
    books.open(other, SESSION, {"tokens_total": 80})
    first = granted(books.reserve(RUN, {"tokens_total": 30}))
    assert books.view(RUN)["tokens_total"] == DimensionView(None, 0, 30, 70)
    assert books.view(other)["tokens_total"] == DimensionView(80, 0, 0, 70)
    books.settle(first, {"tokens_total": 25})
    assert books.view(RUN)["tokens_total"] == DimensionView(None, 25, 0, 75)
    assert books.view(other)["tokens_total"] == DimensionView(80, 0, 0, 75)
    assert refused(books.reserve(other, {"tokens_total": 76})).node == SESSION
    books.close(RUN)
    books.open(RUN, SESSION, {})
    assert books.view(RUN)["tokens_total"] == DimensionView(None, 0, 0, 75)


@pytest.mark.behaviour("M149")
def test_a_session_accumulates_over_its_queries_and_a_new_one_resets_nothing() -> None:
    books = ledger(session={"tokens_total": 15_000})
    books.close(RUN)
    for query in range(3):
        books.open(RUN, SESSION, {"tokens_total": 6_000})
        granted(books.reserve(RUN, {"tokens_total": 4_500}))
        books.dump(RUN)
        books.close(RUN)
        assert books.view(SESSION)["tokens_total"].reserved == 4_500 * (query + 1)
    books.open(RUN, SESSION, {"tokens_total": 6_000})
    assert refused(books.reserve(RUN, {"tokens_total": 4_500})).node == SESSION


@pytest.mark.behaviour("M169")
def test_4500_tokens_a_query_pass_three_times_under_15000_and_the_fourth_stops() -> None:
    books = ledger(session={"tokens_total": 15_000})
    for expected in (30, 60, 90):
        turn = granted(books.reserve(RUN, model_amounts(4_000, 500, 0)))
        books.settle(turn, model_amounts(4_000, 500, 0))
        assert books.view(SESSION)["tokens_total"].percent == expected
    assert books.view(SESSION)["tokens_total"] == DimensionView(15_000, 13_500, 0, 1_500)
    assert run_reason(refused(books.reserve(RUN, model_amounts(4_000, 500, 0)))) == "token_budget"


@pytest.mark.behaviour("M169")
def test_4500_tokens_that_nobody_announced_are_debt_and_stop_the_next_query() -> None:
    books = ledger(session={"tokens_total": 15_000})
    for _ in range(4):
        books.settle(granted(books.reserve(RUN, model_amounts(1, 1, 0))), model_amounts(4_000, 500, 0))
    assert books.view(SESSION)["tokens_total"] == DimensionView(15_000, 18_000, 0, 0)
    assert refused(books.reserve(RUN, model_amounts(1, 1, 0))).used == 18_000


def test_of_eight_calls_of_one_turn_six_start_under_a_limit_of_six() -> None:
    """The machine's half of B104."""
    books = ledger(run={"tool_calls": 6})
    turn = [books.reserve(RUN, call_amounts("search")) for _ in range(8)]
    assert [isinstance(one, Reservation) for one in turn] == [True] * 6 + [False] * 2
    assert {run_reason(refused(one)) for one in turn[6:]} == {"tool_call_budget"}


def test_fifty_calls_side_by_side_are_fifty_in_whatever_order_they_end() -> None:
    """The machine's half of B114."""
    books = ledger()
    out = [granted(books.reserve(RUN, call_amounts("t"))) for _ in range(50)]
    assert books.view(RUN)["branches"] == DimensionView(None, 0, 50, None)
    for one in [*out[1::2], *reversed(out[::2])]:
        books.settle(one)
    assert used(books, "tool_calls") == used(books, "tool_calls[t]") == [50] * 4
    assert books.view(TENANT)["branches"] == DimensionView(None, 0, 0, None)


# ---------------------------------------------------------------- how a reservation ends


def test_a_released_reservation_was_never_there() -> None:
    books = ledger(run={"tool_calls": 1}, tenant={"tool_calls": 1})
    before = everything(books)
    assert books.release(granted(books.reserve(RUN, {"tool_calls": 1, "branches": 1})))
    assert everything(books) == before
    granted(books.reserve(RUN, {"tool_calls": 1}))


@pytest.mark.parametrize("first", ["settle", "release"])
@pytest.mark.parametrize("second", ["settle", "release"])
def test_a_reservation_ends_once(first: str, second: str) -> None:
    books = ledger()
    one = granted(books.reserve(RUN, {"tool_calls": 1, "branches": 1}))
    assert one.open
    getattr(books, first)(one)
    after = everything(books)
    assert not one.open
    assert not getattr(books, second)(one)
    assert books.settle(one) is None
    assert everything(books) == after


@pytest.mark.behaviour("M008")
def test_what_is_reported_is_used_at_every_level_and_the_changes_are_told() -> None:
    books = ledger()
    turn = granted(books.reserve(RUN, model_amounts(8_000, 1_000, 500)))
    told = books.settle(turn, {"tokens_in": 700, "tokens_out": 90, "tokens_total": 790, "cost_micros": 0})
    assert told == {"model_calls": 1, "tokens_in": 700, "tokens_out": 90, "tokens_total": 790}
    assert used(books, "tokens_total") == [790] * 4
    assert used(books, "model_calls") == [1] * 4
    assert books.view(RUN)["tokens_in"].reserved == 0


def test_what_is_not_reported_is_used_as_it_was_reserved() -> None:
    books = ledger()
    told = books.settle(granted(books.reserve(RUN, model_amounts(8_000, 1_000, 500))))
    assert told == model_amounts(8_000, 1_000, 500)


def test_what_was_not_reserved_may_be_reported_too() -> None:
    books = ledger()
    assert books.settle(granted(books.reserve(RUN, {"steps": 1})), {"tokens_in": 5}) == {"steps": 1, "tokens_in": 5}


def test_an_overshoot_is_debt_and_the_next_that_asks_is_refused_even_for_nothing() -> None:
    books = ledger(run={"tokens_total": 100})
    books.settle(granted(books.reserve(RUN, {"tokens_total": 50})), {"tokens_total": 130})
    assert books.view(RUN)["tokens_total"] == DimensionView(100, 130, 0, 0)
    assert refused(books.reserve(RUN, {"tokens_total": 0})).used == 130
    granted(books.reserve(RUN, {"tool_calls": 1}))


def test_nothing_may_be_asked_for_where_all_is_used() -> None:
    books = ledger(run={"output_bytes": 10})
    books.spend(RUN, {"output_bytes": 10})
    granted(books.reserve(RUN, {"output_bytes": 0}))
    refused(books.reserve(RUN, {"output_bytes": 1}))


def test_running_calls_are_reserved_and_never_used_however_they_end() -> None:
    books = ledger(run={"branches": 2})
    one, two = (granted(books.reserve(RUN, call_amounts("t"))) for _ in range(2))
    assert refused(books.reserve(RUN, call_amounts("t"))).dimension == "branches"
    assert "branches" not in (books.settle(one) or {})
    assert books.release(two)
    assert books.view(RUN)["branches"] == DimensionView(2, 0, 0, 2)
    assert books.settle(granted(books.reserve(RUN, {"branches": 1})), {"branches": 7}) == {}
    assert used(books, "branches") == [0] * 4


def test_a_charge_is_used_at_once_or_refused() -> None:
    books = ledger(run={"steps": 2})
    assert [books.charge(RUN, {"steps": 1}) for _ in range(2)] == [{"steps": 1}] * 2
    assert run_reason(refused(books.charge(RUN, {"steps": 1}))) == "step_budget"
    assert used(books, "steps") == [2] * 4


def test_what_is_spent_is_not_asked_for_and_may_be_debt_at_every_level() -> None:
    books = ledger(run={"output_bytes": 10}, tenant={"output_bytes": 10})
    assert books.spend(RUN, {"output_bytes": 25, "retries": 0}) == {"output_bytes": 25}
    assert books.left(RUN, "output_bytes") == 0
    assert used(books, "output_bytes") == [25] * 4


@pytest.mark.parametrize("ask", ["can", "reserve", "charge", "spend", "hold_back"])
def test_an_amount_below_nothing_is_a_mistake_of_the_caller_and_changes_nothing(ask: str) -> None:
    books = ledger()
    before = everything(books)
    with pytest.raises(ValueError, match="steps = -1"):
        getattr(books, ask)(RUN, {"retries": 1, "steps": -1})
    assert everything(books) == before


def test_a_report_below_nothing_leaves_the_reservation_open() -> None:
    books = ledger()
    one = granted(books.reserve(RUN, {"steps": 1}))
    with pytest.raises(ValueError, match="steps = -1"):
        books.settle(one, {"steps": -1})
    assert one.open
    assert books.release(one)


# ---------------------------------------------------------------- the wrap-up


def test_what_is_held_back_is_inside_the_limit_until_the_wrap_up_opens() -> None:
    books = ledger(run={"model_calls": 3})
    books.hold_back(RUN, {"model_calls": 1})
    assert books.left(RUN, "model_calls") == 2
    for _ in range(2):
        books.charge(RUN, {"model_calls": 1})
    refusal = refused(books.reserve(RUN, {"model_calls": 1}))
    assert (refusal.held, refusal.used, refusal.limit) == (1, 2, 3)
    assert "1 held back" in refusal.text
    granted(books.reserve(RUN, {"model_calls": 0}))
    assert books.open_wrap_up(RUN) == {"model_calls": 1}
    assert books.open_wrap_up(RUN) == {}
    books.charge(RUN, {"model_calls": 1})
    refused(books.charge(RUN, {"model_calls": 1}))


@pytest.mark.parametrize("limit", [10, None])
def test_an_opened_wrap_up_has_what_was_held_back_and_no_more_whatever_is_left(limit: int | None) -> None:
    books = ledger(run={"model_calls": limit, "tokens_in": 100})
    books.hold_back(RUN, {"model_calls": 2})
    books.charge(RUN, {"model_calls": 3})
    assert books.left(RUN, "model_calls") == (5 if limit else None)
    books.open_wrap_up(RUN)
    assert books.view(RUN)["model_calls"] == DimensionView(limit, 3, 0, 2)
    books.load(Node(Level.RUN, "r_2"), SESSION, json.loads(json.dumps(books.dump(RUN))))
    for run in (RUN, Node(Level.RUN, "r_2")):
        for _ in range(2):
            assert books.charge(run, {"model_calls": 1, "tokens_in": 9}) == {"model_calls": 1, "tokens_in": 9}
        assert refused(books.charge(run, {"model_calls": 1})).limit == 5
        assert books.left(run, "tokens_in") == 82


# ---------------------------------------------------------------- nodes


def test_a_node_opens_once_below_one_that_is_open_and_closes_when_nothing_is_below_it() -> None:
    books = ledger()
    with pytest.raises(ValueError, match="run r_1 is open"):
        books.open(RUN, SESSION, {})
    with pytest.raises(ValueError, match="run r_9 is not open"):
        books.open(Node(Level.RUN, "r_2"), Node(Level.RUN, "r_9"), {})
    with pytest.raises(ValueError, match="session s_1 has 1 open below it"):
        books.close(SESSION)
    for node in PATH:
        assert node in books
        books.close(node)
        assert node not in books
    assert len(books) == 0
    for use in (books.close, books.view, books.dump, books.open_wrap_up):
        with pytest.raises(ValueError, match="is not open"):
            use(RUN)


def test_a_sub_run_is_bound_by_its_parent_run() -> None:
    books, below = ledger(run={"steps": 2}), Node(Level.RUN, "r_1.1")
    books.open(below, RUN, {"steps": 50})
    assert books.left(below, "steps") == 2
    books.charge(below, {"steps": 2})
    assert refused(books.charge(below, {"steps": 1})).node == RUN
    assert used(books, "steps") == [2] * 4


def test_a_reservation_that_outlives_its_run_reaches_the_levels_above() -> None:
    books = ledger(tenant={"tool_calls": 1})
    late = granted(books.reserve(RUN, call_amounts("t")))
    books.close(RUN)
    assert books.view(TENANT)["tool_calls"].reserved == 1
    books.settle(late)
    assert books.view(TENANT)["tool_calls"] == DimensionView(1, 1, 0, 0)


def test_nothing_stays_of_a_node_that_closed() -> None:
    books, tenant = ledger(), Node(Level.TENANT, "other")
    books.open(tenant, None, {}, period=Period.HOUR)
    for node in (RUN, SESSION, tenant):
        books.close(node)
    assert (len(books), set(books._paths), books._periodic) == (2, {USER, TENANT}, {})
    books.close(USER)


def test_ten_thousand_runs_leave_the_ledger_as_they_found_it() -> None:
    books = ledger()
    books.close(RUN)
    size = len(json.dumps(books.dump(SESSION)))
    for _ in range(10_000):
        books.open(RUN, SESSION, {"tool_calls": 2})
        books.settle(granted(books.reserve(RUN, call_amounts("t"))))
        books.close(RUN)
    assert len(books) == 3
    assert books.view(SESSION)["tool_calls"].used == 10_000
    assert len(json.dumps(books.dump(SESSION))) < size + 100


def test_a_node_that_was_opened_with_what_it_has_used_tells_nobody_above() -> None:
    books, run = ledger(), Node(Level.RUN, "r_2")
    books.open(run, SESSION, {"steps": 10}, {"steps": 9})
    assert books.view(SESSION)["steps"].used == 0
    books.charge(run, {"steps": 1})
    refused(books.charge(run, {"steps": 1}))


def test_a_dumped_run_goes_on_where_it_was_without_its_reservations() -> None:
    books = ledger(run={"model_calls": 5, "tool_calls[t]": None}, session={})
    books.charge(RUN, {"model_calls": 1})
    books.hold_back(RUN, {"model_calls": 1})
    granted(books.reserve(RUN, {"model_calls": 1, "branches": 1}))
    dumped = json.loads(json.dumps(books.dump(RUN)))
    books.close(RUN)
    before = books.view(SESSION)
    books.load(RUN, SESSION, dumped)
    assert books.view(SESSION) == before
    assert books.view(RUN)["model_calls"] == DimensionView(5, 2, 0, 2)
    assert books.view(RUN)["branches"] == DimensionView(None, 0, 0, None)
    assert books.dump(RUN) == dumped
    assert books.open_wrap_up(RUN) == {"model_calls": 1}
    dumped["used"]["model_calls"] = 99
    assert books.view(RUN)["model_calls"].used == 2


def test_what_is_set_aside_is_bound_and_in_no_dump_before_it_is_announced() -> None:
    books = ledger(run={"tool_calls": 1}, session={})
    aside = granted(books.reserve(RUN, {"tool_calls": 1, "output_bytes": 1}, aside=True))
    refused(books.reserve(RUN, {"tool_calls": 1}))
    assert [books.dump(node)["used"] for node in (RUN, SESSION)] == [{}, {}]
    books.announce(aside)
    books.announce(aside)
    assert [books.dump(node)["used"] for node in (RUN, SESSION)] == [{"tool_calls": 1}] * 2
    books.release(aside)
    assert books.dump(SESSION)["used"] == {}


def test_what_was_set_aside_and_came_to_nothing_leaves_nothing() -> None:
    books = ledger(run={"tool_calls": 1}, session={})
    books.release(granted(books.reserve(RUN, {"tool_calls": 1}, aside=True)))
    granted(books.reserve(RUN, {"tool_calls": 1}))
    assert books.dump(SESSION)["used"] == {"tool_calls": 1}


# ---------------------------------------------------------------- periods

DAY = 86_400_000


def test_a_new_day_forgets_what_a_tenant_used_and_keeps_what_is_reserved_and_what_a_run_used() -> None:
    books = Ledger(wall_ms=10 * DAY + 5)
    books.open(TENANT, None, {"tool_calls": 3}, {"tool_calls": 1}, Period.DAY)
    books.open(RUN, TENANT, {"tool_calls": 9})
    books.charge(RUN, {"tool_calls": 1})
    running = granted(books.reserve(RUN, {"tool_calls": 1}))
    books.on_time(11 * DAY - 1)
    assert books.left(RUN, "tool_calls") == 0
    books.on_time(11 * DAY)
    assert books.view(TENANT)["tool_calls"] == DimensionView(3, 0, 1, 2)
    assert books.view(RUN)["tool_calls"] == DimensionView(9, 1, 1, 2)
    books.settle(running)
    assert books.view(TENANT)["tool_calls"].used == 1


def test_a_clock_that_steps_back_and_on_again_gives_no_budget_twice() -> None:
    books = Ledger(wall_ms=10 * DAY)
    books.open(TENANT, None, {"steps": 1}, period=Period.DAY)
    books.charge(TENANT, {"steps": 1})
    for wall_ms in (9 * DAY, 10 * DAY, 3 * DAY, 10 * DAY + 7):
        books.on_time(wall_ms)
        refused(books.charge(TENANT, {"steps": 1}))


def test_an_account_without_a_period_counts_for_ever() -> None:
    books = ledger(tenant={"steps": 1})
    books.charge(RUN, {"steps": 1})
    books.on_time(10**15)
    assert refused(books.charge(RUN, {"steps": 1})).node == TENANT


# ---------------------------------------------------------------- words


@pytest.mark.behaviour("M032")
def test_running_out_of_steps_is_called_step_budget() -> None:
    books = ledger(run={"steps": 25})
    for _ in range(25):
        assert books.charge(RUN, {"steps": 1}) == {"steps": 1}
    assert run_reason(refused(books.charge(RUN, {"steps": 1}))) == "step_budget"


@pytest.mark.parametrize(
    ("dimension", "reason"),
    [
        ("model_calls", "model_call_budget"),
        ("tool_calls", "tool_call_budget"),
        ("tool_calls[search]", "per_tool_budget"),
        ("tokens_in", "token_budget"),
        ("tokens_out", "token_budget"),
        ("tokens_total", "token_budget"),
        ("cost_micros", "cost_budget"),
        ("output_bytes", "output_budget"),
        ("retries", "retry_budget"),
        ("branches", None),
    ],
)
def test_a_refusal_has_its_reason_and_one_above_the_session_is_the_tenants(dimension: str, reason: str | None) -> None:
    for level in (Level.RUN, Level.SESSION):
        assert run_reason(refused(ledger(**{level: {dimension: 0}}).can(RUN, {dimension: 1}))) == reason
    for level in (Level.USER, Level.TENANT):
        above = run_reason(refused(ledger(**{level: {dimension: 0}}).can(RUN, {dimension: 1})))
        assert above == (reason and "tenant_budget")


@pytest.mark.behaviour("M173")
def test_a_refusal_says_aloud_what_was_reached_and_where() -> None:
    books = ledger(run={"steps": 15})
    books.spend(RUN, {"steps": 15})
    assert refused(books.charge(RUN, {"steps": 1})).text == "steps: 15 of 15 used, 1 asked for (run r_1)"
    books = ledger(tenant={"tokens_in": 9})
    granted(books.reserve(RUN, {"tokens_in": 4}))
    text = refused(books.reserve(RUN, {"tokens_in": 6})).text
    assert text == "tokens_in: 0 of 9 used, 4 reserved, 6 asked for (tenant acme)"


@pytest.mark.behaviour("M067")
def test_the_short_record_has_the_deadline_and_what_is_left() -> None:
    books = ledger(run={"model_calls": 9, "tool_calls": 9}, session={"tool_calls": 3})
    granted(books.reserve(RUN, {"model_calls": 2, "tool_calls": 1}))
    assert books.record(RUN, 7_000_000_000, 5_000_000_001) == BudgetRecord(7_000_000_000, 2_000, 7, 2, None)


def test_a_view_is_plain_and_names_every_dimension_but_time_and_each_tool() -> None:
    books = ledger(run={"wall_ms": 5, "tool_calls[b]": 1})
    books.charge(RUN, {"tool_calls[a]": 1})
    names = [*(one for one in Dimension if one != "wall_ms"), "tool_calls[a]", "tool_calls[b]"]
    assert list(books.view(RUN)) == names
    assert list(msgspec.json.decode(msgspec.json.encode(books.view(RUN)))) == names
