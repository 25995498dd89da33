from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from protocol._contracts import Approval
from supervisor.config import load
from supervisor.config_budgets import read_budgets
from supervisor.config_tables import ConfigError
from supervisor.core.periods import Period
from supervisor.core.prices import Price
from supervisor.core.profiles import Budgets, Tenant, WrapUp, resolve


def read(text: str) -> Budgets:
    return read_budgets(tomllib.loads(text))


def test_without_tables_there_are_the_built_in_profiles_a_tenant_without_limits_and_no_prices() -> None:
    assert read("") == Budgets(resolve({}), {"default": Tenant()}, {})


def test_a_profile_says_everything_it_may_say() -> None:
    mine = read(
        """
        [profile.mine]
        base = "edit"
        limits = {steps = 5, wall_ms = "90s", output_bytes = "1MiB", tokens_total = "none", "tool_calls[search]" = 0}
        wrapup = {model_calls = 1, ms = "2s"}
        detectors = "strict"
        max_refusals = 0
        checks = ["make test"]
        approval = "always"
        """
    ).profiles["mine"]
    assert mine.limits == {
        "steps": 5,
        "wall_ms": 90_000,
        "tokens_total": None,
        "output_bytes": 1 << 20,
        "tool_calls[search]": 0,
    }
    assert (mine.base, mine.wrapup, mine.detectors) == ("edit", WrapUp(1, 2_000), "strict")
    assert (mine.max_refusals, mine.checks, mine.approval) == (0, ("make test",), Approval.ALWAYS)


def test_a_tenant_says_everything_it_may_say() -> None:
    tenants = read(
        """
        [tenant.acme]
        uids = [1000, 1001]
        period = "day"
        limits = {cost_micros = 5_000_000}
        user_limits = {tool_calls = 1000}
        session_limits = {tokens_total = 15_000}
        run_limits = {wall_ms = "2m"}
        profiles = ["edit", "mine"]
        [profile.mine]
        """
    ).tenants
    assert tenants["default"] == Tenant()
    assert tenants["acme"] == Tenant(
        "acme",
        (1000, 1001),
        Period.DAY,
        {"cost_micros": 5_000_000},
        {"tool_calls": 1000},
        {"tokens_total": 15_000},
        {"wall_ms": 120_000},
        ("edit", "mine"),
    )


def test_the_tenant_of_all_others_may_be_configured() -> None:
    assert read("[tenant.default]\nlimits = {steps = 3}").tenant_of(77).limits == {"steps": 3}


@pytest.mark.behaviour("M171")
def test_a_model_has_a_price_for_input_output_and_cached_input() -> None:
    prices = read(
        """
        [price."gpt-4.1/mini"]
        input_micros = 400_000
        output_micros = 1_600_000
        cached_input_micros = 100_000
        [price."*"]
        input_micros = 0
        output_micros = 0
        """
    ).prices
    assert prices == {"gpt-4.1/mini": Price(400_000, 1_600_000, 100_000), "*": Price(0, 0)}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[profile.a]\nsteps = 5", "profile.a.steps is no setting; allowed in profile.a: approval, base, checks"),
        ("profile = 3", "profile = 3 is not allowed; allowed: tables [profile.NAME]"),
        ("[profile]\na = 3", "profile.a = 3 is not allowed; allowed: a table"),
        ("[profile.'a b']", "profile.a b: 'a b' is no name; allowed: 1 to 64 letters"),
        ("[profile.a.limits]\nstep = 5", "profile.a.limits: 'step' is no limit; allowed: steps, model_calls"),
        ("[profile.a.limits]\nsteps = -5", "profile.a.limits: steps = -5 is not allowed"),
        ("[profile.a.limits]\nsteps = true", "profile.a.limits: steps = True is not allowed"),
        ("[profile.a.limits]\nsteps = '5s'", "profile.a.limits: steps = '5s' is not allowed"),
        ("[profile.a.limits]\nwall_ms = 'none'", "profile.a.limits: wall_ms = null is not allowed"),
        ("[profile.a.limits]\nwall_ms = '25h'", "profile.a.limits: wall_ms = 90000000 is not allowed"),
        ("[profile.a.limits]\nwall_ms = '5 s'", "profile.a.limits: wall_ms: '5 s' is not a duration"),
        ("[profile.a.limits]\ntool_calls.search = 5", "profile.a.limits: tool_calls = {'search': 5} is not allowed"),
        ("[profile.a]\nlimits = [1]", "profile.a.limits = [1] is not allowed"),
        ("[profile.a.wrapup]\ncalls = 1", "profile.a.wrapup.calls is no setting; allowed in profile.a.wrapup: model"),
        ("[profile.a.wrapup]\nms = '5'", "profile.a.wrapup.ms: '5' is not a duration"),
        ("[profile.a.wrapup]\nms = '5m'", "profile.a.wrapup.ms = 300000 is over half of wall_ms = 480000"),
        ("[profile.a]\nbase = 'b'", "profile.a.base: there is no profile 'b'"),
        ("[profile.a]\ndetectors = 'b'", "profile.a.detectors: there is no set 'b'; allowed: default, demo"),
        ("[profile.a]\nmax_refusals = -1", "profile.a.max_refusals = -1 is not allowed"),
        ("[profile.a]\nchecks = ['']", "profile.a.checks: a check is empty; allowed: a command line"),
        ("[profile.a]\napproval = 'maybe'", "profile.a.approval = 'maybe' is not allowed"),
        ("[tenant.a]\nlimit = {}", "tenant.a.limit is no setting; allowed in tenant.a: limits, period, profiles"),
        ("[tenant.a.limits]\nwall_ms = 5", "tenant.a.limits.wall_ms: only a run has a time; allowed: tenant.a.run_lim"),
        ("[tenant.a.user_limits]\nwall_ms = 5", "tenant.a.user_limits.wall_ms: only a run has a time"),
        ("[tenant.a.session_limits]\nwall_ms = 5", "tenant.a.session_limits.wall_ms: only a run has a time"),
        ("[tenant.a]\nuids = [-1]", "tenant.a.uids[0] = [-1] is not allowed"),
        ("[tenant.a]\nuids = ['root']", "tenant.a.uids[0] = ['root'] is not allowed"),
        ("[tenant.a]\nuids = [1]\n[tenant.b]\nuids = [2, 1]", "tenant.b.uids: 1 is one of tenant.a; allowed: one ten"),
        ("[tenant.a]\nprofiles = ['x']", "tenant.a.profiles: there is no profile 'x'; allowed: default, demo, edit"),
        ("[tenant.a]\nperiod = 'week'", "tenant.a.period = 'week' is not allowed"),
        ("[price.m]\ninput_micros = 5", "price.m.output_micros is missing"),
        ("[price.m]\noutput_micros = 5", "price.m.input_micros is missing"),
        ("[price.m]\ninput_micros = 0.5\noutput_micros = 1", "price.m.input_micros = 0.5 is not allowed"),
        ("[price.m]\ninput_micros = -1\noutput_micros = 1", "price.m.input_micros = -1 is not allowed"),
        ("[price.m]\ninput = 1", "price.m.input is no setting; allowed in price.m: cached_input_micros, input_micros"),
        ("[price.gpt-4.1]\ninput_micros = 1\noutput_micros = 1", "price.gpt-4.1 is no setting"),
    ],
)
def test_a_refusal_names_the_key_and_what_is_allowed(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert str(caught.value).startswith(words)


def test_a_uid_may_stand_twice_in_its_own_tenant() -> None:
    assert read("[tenant.a]\nuids = [1, 1]").tenant_of(1).name == "a"


def test_what_holds_is_shown_with_its_source(tmp_path: Path) -> None:
    file = tmp_path / "deadlined.toml"
    file.write_text("[profile.default.limits]\nsteps = 9\n[profile.mine]\nbase = 'edit'\n[tenant.acme]\nuids = [1]\n")
    values, sources = load(str(file)).effective()
    assert values["profile"]["mine"]["limits"] == {"steps": 9, "wall_ms": 480_000, "tokens_total": 300_000}
    assert "name" not in values["profile"]["mine"] | values["tenant"]["acme"]
    assert (values["tenant"]["acme"]["uids"], values["price"]) == ((1,), {})
    came = {key: sources[key] == str(file) for key in sources if key.startswith(("profile.mine", "tenant.acme.u"))}
    assert {key for key, from_file in came.items() if from_file} == {
        "profile.mine.base",
        "profile.mine.limits.steps",
        "tenant.acme.uids",
    }
    assert sources["profile.mine.limits.tokens_total"] == "default"
    assert sources["profile.strict.limits.steps"] == str(file)
