"""Which gateway a name means, with the address and the key of the environment. Opens nothing.

Rules
1. ``scripted:FILE``, ``openai:NAME``, ``openai-responses:NAME``, ``anthropic:NAME``. No name: that of ``LLM_MODEL``,
   which may also be one without such a word: then it is spoken to as chat completions.
2. ``LLM_BASE_URL`` is the address for all of them; without it each has its provider's. A provider's own address needs
   ``LLM_API_KEY``; a server of one's own may do without.
3. ``LLM_SILENCE`` is how long an upstream may say nothing in the middle of an answer. Without it the deadline decides.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from protocol._errors import QuantityError
from protocol._quantities import parse_duration_ms
from supervisor.core.model_events import Gateway
from supervisor.environment import MODEL_KEY
from supervisor.models.anthropic_messages import AnthropicMessages
from supervisor.models.chat_completions import ChatCompletions
from supervisor.models.http import HttpGateway
from supervisor.models.responses import Responses
from supervisor.models.scripted import Script, ScriptedGateway, ScriptError
from supervisor.models.speech import Dialect

MODEL_VARIABLE, BASE_VARIABLE, SILENCE_VARIABLE = "LLM_MODEL", "LLM_BASE_URL", "LLM_SILENCE"
FORMS = "scripted:FILE, openai:NAME, openai-responses:NAME, anthropic:NAME"
SCRIPTED = "scripted"
_OPENAI, _ANTHROPIC = "https://api.openai.com/v1", "https://api.anthropic.com/v1"


class GatewayError(Exception):
    """No gateway can be had. ``code``: unknown_model, no_model, missing_key, missing_extra, bad_base_url, bad_silence,
    bad_script."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text


class _Provider(NamedTuple):
    base: str
    dialect: Callable[[bool], Dialect]
    """Given whether it is spoken to at its own address."""


_PROVIDERS = {
    "openai": _Provider(_OPENAI, lambda own: ChatCompletions("max_completion_tokens" if own else "max_tokens")),
    "openai-responses": _Provider(_OPENAI, lambda own: Responses()),
    "anthropic": _Provider(_ANTHROPIC, lambda own: AnthropicMessages()),
}
_WORDS = (SCRIPTED, *_PROVIDERS)


def gateway(name: str | None, environment: Mapping[str, str]) -> Gateway:
    """The gateway that a name means (rule 1). Raises GatewayError."""
    word, rest = parts(name, environment)
    return _scripted(rest) if word == SCRIPTED else _over_http(_PROVIDERS[word], rest, environment)


def parts(name: str | None, environment: Mapping[str, str]) -> tuple[str, str]:
    """The word of a name, and what it says behind that. Raises GatewayError."""
    given = name if name is not None else environment.get(MODEL_VARIABLE, "")
    if not given:
        raise GatewayError("no_model", f"no model is named; give --model or set {MODEL_VARIABLE}; allowed: {FORMS}")
    word, _, rest = given.partition(":")
    if word not in _WORDS and name is None:
        word, rest = "openai", given
    if word not in _WORDS or not rest:
        raise GatewayError("unknown_model", f"{given!r} names no model; allowed: {FORMS}")
    return word, rest


def _scripted(path: str) -> Gateway:
    try:
        return ScriptedGateway(Script.load(path))
    except ScriptError as error:
        raise GatewayError("bad_script", str(error)) from error


def _over_http(provider: _Provider, model: str, environment: Mapping[str, str]) -> Gateway:
    base = (environment.get(BASE_VARIABLE) or provider.base).rstrip("/")
    key = environment.get(MODEL_KEY) or None
    own = base == provider.base
    _check_base(base)
    if own and key is None:
        raise GatewayError("missing_key", f"{base} needs a key; set {MODEL_KEY}, or {BASE_VARIABLE} for another server")
    if key is not None and not (key.isascii() and key.isprintable()):
        raise GatewayError("missing_key", f"{MODEL_KEY} holds characters that no header can carry")
    if importlib.util.find_spec("httpx2") is None:
        raise GatewayError("missing_extra", "models over HTTP need an extra: pip install 'deadlined[models]'")
    return HttpGateway(model, provider.dialect(own), base, key, _silence_ms(environment))


def _check_base(base: str) -> None:
    """Raises GatewayError. A password in an address would be in every message that names it."""
    try:
        parts = urlsplit(base)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
        good = good and not parts.query and not parts.fragment and (parts.port or 1) > 0
    except ValueError:
        good = False
    if not good:
        raise GatewayError(
            "bad_base_url", f"{BASE_VARIABLE} is no address; allowed: http:// or https://, a host, a path; no password"
        )


def _silence_ms(environment: Mapping[str, str]) -> int | None:
    said = environment.get(SILENCE_VARIABLE)
    try:
        return parse_duration_ms(said) if said else None
    except QuantityError as error:
        raise GatewayError("bad_silence", f"{SILENCE_VARIABLE}: {error}") from error
