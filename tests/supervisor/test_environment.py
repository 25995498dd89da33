"""Which secrets a tool's contract finds, what goes with a call of it, and what is shown of that."""

from __future__ import annotations

import pytest

from protocol import Contract, ToolDescription
from supervisor.environment import Environment

HAS = {"VAULT_SESSION": "session-canary", "API_KEY": "canary-123", "PATH": "/bin"}


@pytest.mark.case("B132")
def test_a_secret_that_is_not_there_is_named() -> None:
    environment = Environment(HAS)
    assert environment.look_at(Contract(secrets=("VAULT_SESSION", "OTHER"))) == ("OTHER",)
    assert environment.look_at(Contract(env=("NEVER",))) == ()


def test_a_call_gets_the_secrets_of_its_tool_and_no_other() -> None:
    environment = Environment(HAS)
    assert environment.secrets_of(Contract(secrets=("VAULT_SESSION",))) == {"VAULT_SESSION": "session-canary"}
    assert environment.secrets_of(Contract(env=("API_KEY",))) == {}


def test_what_a_tool_was_looked_at_for_is_read_in_no_record() -> None:
    environment = Environment(HAS)
    environment.look_at(Contract(secrets=("VAULT_SESSION",)))
    assert environment.redaction.text("session-canary canary-123") == "[VAULT_SESSION] canary-123"


def test_the_way_to_the_models_is_no_tools_whatever_it_declares() -> None:
    environment = Environment({**HAS, "LLM_API_KEY": "model-canary", "LLM_BASE_URL": "http://here"})
    asks = Contract(env=("LLM_BASE_URL",), secrets=("LLM_API_KEY", "VAULT_SESSION"))
    assert environment.look_at(asks) == ("LLM_API_KEY",)
    assert environment.secrets_of(asks) == {"VAULT_SESSION": "session-canary"}
    shown = environment.shown(ToolDescription("t", "", asks, {}, ["PATH"]))
    assert {"LLM_API_KEY", "LLM_BASE_URL"} <= set(shown.kept_back) & set(shown.unset)


def test_the_key_of_the_models_is_read_in_no_record_though_no_tool_names_it() -> None:
    environment = Environment({**HAS, "LLM_API_KEY": "model-canary"})
    assert environment.redaction.text("model-canary canary-123") == "[LLM_API_KEY] canary-123"


@pytest.mark.case("B132")
def test_names_are_shown_and_no_value() -> None:
    contract = Contract(env=("@certs", "LANG_X"), secrets=("VAULT_SESSION", "OTHER"))
    shown = Environment(HAS).shown(ToolDescription("t", "", contract, {}, ["PATH", "VAULT_SESSION"]))
    assert (shown.kept_back, shown.unset) == (["API_KEY"], ["LANG_X", "OTHER"])
    assert not [value for value in HAS.values() if value in repr(shown)]
