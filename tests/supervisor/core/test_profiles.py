from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol._budgets import Dimension
from protocol._contracts import Approval
from supervisor.core.budget import Ledger, Level, Node, Refused, run_reason
from supervisor.core.profiles import (
    BUILT_IN_SETS,
    Budgets,
    Effective,
    Objection,
    Profile,
    Recipe,
    Tenant,
    WrapUp,
    effective,
    looser,
    resolve,
)

MINUTE = 60_000


def profile(**fields: Any) -> Profile:
    """The profile ``p``, resolved."""
    return resolve({"p": Recipe(**fields)})["p"]


def holding(of: Effective | Objection) -> Effective:
    assert isinstance(of, Effective), of
    return of


def objection(to: Effective | Objection) -> Objection:
    assert isinstance(to, Objection)
    return to


# ---------------------------------------------------------------- the built-in ones


@pytest.mark.behaviour("M017")
@pytest.mark.behaviour("M070")
@pytest.mark.behaviour("M170")
def test_limits_come_by_the_type_of_the_task() -> None:
    limits = {name: one.limits for name, one in resolve({}).items()}
    assert limits == {
        "default": {"steps": 25, "wall_ms": 8 * MINUTE},
        "edit": {"steps": 25, "wall_ms": 8 * MINUTE, "tokens_total": 300_000},
        "migration": {"steps": 60, "wall_ms": 30 * MINUTE, "tokens_total": 600_000},
        "qa_readonly": {
            "steps": 8,
            "tool_calls": 12,
            "wall_ms": MINUTE,
            "cost_micros": 300_000,
            "tokens_total": 50_000,
        },
        "demo": {"steps": 15, "wall_ms": 8 * MINUTE, "tokens_total": 15_000},
        "strict": {"steps": 25, "wall_ms": 8 * MINUTE},
        "production": {"steps": 25, "wall_ms": 8 * MINUTE},
    }


def test_each_built_in_profile_names_its_set_of_detectors() -> None:
    named = {name: one.detectors for name, one in resolve({}).items()}
    own = {"qa_readonly", "demo", "strict", "production"}
    assert named == {name: name if name in own else "default" for name in named}
    assert set(named.values()) == set(BUILT_IN_SETS)


@pytest.mark.behaviour("M101")
@pytest.mark.parametrize(
    ("dimension", "limit", "reason"),
    [("steps", 8, "step_budget"), ("tool_calls", 12, "tool_call_budget"), ("cost_micros", 300_000, "cost_budget")],
)
def test_a_question_gets_8_steps_12_tool_calls_60_seconds_and_30_cents(dimension: str, limit: int, reason: str) -> None:
    held, run = holding(effective(resolve({})["qa_readonly"], Tenant(), {})), Node(Level.RUN, "r")
    assert held.wall_ms == 60_000
    books = Ledger()
    books.open(run, None, held.limits)
    books.charge(run, {dimension: limit})
    refusal = books.charge(run, {dimension: 1})
    assert isinstance(refusal, Refused)
    assert (refusal.limit, run_reason(refusal)) == (limit, reason)


@pytest.mark.behaviour("M173")
def test_the_demo_stops_after_15_steps() -> None:
    held, run = holding(effective(resolve({})["demo"], Tenant(), {})), Node(Level.RUN, "r")
    books = Ledger()
    books.open(run, None, held.limits)
    assert [books.charge(run, {"steps": 1}) for _ in range(15)] == [{"steps": 1}] * 15
    refusal = books.charge(run, {"steps": 1})
    assert isinstance(refusal, Refused)
    assert "steps: 15 of 15 used" in refusal.text


# ---------------------------------------------------------------- recipes


def test_a_profile_is_its_base_but_for_what_it_says() -> None:
    base = Recipe(
        limits={"steps": 9, "retries": 1},
        wrapup=WrapUp(0, 5),
        detectors="strict",
        max_refusals=1,
        checks=("make test",),
        approval=Approval.ALWAYS,
    )
    profiles = resolve({"above": Recipe(base="below", limits={"retries": None, "steps": 4}), "below": base})
    below = profiles["below"]
    assert (below.base, below.limits["wall_ms"]) == ("default", 8 * MINUTE)
    limits = {"steps": 4, "wall_ms": 8 * MINUTE, "retries": None}
    assert profiles["above"] == msgspec.structs.replace(below, name="above", base="below", limits=limits)


def test_a_table_for_a_built_in_profile_changes_that_one_and_those_that_stand_on_it() -> None:
    profiles = resolve(
        {"default": Recipe(limits={"steps": 20, "wall_ms": MINUTE}), "edit": Recipe(limits={"retries": 5})}
    )
    assert profiles["edit"].limits == {"steps": 20, "wall_ms": MINUTE, "tokens_total": 300_000, "retries": 5}
    assert profiles["strict"].limits == {"steps": 20, "wall_ms": MINUTE}
    assert profiles["migration"].limits["wall_ms"] == 30 * MINUTE


def test_a_built_in_profile_with_a_base_of_its_own_forgets_what_was_built_in() -> None:
    edit = resolve({"edit": Recipe(base="demo", checks=("true",))})["edit"]
    assert (edit.limits["tokens_total"], edit.detectors, edit.checks) == (15_000, "demo", ("true",))


def test_each_set_of_detectors_is_a_profile_unless_there_is_one_of_that_name() -> None:
    profiles = resolve({"mine": Recipe(limits={"steps": 1})}, [*BUILT_IN_SETS, "careful", "mine"])
    assert profiles["careful"] == msgspec.structs.replace(
        profiles["default"], name="careful", base="default", detectors="careful"
    )
    assert (profiles["mine"].detectors, profiles["mine"].limits["steps"]) == ("default", 1)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"a": Recipe(base="b")}, "a.base: there is no profile 'b'; allowed: a, default, demo, edit"),
        ({"a": Recipe(base="a")}, "a.base: 'a' has this one as a base itself"),
        ({"a": Recipe(base="b"), "b": Recipe(base="a")}, "b.base: 'a' has this one as a base itself"),
        ({"default": Recipe(base="edit")}, "edit.base: 'default' has this one as a base itself"),
        ({"a": Recipe(detectors="fierce")}, "a.detectors: there is no set 'fierce'; allowed: default, demo"),
        ({"a": Recipe(wrapup=WrapUp(ms=240_001))}, "a.wrapup.ms = 240001 is over half of wall_ms = 480000"),
        (
            {"a": Recipe(limits={"model_calls": 3}, wrapup=WrapUp(model_calls=2))},
            "a.wrapup.model_calls = 2 is over half of model_calls = 3; allowed: at most 1",
        ),
        (
            {"default": Recipe(wrapup=WrapUp(ms=31_000))},
            "qa_readonly.wrapup.ms = 31000 is over half of wall_ms = 60000",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(said: dict[str, Recipe], words: str) -> None:
    with pytest.raises(ValueError) as caught:
        resolve(said)
    assert str(caught.value).startswith(words)


# ---------------------------------------------------------------- precedence


@pytest.mark.behaviour("M104")
def test_a_tenant_narrows_a_profile_and_a_looser_limit_of_it_means_nothing() -> None:
    tenant = Tenant("acme", run_limits={"steps": 10, "tokens_total": 10**9, "retries": 2, "wall_ms": 99 * MINUTE})
    held = holding(effective(resolve({})["edit"], tenant, {}))
    assert (held.limits["steps"], held.limits["tokens_total"], held.limits["retries"]) == (10, 300_000, 2)
    assert held.sources == {
        "steps": "tenant acme",
        "tokens_total": "profile edit",
        "retries": "tenant acme",
        "wall_ms": "profile edit",
    }


def test_a_run_may_ask_for_less_and_is_named_as_the_source() -> None:
    asked = {"steps": 5, "wall_ms": 1_000, "tool_calls[search]": 3, "tokens_total": 300_000, "retries": None}
    held = holding(effective(resolve({})["edit"], Tenant(), asked))
    assert (held.limits["steps"], held.wall_ms, held.limits["tool_calls[search]"]) == (5, 1_000, 3)
    assert held.sources == {
        "steps": "run",
        "wall_ms": "run",
        "tool_calls[search]": "run",
        "tokens_total": "profile edit",
    }


def test_every_dimension_is_echoed() -> None:
    held = holding(effective(resolve({})["default"], Tenant(), {}))
    assert set(held.limits) == set(Dimension)
    assert {name for name, limit in held.limits.items() if limit is not None} == set(held.sources)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"steps": 50}, "steps = 50 is looser than 25 of profile edit; allowed: at most 25"),
        ({"steps": None}, "steps = no limit is looser than 25 of profile edit"),
        ({"retries": 2}, "retries = 2 is looser than 1 of tenant acme"),
        ({"wall_ms": 480_001}, "wall_ms = 480001 is looser than 480000 of profile edit"),
        ({"steps": 5, "tokens_total": 300_001}, "tokens_total = 300001 is looser"),
    ],
)
def test_a_run_that_asks_for_more_is_refused_and_told_who_said_the_limit(
    asked: dict[str, int | None], words: str
) -> None:
    refusal = objection(effective(resolve({})["edit"], Tenant("acme", run_limits={"retries": 1}), asked))
    assert refusal.code == "looser_limit"
    assert refusal.text.startswith(words)


limits = st.dictionaries(st.sampled_from(["steps", "tool_calls", "retries"]), st.none() | st.integers(0, 9))


@given(limits, limits, limits)
def test_no_later_word_ever_loosens_an_earlier_one(
    first: dict[str, int | None], second: dict[str, int | None], third: dict[str, int | None]
) -> None:
    said = profile(base="default", limits={"steps": None, **first})
    got = effective(said, Tenant("t", run_limits=second), third)
    if isinstance(got, Objection):
        named = got.text.partition(" ")[0]
        least = [n for n in (said.limits.get(named), second.get(named)) if n is not None]
        assert third[named] is None or third[named] > min(least)
        return
    for name in first.keys() | second.keys() | third.keys():
        words = [one for one in (said.limits.get(name), second.get(name), third.get(name)) if one is not None]
        assert got.limits[name] == min(words, default=None)
        assert not any(looser(got.limits[name], one) for one in words)


def test_a_wrap_up_takes_at_most_half_of_what_was_narrowed() -> None:
    said = profile(limits={"model_calls": 10}, wrapup=WrapUp(model_calls=2, ms=10_000))
    assert holding(effective(said, Tenant(), {})).wrapup == WrapUp(2, 10_000)
    assert holding(effective(said, Tenant(), {"model_calls": 3, "wall_ms": 5_000})).wrapup == WrapUp(1, 2_500)
    assert holding(effective(said, Tenant(run_limits={"model_calls": 1}), {})).wrapup == WrapUp(0, 10_000)
    assert holding(effective(profile(wrapup=WrapUp(2)), Tenant(), {})).wrapup == WrapUp(2, 0)


# ---------------------------------------------------------------- who asks


BUDGETS = Budgets(
    resolve({}),
    {
        "default": Tenant(run_limits={"retries": 7}),
        "acme": Tenant("acme", uids=(1000, 1001), profiles=("qa_readonly", "edit")),
        "open": Tenant("open", uids=(2000,), profiles=("edit", "default")),
    },
)


@pytest.mark.behaviour("M104")
def test_a_user_belongs_to_the_tenant_that_lists_it_else_to_default() -> None:
    assert [BUDGETS.tenant_of(uid).name for uid in (1000, 1001, 2000, 0)] == ["acme", "acme", "open", "default"]
    assert holding(BUDGETS.effective(0, "edit", {})).limits["retries"] == 7
    assert Budgets(resolve({}), {}).tenant_of(0) == Tenant()


def test_who_names_no_profile_gets_default_or_the_first_allowed() -> None:
    assert [holding(BUDGETS.effective(uid, None, {})).profile for uid in (0, 1000, 2000)] == [
        "default",
        "qa_readonly",
        "default",
    ]


@pytest.mark.parametrize(
    ("uid", "name", "code", "words"),
    [
        (0, "edti", "unknown_profile", "profile 'edti': there is no such profile; allowed: default, demo, edit"),
        (1000, "edti", "unknown_profile", "profile 'edti': there is no such profile; allowed: qa_readonly, edit"),
        (1000, "migration", "profile_not_allowed", "tenant acme may not use it; allowed: qa_readonly, edit"),
    ],
)
def test_a_profile_that_is_not_there_or_not_the_tenants_is_refused(uid: int, name: str, code: str, words: str) -> None:
    refusal = objection(BUDGETS.effective(uid, name, {}))
    assert refusal.code == code
    assert words in refusal.text


def test_a_limit_of_a_tool_that_is_not_there_is_refused_because_it_would_hold_nothing() -> None:
    asked = {"tool_calls[serach]": 3}
    refusal = objection(BUDGETS.effective(0, None, asked, tools={"search"}))
    assert (refusal.code, "tool_calls[serach]" in refusal.text) == ("unknown_tool", True)
    assert holding(BUDGETS.effective(0, None, asked)).limits["tool_calls[serach]"] == 3
    assert holding(BUDGETS.effective(0, None, {"tool_calls[search]": 3}, tools={"search"}))


def test_limits_of_tools_that_are_not_there_are_found_in_the_whole_configuration() -> None:
    budgets = Budgets(
        resolve({"mine": Recipe(limits={"tool_calls[serach]": 3, "tool_calls[search]": 3})}),
        {"acme": Tenant("acme", user_limits={"tool_calls[http]": 1}, run_limits={"tool_calls[search]": 1})},
    )
    assert budgets.missing_tools({"search"}) == [
        "profile.mine.limits.tool_calls[serach]",
        "tenant.acme.user_limits.tool_calls[http]",
    ]
    assert budgets.missing_tools(["search", "serach", "http"]) == []
