from __future__ import annotations

import pytest

from protocol._contracts import CONTAINMENT_ORDER, ISOLATION_ORDER, Contract, Limits, ToolDescription
from supervisor.core.levels import ground_of, holder_of, isolation_wanted, mechanism_of
from supervisor.core.tools import Place, Tools


def test_only_isolation_that_needs_none_is_held_by_guards():
    assert [holder_of(word) for word in ISOLATION_ORDER] == [
        "guards",
        "guards",
        "namespaces",
        "namespaces",
        "namespaces",
    ]


@pytest.mark.parametrize(("reaps", "groups"), [(False, False), (True, False), (False, True), (True, True)])
def test_without_a_namespace_nothing_is_said_that_needs_one(reaps, groups):
    for wanted in ISOLATION_ORDER:
        ground = ground_of("guards", wanted, reaps, groups)
        assert CONTAINMENT_ORDER.index(ground.containment) < CONTAINMENT_ORDER.index("pidns")
        assert ground.isolation == ("none" if wanted == "none" else "limits")


def test_nobody_says_that_all_are_gone_where_orphans_go_elsewhere():
    assert ground_of("guards", "contain", reaps_orphans=False, kills_groups=True).containment == "group"
    assert ground_of("guards", "contain", reaps_orphans=True, kills_groups=False).containment == "subreaper"
    assert ground_of("guards", "contain", reaps_orphans=True, kills_groups=True).containment == "cgroup"


def test_a_namespace_gives_contain_and_no_more():
    assert ground_of("namespaces", "bwrap", False, True).isolation == "contain"
    assert ground_of("namespaces", "contain", False, False).containment == "pidns"


def test_every_level_has_a_mechanism_of_its_own():
    assert len({tuple(mechanism_of(level)) for level in CONTAINMENT_ORDER}) == len(CONTAINMENT_ORDER)


@pytest.mark.parametrize(
    ("tool", "least", "default", "wanted"),
    [
        (None, None, "contain", "contain"),
        ("none", None, "contain", "none"),
        (None, "contain", "none", "contain"),
        ("contain", "limits", "none", "contain"),
        (None, "none", "limits", "limits"),
    ],
)
def test_a_tool_is_never_given_less_than_it_demands(tool, least, default, wanted):
    assert isolation_wanted(tool, least, default) == wanted


def test_tools_of_another_isolation_get_workers_of_their_own_and_share_them():
    tools, limits = Tools(), Limits()
    contracts = {"a": Contract(), "b": Contract(isolation="none"), "c": Contract(isolation="none")}
    contracts |= {"d": Contract(min_isolation="contain"), "e": Contract(isolation="none", limits=Limits(open_files=99))}
    tools.serve([ToolDescription(name, "", contract, {}) for name, contract in contracts.items()], "bare")
    apart = tools.set_apart(limits, "contain")
    own, narrow = (tools.get(name).flavour for name in "be")
    assert tools.get("a").flavour == tools.get("d").flavour == "bare"
    assert tools.get("c").flavour == own != narrow
    assert {place.isolation for place in apart.values()} == {"none"}
    assert apart[own] == Place("bare", Limits(output_bytes=0), "none")
