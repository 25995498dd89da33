"""A contract from named fields: what is refused, and that each refusal says what is allowed."""

from __future__ import annotations

import pytest

from protocol._contract_fields import declared_contract
from protocol._contracts import AfterKill, Approval, Contract, Limits, Refresh
from protocol._deadlines import CEILING_MS


def test_no_fields_are_the_careful_contract() -> None:
    assert declared_contract({}) == Contract()


def test_fields_replace_those_of_the_base_and_no_others() -> None:
    base = Contract(kind="command", timeout_ms=500, read_only=True)
    assert declared_contract({"timeout_ms": 700}, base) == Contract(kind="command", timeout_ms=700, read_only=True)


def test_words_and_tables_of_a_configuration_become_their_types() -> None:
    contract = declared_contract({"approval": "always", "env": ["@certs", "NAME"], "limits": {"pids": 9}})
    assert contract.approval is Approval.ALWAYS
    assert contract.env == ("@certs", "NAME")
    assert contract.limits == Limits(pids=9)


@pytest.mark.parametrize("name", ["kind", "timeout", "Read_only", ""])
def test_an_unknown_field_is_refused_with_the_list_of_all(name: str) -> None:
    with pytest.raises(TypeError, match=r"no field of a contract; allowed: after_kill, approval, .*timeout_ms"):
        declared_contract({name: 1})


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("timeout_ms", 0, f"from 1 to {CEILING_MS}"),
        ("timeout_ms", -1, f"from 1 to {CEILING_MS}"),
        ("timeout_ms", CEILING_MS + 1, f"from 1 to {CEILING_MS}"),
        ("timeout_ms", True, "a whole number"),
        ("timeout_ms", 2.5, "a whole number"),
        ("timeout_ms", "5s", "a whole number"),
        ("max_timeout_ms", 0, f"from 1 to {CEILING_MS}"),
        ("term_grace_ms", -1, f"from 0 to {CEILING_MS}"),
        ("idle_timeout_ms", 0, f"from 1 to {CEILING_MS}"),
        ("idle_timeout_ms", "x", "a whole number or nothing"),
        ("read_only", 1, "true | false"),
        ("approval", "sometimes", "'never' | 'on_write' | 'always'"),
        ("home", "shared", "'user' | 'private'"),
        ("min_containment", "jail", "'pidns+cgroup' | 'pidns'"),
        ("env", "PATH", "a list of text"),
        ("limits", {"pid": 3}, "fields open_files"),
        (
            "roles",
            {"a": "file"},
            "a table of name = 'path' | 'realpath' | 'command' | 'url' | 'set' | 'volatile' | 'secret'",
        ),
        ("roles", ["a"], "a table of name = 'path'"),
        ("scrub", "in *s", "a list of text"),
        ("scrub", ["*"], "'$.field.field' of the content"),
        ("limits", {"output_bytes": -1}, "from 0 to"),
    ],
)
def test_a_bad_value_is_refused_with_what_is_allowed(field: str, value: object, allowed: str) -> None:
    with pytest.raises(ValueError, match="allowed") as refused:
        declared_contract({field: value})
    assert field in str(refused.value)
    assert allowed in str(refused.value)


@pytest.mark.parametrize(
    "fields",
    [
        {"timeout_ms": 2_000, "max_timeout_ms": 1_000},
        {"timeout_ms": 1_000, "term_grace_ms": 1_000},
        {"fresh": True, "reusable": True},
    ],
)
def test_fields_that_contradict_each_other_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        declared_contract(fields)


@pytest.mark.parametrize("value", [1, CEILING_MS])
def test_both_ends_of_the_range_of_timeouts_are_allowed(value: int) -> None:
    assert declared_contract({"timeout_ms": value}).timeout_ms == value


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"after_kill": {"argv": []}}, "after_kill.argv is empty"),
        ({"after_kill": {"argv": [""]}}, "after_kill.argv is empty"),
        (
            {"after_kill": {"argv": ["x"], "timeout_ms": 60_001}},
            "timeout_ms = 60001 is not allowed; allowed: at most 60000",
        ),
        ({"after_kill": {"argv": ["x"], "timeout_ms": 0}}, "after_kill"),
        ({"after_kill": ["x"]}, "after_kill"),
        ({"lock_files": [""]}, "lock_files has ''"),
        ({"lock_files": ["a\0b"]}, "lock_files has"),
        ({"remote": "yes"}, "remote"),
    ],
)
def test_what_cannot_be_done_after_a_kill_is_refused(fields: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        declared_contract(fields)


def test_what_is_to_be_done_after_a_kill_is_read_from_plain_values() -> None:
    contract = declared_contract({"after_kill": {"argv": ["x", "{y}"]}, "lock_files": ["*.lock"], "remote": False})
    assert contract.after_kill == AfterKill(("x", "{y}"), 1_000)
    assert (contract.lock_files, contract.remote) == (("*.lock",), False)


@pytest.mark.behaviour("M108")
def test_a_tool_may_say_how_often_and_how_soon_its_calls_may_be_made_again() -> None:
    assert declared_contract({"refresh": {"max": 3, "min_interval_ms": 500}}).refresh == Refresh(3, 500)
    assert declared_contract({"refresh": {}}).refresh == Refresh(None, 0)
    assert declared_contract({}).refresh is None


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("refresh", {"max": -1}, "from 0 to"),
        ("refresh", {"min_interval_ms": CEILING_MS + 1}, f"from 0 to {CEILING_MS}"),
        ("refresh", {"every": 3}, "fields max, min_interval_ms"),
        ("refresh", 5, "fields max, min_interval_ms"),
        ("progress", "model", "'self'"),
    ],
)
def test_a_bad_word_about_repetitions_is_refused(field: str, value: object, allowed: str) -> None:
    with pytest.raises(ValueError, match="allowed") as refused:
        declared_contract({field: value})
    assert allowed in str(refused.value)


def test_a_command_cannot_judge_its_own_progress() -> None:
    assert declared_contract({"progress": "self"}).progress == "self"
    with pytest.raises(ValueError, match="allowed: Python tools"):
        declared_contract({"progress": "self"}, Contract(kind="command"))
