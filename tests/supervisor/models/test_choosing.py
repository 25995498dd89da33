"""Which model a name means, where it is, and what is said when there is none."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping

import pytest

from supervisor.models import choosing
from supervisor.models.choosing import GatewayError, gateway
from supervisor.models.http import HttpGateway
from supervisor.models.scripted import ScriptedGateway

KEY = {"LLM_API_KEY": "key-123456"}
HERE = {"LLM_BASE_URL": "http://127.0.0.1:1/v1/"}


def address(name: str | None, environment: Mapping[str, str]) -> str:
    found = gateway(name, environment)
    assert isinstance(found, HttpGateway)
    return found._url


def code(name: str | None, environment: Mapping[str, str]) -> str:
    with pytest.raises(GatewayError) as raised:
        gateway(name, environment)
    assert raised.value.text
    return raised.value.code


@pytest.mark.parametrize(
    ("name", "model", "own", "elsewhere"),
    [
        ("openai:m", "m", "https://api.openai.com/v1/chat/completions", "http://127.0.0.1:1/v1/chat/completions"),
        ("openai:llama3:8b", "llama3:8b", "https://api.openai.com/v1/chat/completions", "http://127.0.0.1:1/v1/chat/completions"),
        ("openai-responses:m", "m", "https://api.openai.com/v1/responses", "http://127.0.0.1:1/v1/responses"),
        ("anthropic:m", "m", "https://api.anthropic.com/v1/messages", "http://127.0.0.1:1/v1/messages"),
    ],
)  # fmt: skip
def test_a_name_is_a_protocol_and_a_model_at_its_providers_address_or_the_one_that_is_set(name, model, own, elsewhere):
    assert gateway(name, KEY).model == model
    assert address(name, KEY) == own
    assert address(name, HERE) == elsewhere


@pytest.mark.behaviour("M079")
def test_without_a_name_model_address_and_key_are_those_of_the_environment():
    environment = {**KEY, **HERE, "LLM_MODEL": "llama3:8b"}
    found = gateway(None, environment)
    assert isinstance(found, HttpGateway)
    assert (found.model, found._url) == ("llama3:8b", "http://127.0.0.1:1/v1/chat/completions")
    assert found._headers()["authorization"] == "Bearer key-123456"
    assert address(None, {**environment, "LLM_MODEL": "anthropic:m"}) == "http://127.0.0.1:1/v1/messages"


def test_openais_own_models_have_their_word_for_the_limit_and_other_servers_the_one_they_know():
    for environment, word in ((KEY, "max_completion_tokens"), (HERE, "max_tokens")):
        found = gateway("openai:m", environment)
        assert isinstance(found, HttpGateway)
        assert found._dialect._limit == word


def test_a_server_of_ones_own_may_do_without_a_key():
    found = gateway("anthropic:m", HERE)
    assert isinstance(found, HttpGateway)
    assert "x-api-key" not in found._headers()


@pytest.mark.parametrize("name", ["", "gpt", "llama3:8b", "openai:", "mistral:m", "scripted"])
def test_a_name_that_means_nothing_is_refused_with_those_that_do(name):
    with pytest.raises(GatewayError, match=r"scripted:FILE, openai:NAME") as raised:
        gateway(name, KEY)
    assert raised.value.code == ("unknown_model" if name else "no_model")


@pytest.mark.parametrize(
    ("name", "environment", "expected"),
    [
        (None, {}, "no_model"),
        (None, {**HERE, "LLM_MODEL": "scripted:"}, "unknown_model"),
        ("openai:m", {}, "missing_key"),
        ("openai:m", {"LLM_API_KEY": ""}, "missing_key"),
        ("openai:m", {"LLM_API_KEY": "a\nb"}, "missing_key"),
        ("openai:m", {"LLM_BASE_URL": "localhost:8080"}, "bad_base_url"),
        ("openai:m", {"LLM_BASE_URL": "http://user:word@host/v1"}, "bad_base_url"),
        ("openai:m", {"LLM_BASE_URL": "http://host:99999/"}, "bad_base_url"),
        ("openai:m", {"LLM_BASE_URL": "file:///etc/passwd"}, "bad_base_url"),
        ("openai:m", {"LLM_BASE_URL": "http://host/v1?key=x"}, "bad_base_url"),
        ("openai:m", {**HERE, "LLM_SILENCE": "soon"}, "bad_silence"),
        ("scripted:/no/such/file", {}, "bad_script"),
    ],
)
def test_what_is_missing_or_wrong_has_a_code_and_a_sentence(name, environment, expected):
    assert code(name, environment) == expected


def test_no_message_about_an_address_has_the_password_in_it():
    with pytest.raises(GatewayError) as raised:
        gateway("openai:m", {"LLM_BASE_URL": "http://user:word-77@host/v1"})
    assert "word-77" not in str(raised.value)


def test_the_longest_silence_is_read_from_the_environment():
    found = gateway("openai:m", {**HERE, "LLM_SILENCE": "2s"})
    assert isinstance(found, HttpGateway)
    assert found._silence_ms == 2_000


def test_without_the_extra_it_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(GatewayError, match=r"deadlined\[models\]") as raised:
        gateway("openai:m", HERE)
    assert raised.value.code == "missing_extra"


def test_a_script_needs_no_environment(tmp_path):
    script = tmp_path / "s.toml"
    script.write_text('[[turn]]\ntext = "done"\n')
    assert isinstance(gateway(f"scripted:{script}", {}), ScriptedGateway)
    assert choosing.FORMS.startswith("scripted:FILE")
