"""What the operator's rules say of a call."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.policy import NO_OBJECTION, Action, Policy, Rule, stricter

ALLOW, ASK, DENY = Action.ALLOW, Action.ASK, Action.DENY


def ruling(rules: list[Rule], tool: str = "shell", **values: Any) -> Action:
    return Policy(tuple(rules)).ruling(tool, lambda: values).action


def test_what_no_rule_matches_goes_on_without_a_look_at_its_arguments():
    def unwanted() -> dict[str, Any]:
        raise AssertionError("nobody needs the arguments")

    assert Policy().ruling("shell", unwanted) == NO_OBJECTION
    assert Policy((Rule("other", DENY, {"path": "*"}),)).ruling("shell", unwanted) == NO_OBJECTION
    assert Policy((Rule("sh*", DENY),)).ruling("shell", unwanted).action is DENY


@pytest.mark.parametrize(
    ("actions", "expected"),
    [([ALLOW, ASK], ASK), ([DENY, ALLOW], DENY), ([ASK, DENY, ALLOW], DENY), ([ALLOW, ALLOW], ALLOW), ([], ALLOW)],
)
def test_the_strictest_rule_holds_whatever_their_order(actions, expected):
    rules = [Rule("*", action) for action in actions]
    assert ruling(rules) is ruling(rules[::-1]) is expected


@pytest.mark.parametrize(
    ("when", "matches"),
    [
        ({"argv.0": "rm"}, True),
        ({"argv.0": "r*"}, True),
        ({"argv.0": "R*"}, False),
        ({"argv.0": "rm", "argv.2": "/etc/*"}, True),
        ({"argv.0": "rm", "argv.2": "/var/*"}, False),
        ({"argv.*": "-rf"}, True),
        ({"argv.*": "-v"}, False),
        ({"argv.9": "*"}, False),
        ({"argv.-1": "*"}, False),
        ({"argv.²": "*"}, False),
        ({"argv": "*"}, False),
        ({"argv.0.x": "*"}, False),
        ({"env.HOME": "/root"}, True),
        ({"env.*": "/root"}, True),
        ({"env": "*"}, False),
        ({"absent": "*"}, False),
        ({"count": "3"}, True),
        ({"count": "[12]"}, False),
        ({"dry": "true"}, True),
        ({"nothing": "null"}, True),
        ({"text": "first*last"}, True),
        ({"text": "first"}, False),
    ],
)
def test_a_condition_is_a_glob_over_the_whole_value_at_a_path(when, matches):
    values = {
        "argv": ["rm", "-rf", "/etc/x/y"],
        "env": {"HOME": "/root"},
        "count": 3,
        "dry": True,
        "nothing": None,
        "text": "first\nlast",
    }
    assert ruling([Rule("shell", DENY, when)], **values) is (DENY if matches else ALLOW)


def test_the_first_of_the_strictest_rules_gives_the_reason():
    rules = (Rule("*", ASK, reason="a"), Rule("*", DENY, reason="b"), Rule("*", DENY, reason="c"))
    assert Policy(rules).ruling("t", dict).reason == "b"
    assert Policy((Rule("t*", ASK, {"path": "/etc/*"}),)).ruling("t", lambda: {"path": "/etc/x"}).reason == (
        "a rule of the configuration says ask for t*, path = /etc/*"
    )


def test_the_version_is_that_of_the_rules():
    rules = (Rule("*", ASK), Rule("t", DENY, {"a": "b"}, "why"))
    assert Policy(rules).version == Policy(rules).version
    assert len({Policy(some).version for some in ((), rules, rules[:1], rules[::-1])}) == 4


def test_stricter_is_strict():
    assert [(one, other) for one in Action for other in Action if stricter(one, other)] == [
        (ASK, ALLOW),
        (DENY, ALLOW),
        (DENY, ASK),
    ]


@given(st.text(max_size=30), st.text(max_size=30))
def test_a_glob_matches_nothing_by_surprise(glob, value):
    """Without a sign of its own a glob is the value itself."""
    if not set(glob) & set("*?["):
        assert (ruling([Rule("*", DENY, {"v": glob})], v=value) is DENY) is (glob == value)
